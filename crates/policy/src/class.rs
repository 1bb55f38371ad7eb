//! Service classes: who waits behind whom.

use serde::{Deserialize, Serialize};

/// The urgency of a request; the order is the order of service.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A person waits for it.
    #[default]
    Interactive,
    /// A program waits for it. Extra attempts have this class too, so that they never delay a first attempt.
    Batch,
    /// Nobody waits for it.
    Background,
}

curtail_units::labels!(Class {
    Interactive => "interactive",
    Batch => "batch",
    Background => "background",
});

impl Class {
    /// All classes, the most urgent first.
    pub const ALL: [Self; 3] = [Self::Interactive, Self::Batch, Self::Background];

    /// The next less urgent class; the least urgent one stays as it is.
    #[must_use]
    pub const fn lower(self) -> Self {
        match self {
            Self::Interactive => Self::Batch,
            Self::Batch | Self::Background => Self::Background,
        }
    }

    /// The class with that name, if there is one.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}

//! Service classes: the order in which a leaf serves queued requests.

use serde::{Deserialize, Serialize};

/// The urgency of a request. A leaf serves the classes in the order of the variants.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A person waits for the response.
    #[default]
    Interactive,
    /// A program waits for the response. Hedges of interactive requests are queued in this class too.
    Batch,
    /// Nobody waits for the response. Hedges of batch and background requests are queued in this class.
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

    /// The next less urgent class, that of a hedge or of an attempt beside an overdue one. Background stays background.
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

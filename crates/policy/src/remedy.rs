//! The mode of the remedies of an upstream: whether hedges and ties are sent, and a dry run of hedges.
//!
//! In a dry run a hedge that is due is counted and not sent. [`crate::Reason::DryRun`] has the numbers: the age of the
//! request, and the time that another replica took for its latest response. The request would have had its response at
//! the sum of the two, if it had none before. The driver compares this sum with the true latency.
//! **Limits**: a dry run counts the first hedge of a request. Hedges that the budget would deny are not counted, and those
//! that are counted take nothing from retries. A dry run sends no ties.
//! **Hurts when** requests differ: the latest response was to another request. A heavy request looks as if another replica
//! would be fast. Only real hedges show this ([`holdout`](crate::Request::is_holdout)).

use serde::{Deserialize, Serialize};

/// Whether the configured hedges and ties of an upstream are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemedyMode {
    /// They are sent.
    #[default]
    On,
    /// They are not sent.
    Off,
    /// Hedges are counted, but not sent.
    DryRun,
}

curtail_units::labels!(RemedyMode {
    On => "on",
    Off => "off",
    DryRun => "dry_run",
});

impl RemedyMode {
    /// Whether this is the default.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        matches!(self, Self::On)
    }
}

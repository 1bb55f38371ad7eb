//! The arms that are compared: the same reads of the same servers, each with another remedy.

/// One way to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// The client asks a replica of each shard at random, and waits.
    Direct,
    /// A root asks a second replica when the first is slower than usual.
    Hedged,
    /// A root queues every read at the leaves of two replicas; the first to start cancels the other.
    Tied,
    /// A root probes the leaves and sends each read where it will wait least.
    Prequal,
}

impl Arm {
    /// All of them, in the order in which they are shown.
    pub(crate) const ALL: [Self; 4] = [Self::Direct, Self::Hedged, Self::Tied, Self::Prequal];

    /// Its name: in the table, in the report, and as the tenant for which servers count executions.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Hedged => "hedged",
            Self::Tied => "tied",
            Self::Prequal => "prequal",
        }
    }

    /// Its place in [`Self::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

//! The arms of the demo: each reads the same keys from the same servers, with a different remedy.

/// One remedy, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// A call to one replica of each shard, chosen at random.
    Direct,
    /// A second call when the first is slower than usual.
    Hedged,
    /// Two copies of each call, queued at the leaves of two replicas.
    Tied,
    /// A call to the replica of each shard with the shortest expected wait, by probes.
    Prequal,
}

impl Arm {
    /// All arms, in the order of the table.
    pub(crate) const ALL: [Self; 4] = [Self::Direct, Self::Hedged, Self::Tied, Self::Prequal];

    /// The name of the arm in tables, of the service in its spans, and of the tenant in its requests to the servers.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Hedged => "hedged",
            Self::Tied => "tied",
            Self::Prequal => "prequal",
        }
    }

    /// The index in [`Self::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

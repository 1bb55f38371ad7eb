//! The arms of the demo: the same reads from the same servers, each with another remedy.

/// One remedy, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// A call to one replica of each shard, chosen at random.
    Direct,
    /// A second call when the first is slower than usual.
    Hedged,
    /// Two copies of each call, queued at the leaves of two replicas.
    Tied,
    /// Each call goes to the replica with the shortest expected wait, by probes.
    Prequal,
}

impl Arm {
    /// All arms, in the order of the table.
    pub(crate) const ALL: [Self; 4] = [Self::Direct, Self::Hedged, Self::Tied, Self::Prequal];

    /// The arm in tables, the service of its spans, and the tenant of its executions at the servers.
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

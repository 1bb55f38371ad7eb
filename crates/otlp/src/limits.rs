//! The limits of a batch and of a row.

/// The limits on a batch and its rows. A batch or row beyond a limit is rejected with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a batch after decompression: at most 4 GiB, because positions have 32 bits.
    pub batch_bytes: u32,
    /// Maximum number of attributes of one span, record, point, event, link, resource or scope.
    pub attributes: u32,
    /// Maximum number of events of one span, and of its links.
    pub events: u32,
    /// Maximum number of parts of a batch: resources, scopes, metrics, rows and entries of their lists. Each decoded
    /// part takes memory, even if it has only two bytes.
    pub parts: u32,
    /// Maximum nesting of lists and maps.
    pub depth: u32,
}

impl Limits {
    /// For batches whose rows were limited when they were received, as those of a store.
    pub const STORED: Self = Self {
        batch_bytes: u32::MAX,
        attributes: u32::MAX,
        events: u32::MAX,
        parts: u32::MAX,
        depth: 16,
    };
}

impl Default for Limits {
    /// Eight times the default limits of SDKs for a span (128 attributes, events, links). The limit of parts is that of
    /// a batch of the maximum size whose parts have 16 bytes each.
    fn default() -> Self {
        let (batch_bytes, parts) = (64 << 20, 4 << 20);
        Self { batch_bytes, attributes: 1_024, events: 1_024, parts, depth: 16 }
    }
}

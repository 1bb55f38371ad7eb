//! The limits of a batch and of a row.

/// What a sender may send; more is refused, with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a batch, after decompression. Places in it are 32 bits wide, so at most 4 GiB.
    pub batch_bytes: u32,
    /// Attributes of one span, record, point, event, link, resource or scope.
    pub attributes: u32,
    /// Events of one span, and links.
    pub events: u32,
    /// Resources, scopes, metrics, rows and what these have a list of, in one batch: decoded each takes some memory,
    /// even if two bytes say it.
    pub parts: u32,
    /// How deep lists and maps may lie in each other.
    pub depth: u32,
}

impl Default for Limits {
    /// Eight times what SDKs allow a span by default (128 attributes, events, links); parts as in a batch of the greatest
    /// length in which each has 16 bytes.
    fn default() -> Self {
        let (batch_bytes, parts) = (64 << 20, 4 << 20);
        Self { batch_bytes, attributes: 1_024, events: 1_024, parts, depth: 16 }
    }
}

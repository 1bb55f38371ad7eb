//! The limits of a batch and of a row.

/// The limits of senders; what exceeds them is rejected with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a batch, after decompression. Positions in it have 32 bits, so at most 4 GiB.
    pub batch_bytes: u32,
    /// Attributes of one span, record, point, event, link, resource or scope.
    pub attributes: u32,
    /// Events of one span, and links.
    pub events: u32,
    /// Resources, scopes, metrics, rows and the entries of their lists in one batch. Each takes memory when it is
    /// decoded, even if it is two bytes long.
    pub parts: u32,
    /// Maximum nesting of lists and maps.
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

//! The limits of one request.

/// The limits of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of spans that are read of a trace: the first ones.
    pub trace_spans: usize,
    /// Maximum number of bytes of a response.
    pub response_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { trace_spans: 1_000_000, response_bytes: 1 << 30 }
    }
}

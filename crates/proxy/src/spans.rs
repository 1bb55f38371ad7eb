//! tmp
#[derive(Clone, Debug, Default)]
pub(crate) struct SpanCounts {
    pub(crate) recorded: u64,
    pub(crate) sent: u64,
    pub(crate) dropped: u64,
    pub(crate) undelivered: u64,
    pub(crate) rejected: u64,
    pub(crate) exports_failed: u64,
}

//! Summaries of traces: a table with one row for each trace of a run.
//!
//! | run of spans | its traces are summarized |
//! |---|---|
//! | merged from others | during the merge |
//! | flushed, and not merged for [`SETTLED_AFTER_MS`] | after that time |
//!
//! The summaries of a run are a file with the same path in the table of traces, and live as long as the run.
//!
//! **Invariant**: every run older than [`SETTLED_AFTER_MS`] has summaries exactly once. A trace in one run has one row.
//! A trace in several runs has a row for each, until the runs are merged. Runs of different days are never merged.
//!
//! The two tables are committed one after the other. Between the two commits, and after a failure until a retry, the
//! summaries are those of the replaced runs.

mod summaries;
mod summarizer;
mod trace;

pub use summaries::Summaries;
pub(crate) use summarizer::Summarizer;

/// The age at which a run that has not been merged is summarized: 15 minutes.
pub const SETTLED_AFTER_MS: i64 = 15 * 60_000;

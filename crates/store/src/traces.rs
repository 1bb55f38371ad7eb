//! Summaries of traces: a table with one row for each trace of a run.
//!
//! | run of spans | its traces are summarized |
//! |---|---|
//! | merged from others | during the merge |
//! | flushed, and not merged for [`SETTLED_AFTER_MS`] | then |
//!
//! The summaries of a run are a file with the same path in the table of traces, and live as long as the run.
//!
//! **Invariant**: every run older than [`SETTLED_AFTER_MS`] has summaries, once. A trace in one run has one row with all its
//! spans. A trace in several runs has a row for each, until these are merged; runs of different days are never merged.
//!
//! The two tables are committed one after the other. In between, and after a failure, the summaries are those of the runs
//! before, until a retry.

mod summaries;
mod summariser;
mod trace;

pub use summaries::Summaries;
pub(crate) use summariser::Summariser;

/// A run that has not become part of another one for so long has summaries of its own: 15 minutes.
pub const SETTLED_AFTER_MS: i64 = 15 * 60_000;

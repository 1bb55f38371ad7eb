//! Summaries of traces: a small table beside that of spans, with one row for what a run has of a trace.
//!
//! | what a run of spans was | when its traces are summarised |
//! |---|---|
//! | merged of others | in passing |
//! | written from memory, and not merged for [`SETTLED_AFTER_MS`] | then |
//!
//! The summaries of a run are a file with its path, in the other table, and stay as long as it does: when runs become
//! others, the summaries of those take the place of theirs.
//!
//! **What holds**: every run of spans that is older than [`SETTLED_AFTER_MS`] has its summaries, once; a trace of which
//! all spans are in one run has one row, which is of all of them. A trace of which spans are in several runs has a row
//! in each, of what that has, until they are merged; over midnight it stays so.
//!
//! The two tables are committed one after the other. Between the two, and when something fails there, the summaries
//! are those of the runs before, until it is tried again.

mod summaries;
mod summariser;
mod trace;

pub use summaries::Summaries;
pub(crate) use summariser::{NewSummaries, Summarised, Summariser};

/// A run that has not become part of another one for so long has summaries of its own: 15 minutes.
pub const SETTLED_AFTER_MS: i64 = 15 * 60_000;

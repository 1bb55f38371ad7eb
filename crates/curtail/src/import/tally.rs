//! What came of it all, in words.

use curtail_otlp::Signal;
use std::fmt;

/// What was read and sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Lines that are not blank, or messages.
    pub(super) lines: u64,
    /// Those of them that are no batch.
    pub(super) bad: u64,
    spans: u64,
    logs: u64,
    points: u64,
    /// Rows.
    pub(super) refused: u64,
}

impl Tally {
    /// The server has taken rows.
    pub(super) const fn took(&mut self, signal: Signal, rows: u64) {
        match signal {
            Signal::Traces => self.spans += rows,
            Signal::Logs => self.logs += rows,
            Signal::Metrics => self.points += rows,
        }
    }

    /// Whether nothing was left out.
    pub(super) const fn is_whole(&self) -> bool {
        self.bad == 0 && self.refused == 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lines, bad, spans, logs, points, refused } = self;
        write!(
            f,
            "{lines} lines, {bad} of them bad; {spans} spans, {logs} logs and {points} points taken, {refused} refused"
        )
    }
}

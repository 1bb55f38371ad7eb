//! What came of it all, and how far it has come: results in words, progress on standard error.

use super::read::Place;
use curtail_otlp::Signal;
use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// So often the progress is shown on a terminal, and where there is none.
const SHOWN_EVERY: Duration = Duration::from_millis(500);
const SAID_EVERY: Duration = Duration::from_secs(10);

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

/// Standard error: a line that is drawn over itself on a terminal, and lines that stay.
#[derive(Debug)]
pub(super) struct Screen {
    is_terminal: bool,
    shown: Instant,
    is_dirty: bool,
}

impl Screen {
    pub(super) fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), shown: Instant::now(), is_dirty: false }
    }

    /// Says something that stays.
    pub(super) fn say(&mut self, line: &str) -> io::Result<()> {
        self.clear()?;
        writeln!(io::stderr(), "{line}")
    }

    /// Shows how far it has come, now and then.
    pub(super) fn show(&mut self, at: &Place, tally: &Tally) -> io::Result<()> {
        let every = if self.is_terminal { SHOWN_EVERY } else { SAID_EVERY };
        if self.shown.elapsed() < every {
            return Ok(());
        }
        self.shown = Instant::now();
        let line = format!("{at}: {tally}");
        if !self.is_terminal {
            return self.say(&line);
        }
        self.clear()?;
        self.is_dirty = true;
        write!(io::stderr(), "{line}")
    }

    /// Takes the line away that does not stay.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_dirty) {
            write!(io::stderr(), "\r\x1b[K")?;
        }
        Ok(())
    }
}

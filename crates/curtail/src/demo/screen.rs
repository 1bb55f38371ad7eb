//! The screen: a table that is drawn over itself each second on a terminal, one line now and then
//! elsewhere, nothing at all when the result is for a program.

use std::io::{IsTerminal as _, Write as _};

/// Where there is no terminal, one line in so many seconds.
const LINE_EVERY: u64 = 5;

/// How the progress is shown.
#[derive(Debug)]
pub(crate) enum Screen {
    /// Over what was drawn last, so many lines.
    Live(usize),
    /// As lines.
    Lines,
    /// Not at all.
    Silent,
}

impl Screen {
    /// The way that suits standard output.
    pub(crate) fn for_stdout(silent: bool) -> Self {
        if silent {
            Self::Silent
        } else if std::io::stdout().is_terminal() {
            Self::Live(0)
        } else {
            Self::Lines
        }
    }

    /// Shows how things stand after `seconds`: `table` on a terminal, else `line`.
    pub(crate) fn show(
        &mut self,
        seconds: u64,
        table: impl FnOnce() -> Vec<String>,
        line: impl FnOnce() -> String,
    ) -> std::io::Result<()> {
        match self {
            Self::Live(drawn) => *drawn = draw(*drawn, &table())?,
            Self::Lines if seconds.is_multiple_of(LINE_EVERY) => {
                writeln!(std::io::stdout(), "{}", line())?;
            }
            Self::Lines | Self::Silent => {}
        }
        Ok(())
    }

    /// Shows `lines` and leaves them there.
    pub(crate) fn finish(&mut self, lines: &[String]) -> std::io::Result<()> {
        let drawn = match std::mem::replace(self, Self::Silent) {
            Self::Live(drawn) => drawn,
            Self::Lines => 0,
            Self::Silent => return Ok(()),
        };
        draw(drawn, lines).map(|_| ())
    }
}

/// Draws `lines` over the `over` lines above the cursor; gives how many there are now.
fn draw(over: usize, lines: &[String]) -> std::io::Result<usize> {
    let mut out = std::io::stdout().lock();
    if over > 0 {
        // Up, to the first of them, and away with everything from there on.
        write!(out, "\x1b[{over}A\x1b[J")?;
    }
    for line in lines {
        writeln!(out, "{line}")?;
    }
    out.flush()?;
    Ok(lines.len())
}

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
///
/// Each line is overwritten in place. Clearing the screen first would flicker, and terminals such as tmux would add
/// each table to their scrollback.
fn draw(over: usize, lines: &[String]) -> std::io::Result<usize> {
    let mut out = std::io::stdout().lock();
    out.write_all(render_redraw(over, lines).as_bytes())?;
    out.flush()?;
    Ok(lines.len())
}

/// The bytes for a terminal.
fn render_redraw(over: usize, lines: &[String]) -> String {
    const ERASE_REST_OF_LINE: &str = "\x1b[K";
    const ERASE_BELOW: &str = "\x1b[J";
    if over == 0 {
        return lines.iter().map(|line| format!("{line}\n")).collect();
    }
    let up = format!("\x1b[{over}A");
    let lines_over = lines.iter().map(|line| format!("{line}{ERASE_REST_OF_LINE}\n"));
    let below = if lines.len() < over { ERASE_BELOW } else { "" };
    std::iter::once(up).chain(lines_over).chain([below.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::render_redraw;

    #[test]
    fn a_table_is_drawn_over_the_one_before_line_by_line() {
        let lines =
            |texts: &[&str]| -> Vec<String> { texts.iter().map(ToString::to_string).collect() };
        assert_eq!(render_redraw(0, &lines(&["a", "b"])), "a\nb\n");
        assert_eq!(render_redraw(2, &lines(&["c", "d"])), "\x1b[2Ac\x1b[K\nd\x1b[K\n");
        assert_eq!(
            render_redraw(2, &lines(&["e"])),
            "\x1b[2Ae\x1b[K\n\x1b[J",
            "an old line is erased"
        );
    }
}

//! The terminal: its width, and the progress of a command.
//!
//! On a terminal, new progress overwrites the old. Elsewhere, a command prints a progress line at its interval, or none
//! if it has no interval. Progress goes to standard error; that of `curtail demo` goes to standard output, where the
//! result replaces it. A closed stream is no error.

use curtail_text::{WIDTH, cut};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Minimum time between two updates on a terminal.
const REDRAWN_EVERY: Duration = Duration::from_millis(250);

/// The number of columns of standard output; at least [`WIDTH`], also if standard output is not a terminal.
pub(crate) fn width_of_stdout() -> usize {
    let size = terminal_size::terminal_size_of(io::stdout());
    size.map_or(WIDTH, |(width, _)| usize::from(width.0).max(WIDTH))
}

/// Whether results on standard output may have colors: it is a terminal, and `NO_COLOR` is not set.
pub(crate) fn has_colors() -> bool {
    let is_set = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stdout().is_terminal() && !is_set
}

/// The progress of a command.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    stream: Stream,
    /// The number of drawn lines; absent if the stream is not a terminal.
    drawn: Option<usize>,
    /// The time between two lines if the stream is not a terminal; absent: no lines.
    line_every: Option<Duration>,
    shown: Instant,
}

#[derive(Clone, Copy, Debug)]
enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// Writes text; ignores errors, because progress is not a result.
    fn write(self, text: &str) {
        let mut out: Box<dyn Write> = match self {
            Self::Stdout => Box::new(io::stdout().lock()),
            Self::Stderr => Box::new(io::stderr().lock()),
        };
        let _written: io::Result<()> = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

impl ProgressLine {
    /// Progress on standard error. If this is not a terminal: a line each `line_every`; absent: no lines.
    pub(crate) fn on_stderr(line_every: Option<Duration>) -> Self {
        Self::new(Stream::Stderr, io::stderr().is_terminal(), line_every)
    }

    /// Progress on standard output, where the result will replace it.
    pub(crate) fn on_stdout(line_every: Option<Duration>) -> Self {
        Self::new(Stream::Stdout, io::stdout().is_terminal(), line_every)
    }

    fn new(stream: Stream, is_terminal: bool, line_every: Option<Duration>) -> Self {
        Self { stream, drawn: is_terminal.then_some(0), line_every, shown: Instant::now() }
    }

    /// Creates a progress line that shows no progress; `say` still writes.
    pub(crate) fn silent() -> Self {
        Self::new(Stream::Stderr, false, None)
    }

    pub(crate) fn begin(&mut self, line: &str) {
        if self.drawn.is_some() {
            self.draw(&[line.to_owned()]);
        } else if self.line_every.is_some() {
            self.stream.write(&format!("{line}\n"));
        }
    }

    /// Shows a line, unless the last line is too recent.
    pub(crate) fn show(&mut self, line: impl Fn() -> String) {
        self.show_lines(|| vec![line()], &line);
    }

    /// Shows `lines` on a terminal, and `line` elsewhere, unless the last update is too recent.
    pub(crate) fn show_lines(
        &mut self,
        lines: impl FnOnce() -> Vec<String>,
        line: impl FnOnce() -> String,
    ) {
        let every = if self.drawn.is_some() { Some(REDRAWN_EVERY) } else { self.line_every };
        if every.is_none_or(|every| self.shown.elapsed() < every) {
            return;
        }
        self.shown = Instant::now();
        match self.drawn {
            Some(_) => self.draw(&lines()),
            None => self.stream.write(&format!("{}\n", line())),
        }
    }

    pub(crate) fn say(&mut self, line: &str) {
        self.clear();
        self.stream.write(&format!("{line}\n"));
    }

    /// Clears the drawn lines.
    pub(crate) fn clear(&mut self) {
        if self.drawn.is_some_and(|drawn| drawn > 0) {
            self.draw(&[]);
        }
    }

    /// Draws `lines` over the drawn lines, each in place. Clearing the screen first would flicker, and terminals such
    /// as tmux would add each table to their scrollback.
    fn draw(&mut self, lines: &[String]) {
        let lines: Vec<String> = lines.iter().map(|line| cut(line, WIDTH)).collect();
        self.stream.write(&render_redraw(self.drawn.unwrap_or(0), &lines));
        self.drawn = Some(lines.len());
    }
}

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
        assert_eq!(render_redraw(1, &[]), "\x1b[1A\x1b[J", "and so is the last one");
    }
}

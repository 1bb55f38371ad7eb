//! What the proxies of this process log, kept so that tests can look for a line.
//!
//! All tests share it: a line is looked for by something that only one test has, such as a port.

use std::io;
use std::sync::{Mutex, Once, PoisonError};
use tracing_subscriber::fmt::MakeWriter;

/// Lines that are kept; tests look for theirs right after they were written.
const LINES_MAX: usize = 20_000;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static INSTALLED: Once = Once::new();

/// Begins to keep lines of level `info` and above, which an operator sees.
pub(crate) fn keep() {
    INSTALLED.call_once(|| {
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .with_writer(Kept)
            .init();
    });
}

/// The first line that says all of `parts`.
pub(crate) fn find(parts: &[&str]) -> Option<String> {
    find_all(parts).into_iter().next()
}

/// The lines that say all of `parts`.
pub(crate) fn find_all(parts: &[&str]) -> Vec<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().filter(|line| parts.iter().all(|part| line.contains(part))).cloned().collect()
}

/// Waits for a line that says all of `parts`.
pub(crate) async fn until(parts: &[&str]) -> String {
    loop {
        if let Some(line) = find(parts) {
            return line;
        }
        tokio::task::yield_now().await;
    }
}

struct Kept;

impl io::Write for Kept {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < LINES_MAX {
            lines.push(String::from_utf8_lossy(line).into_owned());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Kept {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        Self
    }
}

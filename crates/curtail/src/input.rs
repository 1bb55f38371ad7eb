//! The text files that commands read; `-` stands for standard input.
//!
//! **Limits**: at most the maximum size of a configuration.

use anyhow::Context as _;
use curtail_config::TEXT_BYTES_MAX;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The name of standard input in messages.
const STANDARD_INPUT: &str = "<stdin>";

/// Opens a file or standard input; returns also its name for messages.
///
/// # Errors
/// When it cannot be opened.
pub(crate) fn open(file: &Path) -> anyhow::Result<(String, Box<dyn Read>)> {
    if file.as_os_str() == "-" {
        return Ok((STANDARD_INPUT.to_owned(), Box::new(io::stdin().lock())));
    }
    let name = file.display().to_string();
    let opened = File::open(file).with_context(|| name.clone())?;
    Ok((name, Box::new(opened)))
}

/// Reads a configuration; returns its name for messages and its text.
///
/// # Errors
/// When it cannot be read or is not text.
pub(crate) fn text(file: &Path) -> anyhow::Result<(String, String)> {
    let (name, input) = open(file)?;
    let mut bytes = Vec::new();
    // One byte more than allowed, so that a file that is too long is rejected instead of truncated.
    let read = input.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    read.with_context(|| name.clone())?;
    let text = curtail_config::text_of(&name, bytes)?;
    Ok((name, text))
}

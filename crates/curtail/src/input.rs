//! The files of text that commands read: `-` stands for standard input.
//!
//! **Limits**: no more is read than a configuration may hold.

use anyhow::Context as _;
use curtail_config::TEXT_BYTES_MAX;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// How standard input is named in messages.
const STANDARD_INPUT: &str = "<stdin>";

/// A file, or standard input, and its name in messages.
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

/// The text of a configuration and its name in messages.
///
/// # Errors
/// When it cannot be read, or is no text.
pub(crate) fn text(file: &Path) -> anyhow::Result<(String, String)> {
    let (name, input) = open(file)?;
    let mut bytes = Vec::new();
    // One byte more than allowed, so that what is too long is refused and not cut.
    let read = input.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    read.with_context(|| name.clone())?;
    let text = curtail_config::text_of(&name, bytes)?;
    Ok((name, text))
}

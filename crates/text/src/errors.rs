//! Errors as one line of text.

use alloc::format;
use alloc::string::{String, ToString as _};
use core::error::Error;
use core::iter::successors;

/// The text of an error, and those of its causes. A cause is left out if the text so far ends with that cause.
#[must_use]
pub fn describe_error(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for cause in successors(Some(error), |&error| error.source()).map(|cause| cause.to_string()) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

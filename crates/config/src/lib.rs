//! Configuration: converts YAML text to typed values, and reports all errors at once.
//!
//! A caller writes a function from a [`Section`] to a typed value. The function names each key once, with the type, the
//! meaning and the default of the key:
//!
//! ```
//! use curtail_config::{Section, read};
//! use curtail_units::{Duration, Quantile};
//!
//! struct Hedge {
//!     quantile: Quantile,
//!     delay_min: Duration,
//! }
//!
//! fn hedge(s: &mut Section<'_>) -> Hedge {
//!     Hedge {
//!         quantile: s.field("quantile", "Hedge requests slower than this.").default(Quantile::P90),
//!         delay_min: s.field("delay_min", "Never hedge sooner.").default(Duration::from_ms(1)),
//!     }
//! }
//!
//! let errors = read("curtail.yaml", "quantile: 99\ndelay_max: 5ms\n", hedge).err();
//! assert_eq!(
//!     errors.expect("99 is no quantile").to_string(),
//!     "curtail.yaml:1:11: quantile: 99 is out of range: \
//!      expected a quantile from 0 to 1 (0.99, not 99)\n\
//!      curtail.yaml:2:1: delay_max: unknown key: did you mean delay_min?"
//! );
//! ```
//!
//! The reference page and the JSON Schema come from the same function ([`describe`], [`reference_markdown`],
//! [`json_schema`]), so the documentation of a key always matches its reader.
//!
//! The crate opens no file: its input is text, its output values or [`ConfigErrors`]. After an error, the function
//! continues with placeholders. It must therefore have no effects and must not panic.

mod cases;
mod config_error;
mod field;
mod key;
mod kind;
mod parameters;
pub mod policy;
mod quantity;
mod reference;
mod scalar;
mod schema;
mod section;
mod set;
#[cfg(test)]
mod tests;
mod tls;
mod tree;
mod value;
mod value_file;

pub use cases::{Cases, CasesField};
pub use config_error::{CONFIG_ERRORS_MAX, ConfigErrors, KeyError};
pub use field::Field;
pub use key::{Key, Presence};
pub use parameters::FILLED_BYTES_MAX;
pub use reference::reference_markdown;
pub use scalar::{Meaning, Scalar};
pub use schema::json_schema;
pub use section::Section;
pub use tls::{ServerTls, certificate_files};
pub use tree::{NESTING_MAX, NODES_MAX, TEXT_BYTES_MAX};
pub use value::{ScalarError, Value, port_defect};
pub use value_file::{FILE_BYTES_MAX, LINES_MAX, ValueFiles, read_file_bytes};

use config_error::SourcePosition;
use section::ReadLog;
use std::cell::RefCell;
use std::io::{self, Read as _};

/// Reads the bytes of a configuration, and no more than one byte beyond [`TEXT_BYTES_MAX`], which [`read`] then rejects.
///
/// # Errors
/// When the input cannot be read.
pub fn read_bytes(input: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(TEXT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads `text`; `file` names it in messages.
///
/// # Errors
/// All errors of the text.
pub fn read<T>(
    file: &str,
    text: &str,
    read: impl FnOnce(&mut Section<'_>) -> T,
) -> Result<T, ConfigErrors> {
    read_with_sets(file, text, &[], read)
}

/// Reads `text`, changed by `sets` (`section.key=value`).
///
/// # Errors
/// All errors of the text and of the sets.
pub fn read_with_sets<T>(
    file: &str,
    text: &str,
    sets: &[String],
    read: impl FnOnce(&mut Section<'_>) -> T,
) -> Result<T, ConfigErrors> {
    read_tree((file, text), sets, None, None, read)
}

/// Reads `text`, changed by `sets`, and adds the errors that `check` finds beyond the text, such as files that cannot be
/// read. `check` also gets a configuration with placeholders: its errors about these are dropped.
///
/// # Errors
/// All errors of the text, of the sets and of `check`.
pub fn read_and_check<T>(
    (file, text): (&str, &str),
    sets: &[String],
    read: impl FnOnce(&mut Section<'_>) -> T,
    check: impl FnOnce(&T) -> Vec<KeyError>,
) -> Result<T, ConfigErrors> {
    let (root, mut errors) = parse_tree((file, text), sets);
    let log = RefCell::new(ReadLog { errors, keys: Vec::new() });
    let value = Section::root(&log, &root, None).read(read);
    errors = log.into_inner().errors;
    // Of a text that is no section, all values are placeholders.
    let is_section = matches!(root.content, tree::Content::Mapping(_));
    let found = if is_section { check(&value) } else { Vec::new() };
    for KeyError { key, text } in found {
        if !errors.is_unread(&key) {
            errors.push_of_check(set::place_in(&root, &key), &key, text);
        }
    }
    errors.or(value)
}

/// An error about the value of a key that `text`, changed by `sets`, has; `file` names it.
#[must_use]
pub fn key_errors((file, text): (&str, &str), sets: &[String], error: KeyError) -> ConfigErrors {
    let (root, _) = parse_tree((file, text), sets);
    let mut errors = ConfigErrors::none(file, sets);
    errors.push_of_check(set::place_in(&root, &error.key), &error.key, error.text);
    errors
}

/// The parameters of a file: the key of their section, and predefined parameters with their values.
pub type Parameters<'p> = (&'p str, &'p [(&'p str, String)]);

/// Reads `text` with each `${name}` replaced by the parameter of that name.
///
/// # Errors
/// All errors of the text and of the sets.
pub fn read_with_parameters<T>(
    file: &str,
    text: &str,
    sets: &[String],
    parameters: Parameters<'_>,
    read: impl FnOnce(&mut Section<'_>) -> T,
) -> Result<T, ConfigErrors> {
    read_tree((file, text), sets, Some(parameters), None, read)
}

/// Reads `text`, changed by `sets`; its keys may name `files` of values.
///
/// # Errors
/// All errors of the text, of the sets and of the files.
pub fn read_with_files<T>(
    file: &str,
    text: &str,
    sets: &[String],
    files: &dyn ValueFiles,
    read: impl FnOnce(&mut Section<'_>) -> T,
) -> Result<T, ConfigErrors> {
    read_tree((file, text), sets, None, Some(files), read)
}

fn read_tree<T>(
    (file, text): (&str, &str),
    sets: &[String],
    parameters: Option<Parameters<'_>>,
    files: Option<&dyn ValueFiles>,
    read: impl FnOnce(&mut Section<'_>) -> T,
) -> Result<T, ConfigErrors> {
    let (mut root, mut errors) = parse_tree((file, text), sets);
    if let Some((key, given)) = parameters {
        parameters::fill_in(&mut root, key, given, &mut errors);
    }
    let log = RefCell::new(ReadLog { errors, keys: Vec::new() });
    let value = Section::root(&log, &root, files).read(read);
    log.into_inner().errors.or(value)
}

fn parse_tree((file, text): (&str, &str), sets: &[String]) -> (tree::Node, ConfigErrors) {
    let mut errors = ConfigErrors::none(file, sets);
    let mut root = tree::parse(text, tree::Origin::FILE, &mut errors);
    set::apply(&mut root, sets, &mut errors);
    (root, errors)
}

/// Decodes the text of a file.
///
/// # Errors
/// The position of the first byte that is not UTF-8.
pub fn text_of(file: &str, bytes: Vec<u8>) -> Result<String, ConfigErrors> {
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let in_line = String::from_utf8_lossy(
            before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default(),
        );
        let place = SourcePosition::File { line, column: 1 + in_line.chars().count() };
        let mut errors = ConfigErrors::none(file, &[]);
        let text = format!("byte {} is not UTF-8: expected a text file", before.len());
        errors.push(place, "", text);
        errors
    })
}

/// Lists every key that `read` asks for, in order.
pub fn describe<T>(read: impl FnOnce(&mut Section<'_>) -> T) -> Vec<Key> {
    let log = RefCell::new(ReadLog { errors: ConfigErrors::none("", &[]), keys: Vec::new() });
    Section::listing(&log).read(read);
    log.into_inner().keys
}

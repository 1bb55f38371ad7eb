//! Values in a file of their own, one a line: recorded service times, recorded arrivals.
//!
//! **Limits**: [`FILE_BYTES_MAX`] bytes and [`LINES_MAX`] lines of a file.

use crate::kind::Kind;
use crate::scalar::Scalar;
use crate::section::{Section, Source};
use crate::set::place_of;
use crate::value::Value;
use std::fmt::Debug;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Maximum size of a file of values.
pub const FILE_BYTES_MAX: usize = 256 << 20;

/// Maximum number of lines of a file of values.
pub const LINES_MAX: usize = 10_000_000;

/// The files of values that a configuration may name.
pub trait ValueFiles: Debug {
    /// The bytes of the file at `path`, as the configuration names it.
    ///
    /// # Errors
    /// When the file cannot be read.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
}

/// Reads the bytes of a file of values, and no more than one byte beyond [`FILE_BYTES_MAX`], which is then rejected.
///
/// # Errors
/// When the input cannot be read.
pub fn read_file_bytes(input: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Section<'_> {
    /// A key that names a file with one value on each line; [`None`] if the key is absent.
    pub fn file_values<T: Value>(
        &mut self,
        key: &'static str,
        doc: &'static str,
    ) -> Option<Vec<T>> {
        let path: PathBuf = self.field(key, doc).optional()?;
        let placeholder = Some(vec![T::placeholder()]);
        let (Source::Entries(entries), false) = (self.source, self.broken) else {
            return placeholder;
        };
        let values =
            match self.files {
                None => Err("files of values cannot be read here: expected the values themselves"
                    .to_owned()),
                Some(files) => files
                    .read(&path)
                    .map_err(|error| error.to_string())
                    .and_then(|bytes| parse(&bytes))
                    .map_err(|text| format!("{}: {text}", path.display())),
            };
        match values {
            Ok(values) => Some(values),
            Err(text) => {
                let place = place_of(entries, key).unwrap_or(self.place);
                self.push(place, &self.inner(key), text);
                self.broken = true;
                placeholder
            }
        }
    }
}

fn parse<T: Value>(bytes: &[u8]) -> Result<Vec<T>, String> {
    if bytes.len() > FILE_BYTES_MAX {
        return Err(format!("the file is too large: expected at most {FILE_BYTES_MAX} bytes"));
    }
    let text = str::from_utf8(bytes).map_err(|error| {
        format!("byte {} is not UTF-8: expected a text file", error.valid_up_to())
    })?;
    let kind = Kind::<T>::of_value();
    let mut values = Vec::new();
    for (nth, line) in text.lines().enumerate() {
        if nth == LINES_MAX {
            return Err(format!("too many lines: expected at most {LINES_MAX}"));
        }
        let scalar = Scalar::plain(line.trim());
        let value = kind
            .read(&scalar)
            .map_err(|wrong| format!("line {}: {}", nth + 1, kind.describe(wrong, &scalar)))?;
        values.push(value);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::{ValueFiles, read_file_bytes};
    use crate::{Section, read, read_with_files};
    use curtail_units::Duration;
    use std::io;
    use std::path::Path;

    #[derive(Debug)]
    struct OneFile(&'static str);

    impl ValueFiles for OneFile {
        fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
            match path.to_str() {
                Some("times.txt") => read_file_bytes(self.0.as_bytes()),
                _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such file")),
            }
        }
    }

    fn times(s: &mut Section<'_>) -> Option<Vec<Duration>> {
        s.section("inner", "A section.", |s| s.file_values("file", "A file."))
    }

    const TEXT: &str = "inner:\n  file: times.txt\n";

    #[test]
    fn each_line_is_a_value() {
        let read = |content| read_with_files("c.yaml", TEXT, &[], &OneFile(content), times);
        let expected = vec![Duration::from_ms(10), Duration::from_us(1_500)];
        assert_eq!(read("10ms\n 1.5ms\r\n").expect("no errors"), Some(expected));
        assert_eq!(read("").expect("no errors"), Some(Vec::new()));
        let absent = read_with_files("c.yaml", "{}", &[], &OneFile(""), times);
        assert_eq!(absent.expect("no errors"), None);
    }

    #[test]
    fn what_is_no_file_of_values_is_named_with_its_line() {
        let errors = |text: &str, content| {
            let read = read_with_files("c.yaml", text, &[], &OneFile(content), times);
            read.expect_err("there are errors").to_string()
        };
        for (content, problem) in [
            ("10ms\n12\n", "line 2: 12 has no unit (ns, us, ms, s, m or h): expected a duration"),
            ("10ms\n\n", "line 2: "),
            ("-1ms\n", "line 1: "),
        ] {
            let text = errors(TEXT, content);
            let start = format!("c.yaml:2:9: inner.file: times.txt: {problem}");
            assert!(text.starts_with(&start), "{text}");
        }
        let text = errors("inner: {file: other.txt}", "");
        assert_eq!(text, "c.yaml:1:15: inner.file: other.txt: no such file");
        let text = read("c.yaml", TEXT, times).expect_err("no files").to_string();
        assert!(text.contains("files of values cannot be read here"), "{text}");
    }
}

//! Small files: tokens, certificates and keys.
//!
//! **Limits**: a file has at most [`SMALL_FILE_BYTES_MAX`], so that a wrong path does not fill the memory.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Maximum size of a small file: thousands of tokens, and all authorities of a system.
pub const SMALL_FILE_BYTES_MAX: u64 = 1 << 20;

/// Reads a small file.
///
/// # Errors
/// When the file cannot be read, or is larger than [`SMALL_FILE_BYTES_MAX`].
pub fn read_small_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(SMALL_FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > SMALL_FILE_BYTES_MAX {
        let mib = SMALL_FILE_BYTES_MAX >> 20;
        let what = format!("expected a file of at most {mib} MiB, found a larger one");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// Reads a small file of text.
///
/// # Errors
/// As [`read_small_file`], and when the file is not UTF-8.
pub fn read_small_text(path: &Path) -> io::Result<String> {
    let invalid = |_| io::Error::new(io::ErrorKind::InvalidData, "expected a text in UTF-8");
    String::from_utf8(read_small_file(path)?).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::{SMALL_FILE_BYTES_MAX, read_small_file, read_small_text};
    use crate::access::read_token;
    use crate::tls::{Trust, certified_key};
    use std::fs;

    #[test]
    fn a_file_that_is_too_large_is_rejected_by_all_readers() {
        let name = format!("curtail-http-small-file-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut bytes = vec![b'a'; usize::try_from(SMALL_FILE_BYTES_MAX).expect("small")];
        fs::write(&path, &bytes).expect("the folder is there");
        assert_eq!(read_small_file(&path).expect("it is small enough").len(), bytes.len());
        bytes.push(b'a');
        fs::write(&path, &bytes).expect("the folder is there");
        let errors = [
            read_small_text(&path).expect_err("it is too large").to_string(),
            read_token(&path).expect_err("it is too large").to_string(),
            Trust::load(Some(&path), true).expect_err("it is too large").to_string(),
            certified_key(&path, &path).expect_err("it is too large").to_string(),
        ];
        fs::write(&path, [0xFF]).expect("the folder is there");
        let no_text = read_small_text(&path).expect_err("it is no text").to_string();
        fs::remove_file(&path).expect("it is ours");
        for error in errors {
            assert!(
                error.ends_with("expected a file of at most 1 MiB, found a larger one"),
                "{error}"
            );
        }
        assert_eq!(no_text, "expected a text in UTF-8");
    }
}

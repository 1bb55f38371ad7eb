//! The tokens that senders present.

use crate::StartError;
use std::path::Path;
use std::{fs, io};

/// Reads tokens, one per line, without empty lines and comments. There must be at least one; otherwise everybody could
/// send.
pub(crate) fn read(file: &Path) -> Result<Vec<String>, StartError> {
    let tokens = fs::read_to_string(file).and_then(|text| parse(&text));
    tokens.map_err(|source| StartError::File { path: file.to_owned(), source })
}

fn parse(text: &str) -> io::Result<Vec<String>> {
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let mut tokens = Vec::new();
    for (line, token) in (1..).zip(text.trim_start_matches('\u{feff}').lines().map(str::trim)) {
        if token.is_empty() || token.starts_with('#') {
            continue;
        }
        // A header value has no other characters, so no sender could present the token. It is secret, so it is not
        // printed.
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(invalid(format!(
                "line {line}: expected a token of visible ASCII characters without spaces; \
                 a comment is a line of its own that begins with #"
            )));
        }
        tokens.push(token.to_owned());
    }
    if tokens.is_empty() {
        return Err(invalid(
            "expected at least one token, but found only comments and empty lines".to_owned(),
        ));
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn comments_and_empty_lines_are_ignored() {
        let text = "\u{feff}# senders of the shop\r\n\r\nsecret\r\n  # c\n other# \n#last";
        assert_eq!(parse(text).expect("two tokens"), ["secret", "other#"]);
        for text in ["", "\n  \n", "# c\n", "#\n\n#"] {
            let error = parse(text).expect_err("no token");
            assert!(error.to_string().contains("only comments and empty lines"), "{error}");
        }
        for text in ["a\nsecret # of the shop", "a\ngröße", "a\nse\u{7}cret"] {
            let error = parse(text).expect_err("no such token").to_string();
            assert!(error.starts_with("line 2: expected a token"), "{error}");
            assert!(!error.contains("cret"), "a secret is repeated: {error}");
        }
    }
}

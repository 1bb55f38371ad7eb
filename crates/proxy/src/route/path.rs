//! The ways in which servers may read a path, for routes whose prefixes are boundaries.
//!
//! RFC 3986 has one reading of a path (sections 5.2.4 and 6.2.2). Servers differ in seven ways: some keep dot segments,
//! decode `%2F`, read `\` as `/`, cut parameters (`;…`) off segments before or after they decode `%3B`, end a path at
//! `%00`, or merge slashes. The proxy forwards a path unchanged, so the path must match the same route in every
//! combination of these ways.
//! **Limits**: 80 readings; a path has only the readings that its bytes make possible.

use std::borrow::Cow;

/// The server decodes all percent-encoded bytes, including `%2F`.
const DECODES: u8 = 1;
/// The server reads `\` as `/`.
const TAKES_BACKSLASHES: u8 = 2;
/// The server cuts parameters off segments.
const CUTS_PARAMETERS: u8 = 4;
/// The server cuts parameters off the segments of the decoded path.
const CUTS_DECODED_PARAMETERS: u8 = 8;
/// The server ends the decoded path at its first NUL, as a string of C.
const ENDS_AT_NUL: u8 = 16;

const ALL_WAYS: u8 =
    DECODES | TAKES_BACKSLASHES | CUTS_PARAMETERS | CUTS_DECODED_PARAMETERS | ENDS_AT_NUL;

/// A path as one kind of server reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PathReading<'a> {
    pub(super) path: Cow<'a, [u8]>,
    /// Whether all bytes are decoded; otherwise the reserved ones are percent-encoded.
    pub(super) is_decoded: bool,
}

pub(super) fn readings(path: &str) -> impl Iterator<Item = PathReading<'static>> {
    let bytes = path.as_bytes();
    let has = |wanted: u8| bytes.contains(&wanted);
    let mut possible = if has(b'%') { DECODES } else { 0 };
    let has_encoded = |wanted: &[u8]| bytes.windows(3).any(|it| it.eq_ignore_ascii_case(wanted));
    let has_backslash = has(b'\\') || has_encoded(b"%5c");
    possible |= if has_backslash { TAKES_BACKSLASHES } else { 0 };
    possible |= if has(b';') { CUTS_PARAMETERS } else { 0 };
    possible |= if has(b';') || has_encoded(b"%3b") { CUTS_DECODED_PARAMETERS } else { 0 };
    possible |= if has_encoded(b"%00") { ENDS_AT_NUL } else { 0 };
    let is_possible = move |ways: &u8| {
        let of_decoded = ways & (CUTS_DECODED_PARAMETERS | ENDS_AT_NUL);
        ways & !possible == 0 && (of_decoded == 0 || ways & DECODES != 0)
    };
    let ways = (0..=ALL_WAYS).filter(is_possible);
    ways.flat_map(move |ways| {
        let is_decoded = ways & DECODES != 0;
        let split = segments_as_read(bytes, ways);
        let merged = contains_pair(&split, b'/').then(|| merge_slashes(&split));
        let unresolved = [Some(split), merged].into_iter().flatten();
        let resolved = |path: Vec<u8>| {
            let resolved = contains_pair(&path, b'.').then(|| without_dot_segments(&path));
            [Some(path), resolved].into_iter().flatten()
        };
        unresolved
            .flat_map(resolved)
            .map(move |path| PathReading { path: Cow::Owned(path), is_decoded })
    })
}

/// A path with the separators, parameters and encoding that a server sees; slashes and dot segments are unchanged.
fn segments_as_read(path: &[u8], ways: u8) -> Vec<u8> {
    let takes_backslashes = ways & TAKES_BACKSLASHES != 0;
    let separated = |path: &[u8], cuts_parameters: bool| {
        let is_separator = |byte: &u8| *byte == b'/' || (takes_backslashes && *byte == b'\\');
        let name = |segment| match memchr::memchr(b';', segment) {
            Some(parameters) if cuts_parameters => &segment[..parameters],
            _ => segment,
        };
        path.split(is_separator).map(name).collect::<Vec<_>>().join(&b'/')
    };
    let encoded = separated(path, ways & CUTS_PARAMETERS != 0);
    if ways & DECODES == 0 {
        return with_normal_encoding(&encoded);
    }
    let mut decoded = decode(&encoded);
    if ways & ENDS_AT_NUL != 0
        && let Some(end) = memchr::memchr(0, &decoded)
    {
        decoded.truncate(end);
    }
    separated(&decoded, ways & CUTS_DECODED_PARAMETERS != 0)
}

/// Whether the path has a slash followed by this byte.
fn contains_pair(path: &[u8], next: u8) -> bool {
    path.windows(2).any(|pair| pair == [b'/', next])
}

fn merge_slashes(path: &[u8]) -> Vec<u8> {
    let mut merged = path.to_vec();
    merged.dedup_by(|next, before| *next == b'/' && *before == b'/');
    merged
}

/// The prefix of a route, in the encoded and in the decoded form of readings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) encoded: Vec<u8>,
    decoded: Vec<u8>,
}

impl Prefix {
    pub(super) fn new(prefix: &str) -> Self {
        let bytes = prefix.as_bytes();
        Self { encoded: with_normal_encoding(bytes), decoded: decode(bytes) }
    }

    /// Whether the path is the prefix or below it.
    pub(super) fn contains(&self, reading: &PathReading<'_>) -> bool {
        is_under(&reading.path, if reading.is_decoded { &self.decoded } else { &self.encoded })
    }
}

/// Whether every server reads the path in the same way, as is the case for nearly every path.
pub(super) fn is_plain(path: &str) -> bool {
    let bytes = path.as_bytes();
    // No early return: the compiler then vectorizes the loop, 16 bytes at a time.
    let is_odd =
        |odd: bool, byte: &u8| odd | (matches!(byte, b'%' | b'\\' | b';') | !byte.is_ascii());
    let is_odd_pair =
        |odd: bool, (one, next): (&u8, &u8)| odd | ((*one == b'/') & matches!(next, b'/' | b'.'));
    !bytes.iter().fold(false, is_odd)
        && !bytes.iter().zip(bytes.iter().skip(1)).fold(false, is_odd_pair)
}

/// Whether a route can have this prefix: every server reads the same segments in it.
pub(crate) fn is_prefix(prefix: &str) -> bool {
    let parsed = Prefix::new(prefix);
    let is_same = |read: PathReading<'_>| {
        &*read.path == if read.is_decoded { &*parsed.decoded } else { &*parsed.encoded }
    };
    !prefix.contains(['?', '#', ';', '\\']) && readings(prefix).all(is_same)
}

/// Whether every path is below both prefixes or below neither.
pub(crate) fn are_same_prefix(one: &str, other: &str) -> bool {
    Prefix::new(one) == Prefix::new(other)
}

/// Whether `path` is `prefix` or below it.
fn is_under(path: &[u8], prefix: &[u8]) -> bool {
    let Some(rest) = path.strip_prefix(prefix) else { return false };
    rest.is_empty() || rest[0] == b'/' || prefix.ends_with(b"/")
}

/// The path with the minimal percent-encoding (RFC 3986, section 6.2.2).
fn with_normal_encoding(path: &[u8]) -> Vec<u8> {
    let mut normal = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((byte, encoded, after)) = next_byte(rest) {
        let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if (encoded && !is_unreserved) || !byte.is_ascii() {
            normal.extend_from_slice(&[b'%', hex_digit(byte >> 4), hex_digit(byte & 15)]);
        } else {
            normal.push(byte);
        }
        rest = after;
    }
    normal
}

fn decode(path: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((byte, _, after)) = next_byte(rest) {
        decoded.push(byte);
        rest = after;
    }
    decoded
}

/// The first byte, whether it was percent-encoded, and the rest.
fn next_byte(path: &[u8]) -> Option<(u8, bool, &[u8])> {
    let value =
        |digit: u8| char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    if let [b'%', high, low, rest @ ..] = path
        && let (Some(high), Some(low)) = (value(*high), value(*low))
    {
        return Some(((high << 4) | low, true, rest));
    }
    path.split_first().map(|(byte, rest)| (*byte, false, rest))
}

const fn hex_digit(value: u8) -> u8 {
    b"0123456789ABCDEF"[(value & 15) as usize]
}

/// Resolves dot segments (RFC 3986, section 5.2.4).
fn without_dot_segments(path: &[u8]) -> Vec<u8> {
    let mut resolved: Vec<u8> = Vec::with_capacity(path.len());
    let mut segments = path.split(|byte| *byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"." => {}
            b".." => {
                let parent = resolved.iter().rposition(|byte| *byte == b'/').unwrap_or_default();
                resolved.truncate(parent);
            }
            name => {
                resolved.push(b'/');
                resolved.extend_from_slice(name);
                continue;
            }
        }
        if is_last {
            resolved.push(b'/');
        }
    }
    resolved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(path: &str) -> Vec<String> {
        let text = |read: PathReading<'_>| String::from_utf8(read.path.into_owned()).expect("text");
        let mut texts: Vec<_> = readings(path).map(text).collect();
        texts.sort_unstable();
        texts.dedup();
        texts
    }

    #[test]
    fn a_path_has_a_reading_for_each_kind_of_server() {
        for (path, mut want) in [
            ("/", vec!["/"]),
            ("/a/b/", vec!["/a/b/"]),
            // RFC 3986, sections 5.2.4 and 5.4.
            ("/a/b/c/./../../g", vec!["/a/b/c/./../../g", "/a/g"]),
            ("/b/c/..", vec!["/b/c/..", "/b/"]),
            ("/b/c/.", vec!["/b/c/.", "/b/c/"]),
            ("/../../g", vec!["/../../g", "/g"]),
            ("/..", vec!["/..", "/"]),
            ("/g.", vec!["/g."]),
            ("/...", vec!["/..."]),
            ("/%7ea%2D%41", vec!["/~a-A"]),
            ("/%2e%2E/a", vec!["/../a", "/a"]),
            ("/a%2fb", vec!["/a%2Fb", "/a/b"]),
            ("/a%2f..%2fb", vec!["/a%2F..%2Fb", "/a/../b", "/b"]),
            ("/a//b", vec!["/a//b", "/a/b"]),
            ("//", vec!["//", "/"]),
            ("/a//../b", vec!["/a//../b", "/a/../b", "/a/b", "/b"]),
            ("/a\\b", vec!["/a\\b", "/a/b"]),
            ("/a%5cb", vec!["/a%5Cb", "/a\\b", "/a/b"]),
            ("/a;x=1/b;", vec!["/a;x=1/b;", "/a/b"]),
            ("/a/..;/b", vec!["/a/..;/b", "/a/../b", "/b"]),
            ("/a%3bb", vec!["/a%3Bb", "/a;b", "/a"]),
            ("/a%3bb/c", vec!["/a%3Bb/c", "/a;b/c", "/a/c"]),
            ("/a%2f..%3b/b", vec!["/a%2F..%3B/b", "/a/..;/b", "/a/../b", "/b"]),
            // A server may cut parameters before it decodes the path, or after that.
            ("/a;%2fb", vec!["/a;%2Fb", "/a", "/a;/b", "/a/b"]),
            ("/a%00b/c", vec!["/a%00b/c", "/a\0b/c", "/a"]),
            ("/\u{e9}", vec!["/%C3%A9"]),
            ("/%c3%a9", vec!["/%C3%A9", "/\u{e9}"]),
            ("/%252e", vec!["/%252e", "/%2e"]),
            ("/%", vec!["/%"]),
            ("/%zz%4", vec!["/%zz%4"]),
            // A server may decode each of the two disguises without the other.
            ("/a%2f;/b", vec!["/a%2F;/b", "/a%2F/b", "/a/;/b", "/a//b", "/a/b"]),
        ] {
            want.sort_unstable();
            assert_eq!(texts(path), want, "{path}");
        }
        assert_eq!(readings("/.;/%5c//x%00").count(), 80, "the maximum");
    }

    #[test]
    fn a_plain_path_is_read_in_one_way() {
        for path in ["/", "/a", "/a/b.c/", "/a.", "/a..b", "/~a-b_c!$&'()*+,=:@", "/a b<>\"`"] {
            assert!(is_plain(path), "{path}");
            assert_eq!(texts(path), [path]);
        }
        for path in ["//", "/.", "/a/./b", "/.well-known", "/a%20", "/a\\b", "/a;b", "/\u{e9}"] {
            assert!(!is_plain(path), "{path}");
        }
    }

    #[test]
    fn a_prefix_has_one_reading_besides_its_encoding() {
        for (prefix, is) in [
            ("/", true),
            ("/a/", true),
            ("/a%2fb", true),
            ("/caf%C3%A9", true),
            ("/a;b", false),
            ("/a//b", false),
            ("/a/..", false),
            ("/%2e", false),
            ("/a%2f%2fb", false),
            ("/a%2f..", false),
            ("/a%5cb", false),
            ("/a%3bb", false),
            ("/a%00", false),
        ] {
            assert_eq!(is_prefix(prefix), is, "{prefix}");
        }
    }

    #[test]
    fn a_prefix_ends_where_a_segment_does() {
        for (path, prefix, is) in [
            ("/", "/", true),
            ("/a", "/", true),
            ("/a", "/a", true),
            ("/a/", "/a", true),
            ("/a/b", "/a", true),
            ("/ab", "/a", false),
            ("/a", "/a/", false),
            ("/a/", "/a/", true),
            ("/a/b", "/a/", true),
            ("/A", "/a", false),
        ] {
            assert_eq!(is_under(path.as_bytes(), prefix.as_bytes()), is, "{path} under {prefix}");
        }
    }
}

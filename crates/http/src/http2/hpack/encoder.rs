//! Encodes fields as entries of the static table and as literals.

use super::static_table::{AUTHORITY_INDEX, METHOD_INDEX, PATH_INDEX, STATUS_INDEX, index_of};
use http::{Method, StatusCode};

/// The first bits of an entry of a table.
const INDEXED: u8 = 0b1000_0000;

/// The first bits of a literal that no later proxy may put into a table either (RFC 7541, section 7.1.3).
const NEVER_INDEXED: u8 = 0b0001_0000;

/// The first bits of other literals.
const NOT_INDEXED: u8 = 0;

/// Encodes a field, whose name is in lower case.
#[inline]
pub(in super::super) fn encode_field(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.reserve(name.len() + value.len() + 12);
    let is_secret =
        matches!(name, b"authorization" | b"cookie" | b"set-cookie" | b"proxy-authorization");
    let kind = if is_secret { NEVER_INDEXED } else { NOT_INDEXED };
    if let Some(index) = index_of(name) {
        put_integer(block, kind, 4, index.into());
    } else {
        block.push(kind);
        put_text(block, name);
    }
    put_text(block, value);
}

pub(in super::super) fn encode_authority(block: &mut Vec<u8>, authority: &[u8]) {
    encode_value(block, AUTHORITY_INDEX, authority);
}

pub(in super::super) fn encode_path(block: &mut Vec<u8>, path: &[u8]) {
    if path == b"/" {
        block.push(INDEXED | PATH_INDEX);
    } else {
        encode_value(block, PATH_INDEX, path);
    }
}

/// Encodes a value whose name is that of this entry of the static table.
fn encode_value(block: &mut Vec<u8>, name_index: u8, value: &[u8]) {
    put_integer(block, NOT_INDEXED, 4, name_index.into());
    put_text(block, value);
}

pub(in super::super) fn encode_method(block: &mut Vec<u8>, method: &Method) {
    match *method {
        Method::GET => block.push(INDEXED | METHOD_INDEX),
        Method::POST => block.push(INDEXED | (METHOD_INDEX + 1)),
        _ => encode_value(block, METHOD_INDEX, method.as_str().as_bytes()),
    }
}

pub(in super::super) fn encode_scheme(block: &mut Vec<u8>, is_https: bool) {
    block.push(INDEXED | if is_https { 7 } else { 6 });
}

pub(in super::super) fn encode_status(block: &mut Vec<u8>, status: StatusCode) {
    let indexed = [200, 204, 206, 304, 400, 404, 500];
    match (STATUS_INDEX..).zip(indexed).find(|(_, known)| status.as_u16() == *known) {
        Some((index, _)) => block.push(INDEXED | index),
        None => encode_value(block, STATUS_INDEX, status.as_str().as_bytes()),
    }
}

/// Encodes a table of size zero. A decoder whose table became smaller may expect a block to begin with its new size
/// (RFC 7541, section 4.2); this encoder uses no table, so zero is always right.
pub(in super::super) fn encode_table_size_zero(block: &mut Vec<u8>) {
    block.push(0b0010_0000);
}

fn put_text(block: &mut Vec<u8>, text: &[u8]) {
    put_integer(block, 0, 7, text.len());
    block.extend_from_slice(text);
}

/// Writes an integer whose first byte has `prefix` bits of it (RFC 7541, section 5.1).
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "each byte is masked")]
fn put_integer(block: &mut Vec<u8>, kind: u8, prefix: u32, integer: usize) {
    let mask = (1_usize << prefix) - 1;
    if integer < mask {
        block.push(kind | integer as u8);
        return;
    }
    block.push(kind | mask as u8);
    let mut rest = integer - mask;
    while rest >= 0x80 {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::super::Decoder;
    use super::super::static_table::ENTRIES;
    use super::*;

    #[test]
    fn fields_are_decoded_as_they_were_encoded() {
        let long = "v".repeat(70_000);
        let mut fields =
            vec![("x-any", "value"), ("accept", ""), ("x-long", &*long), ("cookie", "a=b")];
        fields.extend(ENTRIES.iter().filter(|(name, _)| !name.starts_with(':')));
        for (name, value) in fields {
            let mut block = Vec::new();
            encode_field(&mut block, name.as_bytes(), value.as_bytes());
            let mut decoded = Vec::new();
            let both = |name: &[u8], value: &[u8]| {
                decoded.push((name.to_vec(), value.to_vec()));
                Ok(())
            };
            Decoder::default().decode(&block, both).expect("valid");
            assert_eq!(decoded, [(name.into(), value.into())], "{name}");
            let is_static = ENTRIES.iter().any(|(entry, _)| *entry == name);
            assert_eq!(block[0] & 0x0f != 0, is_static, "{name} takes the index of its name");
        }
    }

    #[test]
    fn pseudo_headers_are_decoded_as_they_were_encoded() {
        let mut block = Vec::new();
        encode_table_size_zero(&mut block);
        let mut want = Vec::new();
        for method in [Method::GET, Method::POST, Method::PATCH] {
            encode_method(&mut block, &method);
            want.push(format!(":method {method}"));
        }
        for path in ["/", "/index.html", "/a?b=c"] {
            encode_path(&mut block, path.as_bytes());
            want.push(format!(":path {path}"));
        }
        for (is_https, scheme) in [(false, "http"), (true, "https")] {
            encode_scheme(&mut block, is_https);
            want.push(format!(":scheme {scheme}"));
        }
        for status in [100, 200, 201, 204, 206, 304, 400, 404, 500, 503] {
            encode_status(&mut block, StatusCode::from_u16(status).expect("a status"));
            want.push(format!(":status {status}"));
        }
        let mut decoded = Vec::new();
        let text = |name: &[u8], value: &[u8]| {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            decoded.push(format!("{} {}", text(name), text(value)));
            Ok(())
        };
        Decoder::default().decode(&block, text).expect("valid");
        assert_eq!(decoded, want);
    }
}

//! Attributes of spans, events and resources: OTLP's `KeyValue`. Their names are ASCII.

use super::protobuf::{length_field, length_tag, varint, varint_len};

/// A text longer than this is cut, in bytes: a path may be as long as all header fields together.
pub(super) const TEXT_MAX: usize = 2_048;

/// Fields of `KeyValue` and `AnyValue`.
const KEY: u32 = 1;
const VALUE: u32 = 2;
const ANY_TEXT: u32 = 1;
const ANY_BOOL_TAG: u8 = 2 << 3;
const ANY_INT_TAG: u8 = 3 << 3;

/// Where attributes are appended to.
#[derive(Debug)]
pub(super) struct Attributes<'a> {
    out: &'a mut Vec<u8>,
    /// The field that holds attributes in the message that is being written.
    field: u32,
}

impl<'a> Attributes<'a> {
    pub(super) const fn new(out: &'a mut Vec<u8>, field: u32) -> Self {
        Self { out, field }
    }

    pub(super) fn text<const N: usize>(&mut self, key: &[u8; N], text: &str) {
        let text = &text[..text.floor_char_boundary(TEXT_MAX)];
        self.begin(key, 1 + varint_len(text.len()) + text.len());
        length_field(self.out, ANY_TEXT, text.len());
        self.out.extend_from_slice(text.as_bytes());
    }

    /// An integer; one that does not fit 63 bits becomes the largest that does.
    pub(super) fn int<const N: usize>(&mut self, key: &[u8; N], value: u64) {
        let value = value.min(i64::MAX as u64);
        let len = varint_len(usize::try_from(value).unwrap_or(usize::MAX));
        self.begin(key, 1 + len);
        self.out.push(ANY_INT_TAG);
        varint(self.out, value);
    }

    pub(super) fn flag<const N: usize>(&mut self, key: &[u8; N], value: bool) {
        self.begin(key, 2);
        self.out.extend_from_slice(&[ANY_BOOL_TAG, u8::from(value)]);
    }

    /// Everything up to the value, of which `len` bytes follow. The length of a name is part of its type: a
    /// copy of a known length is a few moves, and there are some twenty for each request.
    fn begin<const N: usize>(&mut self, key: &[u8; N], len: usize) {
        // Nearly all attributes are short, and their lengths one byte each.
        let short = |len: usize| u8::try_from(len).ok().filter(|len| *len < 0x80);
        let total = (2 + key.len()).saturating_add(2 + len);
        if let (Some(total), Some(key_len), Some(len)) =
            (short(total), short(key.len()), short(len))
        {
            self.out.extend_from_slice(&[length_tag(self.field), total, length_tag(KEY), key_len]);
            self.out.extend_from_slice(key);
            self.out.extend_from_slice(&[length_tag(VALUE), len]);
            return;
        }
        let key_len = 1 + varint_len(key.len()) + key.len();
        length_field(self.out, self.field, key_len + 1 + varint_len(len) + len);
        length_field(self.out, KEY, key.len());
        self.out.extend_from_slice(key);
        length_field(self.out, VALUE, len);
    }
}

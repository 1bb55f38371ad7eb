//! Attributes of spans, events and resources: OTLP's `KeyValue`. Their names are ASCII.
//!
//! A request has some twenty attributes, so they must be cheap: the length of a name is part of its type, and a short
//! attribute is built on the stack and appended at once.

use curtail_protobuf::{LEN, VARINT, short_tag};
use curtail_protobuf::{bytes_field, length_field, padded_varint, varint_len};

/// A text longer than this is cut, in bytes: a path may be as long as all header fields together.
pub(super) const TEXT_MAX: usize = 2_048;

/// The field of `Span` that holds attributes.
pub(super) const SPAN_ATTRIBUTES: u32 = 9;

/// Fields of `KeyValue` and `AnyValue`.
const KEY: u32 = 1;
const VALUE: u32 = 2;
const ANY_TEXT: u32 = 1;
/// Their tags.
const KEY_TAG: u8 = short_tag(KEY, LEN);
const VALUE_TAG: u8 = short_tag(VALUE, LEN);
const ANY_TEXT_TAG: u8 = short_tag(ANY_TEXT, LEN);
const ANY_BOOL_TAG: u8 = short_tag(2, VARINT);
const ANY_INT_TAG: u8 = short_tag(3, VARINT);

/// Maximum size of name and text together for which each length in an attribute takes one byte. The longest is the
/// length of the whole attribute, which is six bytes more.
const SHORT_MAX: usize = 0x7f - 6;

/// Maximum size of a short attribute without its text.
const HEAD_MAX: usize = 64;

/// Appends attributes to a span.
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

    /// Appends attributes that are already encoded, for the same field.
    pub(super) fn prepared(&mut self, attributes: &[u8]) {
        self.out.extend_from_slice(attributes);
    }

    pub(super) fn text<const N: usize>(&mut self, key: &[u8; N], text: &str) {
        if N + text.len() > SHORT_MAX {
            return self.long_text(key, text);
        }
        self.short(key, ANY_TEXT_TAG, [short_len(text.len())], text.len());
        self.out.extend_from_slice(text.as_bytes());
    }

    /// Writes an integer; one above `i64::MAX` becomes `i64::MAX`.
    pub(super) fn int<const N: usize>(&mut self, key: &[u8; N], value: u64) {
        // Of three lengths only: the bytes of each are computed without a loop.
        match value {
            0..0x4000 => self.short(key, ANY_INT_TAG, padded_varint::<2>(value), 0),
            0x4000..0x8_0000_0000 => self.short(key, ANY_INT_TAG, padded_varint::<5>(value), 0),
            _ => {
                let value = value.min(i64::MAX as u64);
                self.short(key, ANY_INT_TAG, padded_varint::<9>(value), 0);
            }
        }
    }

    pub(super) fn flag<const N: usize>(&mut self, key: &[u8; N], value: bool) {
        self.short(key, ANY_BOOL_TAG, [u8::from(value)], 0);
    }

    /// Writes an attribute whose lengths take one byte each, without the text at its end: the caller appends `text_len`
    /// bytes. Its `AnyValue` begins with `any_tag` and `any`.
    #[inline]
    fn short<const N: usize, const M: usize>(
        &mut self,
        key: &[u8; N],
        any_tag: u8,
        any: [u8; M],
        text_len: usize,
    ) {
        const { assert!(N + M + 7 <= HEAD_MAX, "this name of an attribute is too long") };
        let any_len = 1 + M + text_len;
        let len = short_len(2 + N + 2 + any_len);
        let mut head = [0; HEAD_MAX];
        head[..4].copy_from_slice(&[short_tag(self.field, LEN), len, KEY_TAG, short_len(N)]);
        head[4..][..N].copy_from_slice(key);
        head[4 + N..][..3].copy_from_slice(&[VALUE_TAG, short_len(any_len), any_tag]);
        head[4 + N + 3..][..M].copy_from_slice(&any);
        self.out.extend_from_slice(&head[..4 + N + 3 + M]);
    }

    /// Writes a text of any length, cut to [`TEXT_MAX`].
    #[cold]
    fn long_text(&mut self, key: &[u8], text: &str) {
        let text = &text[..text.floor_char_boundary(TEXT_MAX)];
        let field_len = |len: usize| 1 + varint_len(len) + len;
        let any_len = field_len(text.len());
        length_field(self.out, self.field, field_len(key.len()) + field_len(any_len));
        bytes_field(self.out, KEY, key);
        length_field(self.out, VALUE, any_len);
        bytes_field(self.out, ANY_TEXT, text.as_bytes());
    }
}

/// A length that takes one byte.
fn short_len(len: usize) -> u8 {
    debug_assert!(len < 0x80, "{len} bytes");
    len.to_le_bytes()[0]
}

//! The fields of a head, stored as lines of HTTP/1.1. Lines that follow each other are sent with one copy.

use super::Known;
use http::{HeaderMap, HeaderName, HeaderValue};

/// The capacity that is reserved for fields that a proxy adds.
const ADDED_BYTES: usize = 96;
const ADDED_LINES: usize = 4;

/// The bytes between name and value, and after the value, of a line that is sent.
const SEPARATOR: &[u8] = b": ";
const END: &[u8] = b"\r\n";

/// The fields of a head, in order.
#[derive(Clone, Default)]
pub struct Fields {
    /// The lines, whose names are in lower case, among bytes of no meaning.
    text: Vec<u8>,
    lines: Vec<Line>,
    /// The bits ([`Known::bit`]) of the present fields.
    present: u32,
}

/// The position of a field in the text.
#[derive(Clone, Copy)]
struct Line {
    known: Known,
    name: Part,
    value: Part,
    /// Whether the line stands in the text as it is sent. A client may have added or omitted whitespace.
    is_whole: bool,
}

#[derive(Clone, Copy)]
struct Part {
    from: u32,
    len: u32,
}

impl Part {
    fn new(from: usize, len: usize) -> Self {
        let short = |number| u32::try_from(number).expect("a head is shorter than 4 GiB");
        Self { from: short(from), len: short(len) }
    }

    const fn end(self) -> usize {
        self.from as usize + self.len as usize
    }

    fn of(self, text: &[u8]) -> &[u8] {
        &text[self.from as usize..][..self.len as usize]
    }
}

/// A field occurs several times where one is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatedField;

impl Fields {
    /// Creates the fields that a parser has found in `head`.
    pub(crate) fn parsed(head: &[u8], parsed: &[httparse::Header<'_>]) -> Self {
        let mut text = Vec::with_capacity(head.len() + ADDED_BYTES);
        text.extend_from_slice(head);
        let mut lines = Vec::with_capacity(parsed.len() + ADDED_LINES);
        let mut present = 0;
        let part = |part: &[u8]| {
            // An empty value may stand anywhere.
            let from = (part.as_ptr().addr()).wrapping_sub(head.as_ptr().addr());
            Part::new(if part.is_empty() { 0 } else { from }, part.len())
        };
        for field in parsed {
            let (name, value) = (part(field.name.as_bytes()), part(field.value));
            let small = &mut text[name.from as usize..][..name.len as usize];
            small.make_ascii_lowercase();
            let known = Known::of(small);
            present |= known.bit();
            let is_whole = is_whole(head, name, value);
            lines.push(Line { known, name, value, is_whole });
        }
        Self { text, lines, present }
    }

    /// Creates a head without fields, with room for `bytes` of lines.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        let text = Vec::with_capacity(bytes + ADDED_BYTES);
        Self { text, lines: Vec::with_capacity(16), present: 0 }
    }

    /// The memory of the lines in bytes.
    pub(crate) const fn memory(&self) -> usize {
        self.text.capacity() + self.lines.capacity() * size_of::<Line>()
    }

    /// The bits ([`Known::bit`]) of the present fields.
    pub(crate) const fn present(&self) -> u32 {
        self.present
    }

    /// Creates the fields of a map, without whitespace around values.
    fn from_map(map: &HeaderMap) -> Self {
        let line_bytes = |(name, value): (&HeaderName, &HeaderValue)| {
            name.as_str().len() + SEPARATOR.len() + value.len() + END.len()
        };
        let bytes: usize = map.iter().map(line_bytes).sum();
        let mut fields = Self {
            text: Vec::with_capacity(bytes + ADDED_BYTES),
            lines: Vec::with_capacity(map.len() + ADDED_LINES),
            present: 0,
        };
        for (name, value) in map {
            let name = name.as_str().as_bytes();
            fields.push_line(Known::of(name), name, value.as_bytes().trim_ascii());
        }
        fields
    }

    /// Whether there is a field of this name.
    #[must_use]
    #[inline]
    pub const fn has(&self, known: Known) -> bool {
        self.present & known.bit() != 0
    }

    /// Returns the value of the first field of this name.
    #[must_use]
    #[inline]
    pub fn get(&self, known: Known) -> Option<&[u8]> {
        self.all(known).next()
    }

    /// Returns the value of the first field of this name, if it is text.
    #[must_use]
    #[inline]
    pub fn get_text(&self, known: Known) -> Option<&str> {
        std::str::from_utf8(self.get(known)?).ok()
    }

    /// Returns the values of all fields of this name, in order.
    #[inline]
    pub fn all(&self, known: Known) -> impl Iterator<Item = &[u8]> {
        let lines = if self.has(known) { &*self.lines } else { &[] };
        lines.iter().filter(move |line| line.known == known).map(|line| line.value.of(&self.text))
    }

    /// Whether a list of words has this word; ignores case.
    #[must_use]
    #[inline]
    pub fn lists(&self, known: Known, word: &str) -> bool {
        let is_word = |listed: &[u8]| listed.trim_ascii().eq_ignore_ascii_case(word.as_bytes());
        let mut values = self.all(known);
        values.any(|value| value.split(|byte| *byte == b',').any(is_word))
    }

    /// Returns the words of a field that is a list.
    #[inline]
    pub fn words(&self, known: Known) -> impl Iterator<Item = &[u8]> {
        self.all(known).flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
    }

    /// Adds a field.
    #[inline]
    pub fn push(&mut self, known: Known, value: &[u8]) {
        self.push_line(known, known.name().as_bytes(), value);
    }

    /// Adds a field of any name, which is in lower case.
    pub fn append(&mut self, name: &[u8], value: &[u8]) {
        self.push_line(Known::of(name), name, value);
    }

    fn push_line(&mut self, known: Known, name: &[u8], value: &[u8]) {
        let name_from = self.text.len();
        let value_from = name_from + name.len() + SEPARATOR.len();
        write_field(&mut self.text, name, value);
        let name = Part::new(name_from, name.len());
        let value = Part::new(value_from, value.len());
        self.lines.push(Line { known, name, value, is_whole: true });
        self.present |= known.bit();
    }

    /// Replaces all fields of this name by one field.
    #[inline]
    pub fn set(&mut self, known: Known, value: &[u8]) {
        self.remove(known.bit());
        self.push(known, value);
    }

    /// Joins all fields of this name into one field, in order.
    pub fn join(&mut self, known: Known, separator: &[u8]) {
        if self.all(known).nth(1).is_some() {
            let all = self.all(known).collect::<Vec<_>>().join(separator);
            self.set(known, &all);
        }
    }

    /// Returns the announced length of the body. Equal lengths become one field (RFC 9110, section 8.6). Chunked
    /// framing takes precedence, and removes all lengths (RFC 9112, section 6.3).
    pub(crate) fn settle_length(&mut self, is_chunked: bool) -> Result<Option<u64>, &'static str> {
        if !self.has(Known::ContentLength) {
            return Ok(None);
        }
        // The usual case, on the path of every response.
        if !is_chunked && let Some(length) = self.only_length() {
            return Ok(Some(length));
        }
        let mut announced = None;
        let mut count = 0;
        for word in self.words(Known::ContentLength) {
            let length = number(word).ok_or("the content-length is not a number of bytes")?;
            if announced.is_some_and(|announced| announced != length) {
                return Err("there are two different content-lengths");
            }
            announced = Some(length);
            count += 1;
        }
        match announced {
            _ if is_chunked => self.remove(Known::ContentLength.bit()),
            Some(length) if count > 1 => {
                self.set(Known::ContentLength, itoa::Buffer::new().format(length).as_bytes());
            }
            _ => {}
        }
        Ok(announced)
    }

    /// Returns the announced length, if there is exactly one.
    fn only_length(&self) -> Option<u64> {
        let mut lengths = self.all(Known::ContentLength);
        let only = lengths.next()?;
        if lengths.next().is_some() { None } else { number(only) }
    }

    /// Removes all fields whose bits are set in `bits`.
    #[inline]
    pub fn remove(&mut self, bits: u32) {
        if self.present & bits != 0 {
            self.lines.retain(|line| line.known.bit() & bits == 0);
            self.present &= !bits;
        }
    }

    /// Removes all fields of this name; ignores case.
    pub fn remove_named(&mut self, name: &[u8]) {
        let Self { text, lines, present } = self;
        lines.retain(|line| !line.name.of(text).eq_ignore_ascii_case(name));
        *present = lines.iter().fold(0, |present, line| present | line.known.bit());
    }

    /// Returns the value of the only field of this name, which is in lower case.
    ///
    /// # Errors
    /// [`RepeatedField`] if there are several: servers differ in which one counts.
    pub fn sole(&self, name: &[u8]) -> Result<Option<&[u8]>, RepeatedField> {
        let mut values = self.iter().filter(|(_, field, _)| *field == name);
        let value = values.next().map(|(_, _, value)| value);
        if values.next().is_some() { Err(RepeatedField) } else { Ok(value) }
    }

    /// Returns all fields: the known name, the name in lower case, and the value.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (Known, &[u8], &[u8])> {
        let text = &*self.text;
        self.lines.iter().map(move |line| (line.known, line.name.of(text), line.value.of(text)))
    }

    /// Writes all fields except those whose bits are in `excluded`, as the lines of HTTP/1.1.
    pub(crate) fn write(&self, buffer: &mut Vec<u8>, excluded: u32) {
        // Lines that follow each other in the text.
        let (mut from, mut to) = (0, 0);
        for line in self.lines.iter().filter(|line| line.known.bit() & excluded == 0) {
            if line.is_whole && line.name.from as usize == to {
                to = line.value.end() + END.len();
                continue;
            }
            buffer.extend_from_slice(&self.text[from..to]);
            (from, to) = (line.name.from as usize, line.value.end() + END.len());
            if !line.is_whole {
                write_field(buffer, line.name.of(&self.text), line.value.of(&self.text));
                from = to;
            }
        }
        buffer.extend_from_slice(&self.text[from..to]);
    }

    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.lines.len()
    }
}

/// Appends a field as a line of HTTP/1.1.
pub(crate) fn write_field(buffer: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    buffer.reserve(name.len() + SEPARATOR.len() + value.len() + END.len());
    for part in [name, SEPARATOR, value, END] {
        buffer.extend_from_slice(part);
    }
}

/// Whether a field stands in `head` as it is sent, but for the case of its name.
fn is_whole(head: &[u8], name: Part, value: Part) -> bool {
    head.get(name.end()..value.from as usize) == Some(SEPARATOR)
        && head[value.end()..].starts_with(END)
}

/// Returns the number that a text is, without a sign.
pub(super) fn number(value: &[u8]) -> Option<u64> {
    let add = |number: u64, byte: &u8| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    };
    if value.is_empty() { None } else { value.iter().try_fold(0, add) }
}

/// Adds a field to a map. This succeeds, because the field was parsed or is our own.
pub(crate) fn add_to_map(map: &mut HeaderMap, name: &[u8], value: &[u8]) {
    if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
        map.append(name, value);
    }
}

impl From<&Fields> for HeaderMap {
    fn from(fields: &Fields) -> Self {
        let mut map = Self::with_capacity(fields.len());
        fields.iter().for_each(|(_, name, value)| add_to_map(&mut map, name, value));
        map
    }
}

impl From<&HeaderMap> for Fields {
    fn from(map: &HeaderMap) -> Self {
        Self::from_map(map)
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Fields {}

impl std::fmt::Debug for Fields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |bytes| String::from_utf8_lossy(bytes);
        f.debug_map()
            .entries(self.iter().map(|(_, name, value)| (text(name), text(value))))
            .finish()
    }
}

#[cfg(test)]
mod tests;

//! What a hostile peer sends: frames or any other bytes, once or many times.
//!
//! Header blocks are HPACK literals that are not remembered, except where a script writes HPACK itself.

use crate::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, fields, frame_bytes,
};

pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
pub(crate) const ENABLE_PUSH: u16 = 2;
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
pub(crate) const MAX_FRAME_SIZE: u16 = 5;

/// The largest flow-control window, and the largest increment.
pub(crate) const WINDOW_MAX: u32 = (1 << 31) - 1;

/// The frame size that every peer accepts.
pub(crate) const FRAME_BYTES: usize = 16 << 10;

/// The head of a request or response that ends its stream.
pub(crate) const WHOLE: u8 = END_HEADERS | END_STREAM;

/// Bytes to send, in order.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// Each with the number of times that it is sent.
    parts: Vec<(Vec<u8>, usize)>,
    /// The last stream of HEADERS or DATA, on which the peer misbehaves; 0: there is none.
    stream: u32,
}

impl Script {
    pub(crate) fn new(write: fn(&mut Self)) -> Self {
        let mut script = Self::default();
        write(&mut script);
        script
    }

    pub(crate) fn parts(&self) -> &[(Vec<u8>, usize)] {
        &self.parts
    }

    pub(crate) const fn stream(&self) -> u32 {
        self.stream
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        match self.parts.last_mut() {
            Some((last, 1)) => last.extend_from_slice(bytes),
            _ => self.parts.push((bytes.to_vec(), 1)),
        }
    }

    /// Sends the same bytes again and again.
    pub(crate) fn repeat(&mut self, times: usize, write: fn(&mut Self)) {
        let unit = Self::new(write);
        self.misbehaves_on(unit.stream);
        let unit: Vec<u8> = unit.parts.into_iter().flat_map(|(bytes, n)| bytes.repeat(n)).collect();
        // Few large writes, so that the peer is faster than the proxy.
        let together = (4 * FRAME_BYTES).div_ceil(unit.len()).min(times);
        self.parts.push((unit.repeat(together), times.div_ceil(together)));
    }

    const fn misbehaves_on(&mut self, stream: u32) {
        if stream != 0 {
            self.stream = stream;
        }
    }

    pub(crate) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        if matches!(kind, HEADERS | DATA) {
            self.misbehaves_on(stream & WINDOW_MAX);
        }
        self.bytes(&frame_bytes(kind, flags, stream, payload));
    }

    /// Frames on many streams of a client.
    pub(crate) fn on_streams(&mut self, count: u32, mut write: impl FnMut(&mut Self, u32)) {
        for nth in 0..count {
            write(self, 2 * nth + 1);
        }
    }

    /// A request without a body; `path` decides what the replica does.
    pub(crate) fn get(&mut self, stream: u32, path: &str) {
        self.request(stream, WHOLE, ("GET", path), &[]);
    }

    /// The head of a request with a body.
    pub(crate) fn post(&mut self, stream: u32, path: &str) {
        self.request(stream, END_HEADERS, ("POST", path), &[]);
    }

    /// A request with these flags and further header fields.
    pub(crate) fn request(
        &mut self,
        stream: u32,
        flags: u8,
        (method, path): (&str, &str),
        more: &[(&str, &str)],
    ) {
        let mut block = request_block(method, path);
        block.extend(fields(more));
        self.head(stream, flags, &block);
    }

    /// A head with this header block, in one HEADERS frame and as many CONTINUATION frames as it needs.
    pub(crate) fn head(&mut self, stream: u32, flags: u8, block: &[u8]) {
        let (first, rest) = block.split_at(block.len().min(FRAME_BYTES));
        let is_whole = rest.is_empty();
        let first_flags = if is_whole { flags } else { flags & !END_HEADERS };
        self.frame(HEADERS, first_flags, stream, first);
        let mut rest = rest.chunks(FRAME_BYTES).peekable();
        while let Some(piece) = rest.next() {
            let flags = if rest.peek().is_none() { flags & END_HEADERS } else { 0 };
            self.frame(CONTINUATION, flags, stream, piece);
        }
    }

    pub(crate) fn data(&mut self, stream: u32, flags: u8, data: &[u8]) {
        self.frame(DATA, flags, stream, data);
    }

    pub(crate) fn setting(&mut self, name: u16, value: u32) {
        self.frame(SETTINGS, 0, 0, &[&name.to_be_bytes()[..], &value.to_be_bytes()].concat());
    }

    pub(crate) fn window(&mut self, stream: u32, increment: u32) {
        self.frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
    }

    pub(crate) fn ping(&mut self) {
        self.frame(PING, 0, 0, b"are you?");
    }

    pub(crate) fn reset(&mut self, stream: u32, code: u32) {
        self.frame(RST_STREAM, 0, stream, &code.to_be_bytes());
    }

    /// A PRIORITY frame: `stream` depends on `parent`.
    pub(crate) fn priority(&mut self, stream: u32, parent: u32) {
        self.frame(PRIORITY, 0, stream, &[&parent.to_be_bytes()[..], &[7]].concat());
    }
}

/// The fields of a request for the proxy's only host.
pub(crate) fn request_block(method: &str, path: &str) -> Vec<u8> {
    crate::frames::request(method, path)
}

/// A header block that makes the peer remember one long field, and then names it `times` times.
///
/// `start` are the fields before. The entry fills a dynamic table of 4,096 bytes (RFC 7541, section 4.1), so a byte
/// stands for 4,064 bytes of text.
pub(crate) fn hpack_bomb(start: &[u8], times: usize) -> Vec<u8> {
    const VALUE: usize = 4_064 - 1;
    let mut block = start.to_vec();
    // Literal with incremental indexing, a new name of one byte, a value of `VALUE` bytes (127 + 3,936).
    block.extend_from_slice(&[0x40, 1, b'x', 0x7f, 0xe0, 0x1e]);
    block.extend(std::iter::repeat_n(b'y', VALUE));
    // The first entry of the dynamic table has index 62.
    block.extend(std::iter::repeat_n(0xbe, times));
    block
}

/// The status at the start of a header block; [`None`] if it is not there.
///
/// Peers here announce a dynamic table of size 0, so a status is an entry of the static table or a literal.
pub(crate) fn status(block: &[u8]) -> Option<u16> {
    let mut block = block;
    // Changes of the size of the dynamic table come first (RFC 7541, section 6.3).
    while let Some((first, rest)) = block.split_first()
        && first & 0xe0 == 0x20
    {
        let is_long = first & 0x1f == 0x1f;
        let more = rest.iter().take_while(|byte| *byte & 0x80 != 0).count() + 1;
        block = rest.get(if is_long { more } else { 0 }..)?;
    }
    let (first, rest) = block.split_first()?;
    let index = match first {
        0x80.. => {
            return [200, 204, 206, 304, 400, 404, 500]
                .get(usize::from(*first & 0x7f).wrapping_sub(8))
                .copied();
        }
        0x40.. => first & 0x3f,
        _ => first & 0x0f,
    };
    let (len, rest) = rest.split_first()?;
    let text = rest.get(..usize::from(len & 0x7f))?;
    let digits = if len & 0x80 == 0 { text.to_vec() } else { huffman_digits(text)? };
    // Indices 8 to 14 have the name `:status`.
    (8..=14).contains(&index).then(|| std::str::from_utf8(&digits).ok()?.parse().ok())?
}

/// Three digits in the Huffman code (RFC 7541, appendix B): five bits for 0 to 2, six for the others.
fn huffman_digits(text: &[u8]) -> Option<Vec<u8>> {
    let mut bits = text.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1));
    let mut digit = || {
        let five = (0..5).try_fold(0, |code, _| Some(code << 1 | bits.next()?))?;
        if five < 3 {
            return Some(b'0' + five);
        }
        let six = five << 1 | bits.next()?;
        (0x19..=0x1f).contains(&six).then(|| b'3' + six - 0x19)
    };
    (0..3).map(|_| digit()).collect()
}

#[test]
fn statuses_are_read_in_every_encoding() {
    for (block, expected) in [
        (&[0x88][..], Some(200)),
        (&[0x89], Some(204)),
        (&[0x20, 0x8c], Some(400)),
        (&[0x3f, 0xe1, 0x1f, 0x8e], Some(500)),
        (&[0x48, 3, b'5', b'0', b'2'], Some(502)),
        // "408" and "431" in the Huffman code: 011010 00000 011110, and 011010 011001 00001.
        (&[0x48, 0x83, 0x68, 0x0f, 0x7f], Some(408)),
        (&[0x08, 0x83, 0x69, 0x90, 0xff], Some(431)),
        (&[0x00, 1, b'x', 1, b'y'], None),
    ] {
        assert_eq!(status(block), expected, "{block:02x?}");
    }
}

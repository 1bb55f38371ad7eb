//! Bodies in chunks (RFC 9112, section 7.1), read piece by piece.
//!
//! **Limits**: a line, of a size with its extensions or of a trailer, of [`LINE_BYTES_MAX`] bytes.

/// The longest line.
const LINE_BYTES_MAX: usize = 16 << 10;

/// A reader of chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chunked {
    state: State,
    /// Of the line that is being read.
    line_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In a size, with what its digits say so far.
    Size {
        size: u64,
        has_digit: bool,
    },
    /// Behind the size, up to the end of the line.
    Extension {
        size: u64,
    },
    /// At the line feed that ends the line of a size.
    SizeEnd {
        size: u64,
    },
    Data {
        left: u64,
    },
    /// At the carriage return or the line feed behind data.
    DataEnd {
        is_return_seen: bool,
    },
    /// In the lines behind the last chunk; the line is empty so far or not.
    Trailer {
        is_line_empty: bool,
    },
    Done,
}

/// What a piece of input was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// So many bytes of it are data.
    Data(usize),
    /// So many bytes of it belong to the framing.
    Framing(usize),
}

impl Chunked {
    pub(super) const fn new() -> Self {
        Self { state: State::Size { size: 0, has_digit: false }, line_bytes: 0 }
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// What the first bytes of `input`, which is not empty, are.
    ///
    /// # Errors
    /// What is wrong with them, in words.
    pub(super) fn next(&mut self, input: &[u8]) -> Result<Piece, String> {
        if let State::Data { left } = self.state {
            let n = input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let left = left - n as u64;
            self.state = if left == 0 {
                State::DataEnd { is_return_seen: false }
            } else {
                State::Data { left }
            };
            return Ok(Piece::Data(n));
        }
        let mut read = 0;
        for byte in input {
            if matches!(self.state, State::Data { .. } | State::Done) {
                break;
            }
            self.state = self.after(*byte)?;
            self.line_bytes = if *byte == b'\n' { 0 } else { self.line_bytes + 1 };
            if self.line_bytes > LINE_BYTES_MAX {
                return Err(format!("a line of a chunk is longer than {LINE_BYTES_MAX} bytes"));
            }
            read += 1;
        }
        Ok(Piece::Framing(read))
    }

    fn after(&self, byte: u8) -> Result<State, String> {
        let wrong = |expected| {
            Err(format!("byte {byte:#04x} in the framing of a chunk: expected {expected}"))
        };
        Ok(match (self.state, byte) {
            (State::Size { size, .. }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                let size = size.checked_mul(16).and_then(|size| size.checked_add(u64::from(digit)));
                State::Size {
                    size: size.ok_or("the size of a chunk is beyond 2^64")?,
                    has_digit: true,
                }
            }
            (State::Size { has_digit: false, .. }, _) => return wrong("a hexadecimal digit"),
            (State::Size { size, .. } | State::Extension { size }, b'\r') => {
                State::SizeEnd { size }
            }
            (State::Size { size, .. }, b';' | b' ' | b'\t') => State::Extension { size },
            (
                State::Size { size, .. } | State::Extension { size } | State::SizeEnd { size },
                b'\n',
            ) => match size {
                0 => State::Trailer { is_line_empty: true },
                left => State::Data { left },
            },
            (State::Size { .. }, _) => return wrong("a hexadecimal digit"),
            (State::Extension { size }, _) => State::Extension { size },
            (State::SizeEnd { .. }, _) => return wrong("a line feed"),
            (State::DataEnd { is_return_seen: false }, b'\r') => {
                State::DataEnd { is_return_seen: true }
            }
            (State::DataEnd { .. }, b'\n') => State::Size { size: 0, has_digit: false },
            (State::DataEnd { .. }, _) => return wrong("the end of a line"),
            (State::Trailer { is_line_empty: true }, b'\n') => State::Done,
            (State::Trailer { .. }, b'\n') => State::Trailer { is_line_empty: true },
            (State::Trailer { is_line_empty }, b'\r') => State::Trailer { is_line_empty },
            (State::Trailer { .. }, _) => State::Trailer { is_line_empty: false },
            (state @ (State::Data { .. } | State::Done), _) => state,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Chunked, Piece};

    /// The data of `text`, read `step` bytes at a time, and what is left behind it.
    fn read(text: &[u8], step: usize) -> Result<(Vec<u8>, usize), String> {
        let (mut chunked, mut data, mut at) = (Chunked::new(), Vec::new(), 0);
        while !chunked.is_done() && at < text.len() {
            let input = &text[at..text.len().min(at + step)];
            match chunked.next(input)? {
                Piece::Data(n) => {
                    data.extend_from_slice(&input[..n]);
                    at += n;
                }
                Piece::Framing(n) => at += n,
            }
        }
        if chunked.is_done() { Ok((data, text.len() - at)) } else { Err("not done".to_owned()) }
    }

    #[test]
    fn chunks_are_read_however_they_arrive() {
        let text = b"5;a=b\r\nhello\r\n1\r\n \r\nA\r\nworld, all\r\n0\r\nx: y\r\n\r\nrest";
        for step in 1..=text.len() {
            assert_eq!(read(text, step), Ok((b"hello world, all".to_vec(), 4)), "step {step}");
        }
    }

    #[test]
    fn what_is_no_chunk_is_refused() {
        for text in [&b"\r\n"[..], b"g\r\n", b"5\rx", b"2\r\nabc", b"11111111111111111\r\n"] {
            assert!(read(text, text.len()).is_err(), "{text:?}");
        }
        assert_eq!(read(b"5\r\nhel", 3), Err("not done".to_owned()));
    }
}

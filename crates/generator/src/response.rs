//! An answer in HTTP/1.1, read piece by piece: its status, whether the connection goes on, and its body.

use super::chunked::{Chunked, Piece};
use super::flight::RequestFailure;
use crate::expect::Expect;
use curtail_load::Failure;
use std::mem::MaybeUninit;

/// The longest head of an answer.
pub(super) const HEAD_BYTES_MAX: usize = 64 << 10;

/// The most fields of a head.
const FIELDS_MAX: usize = 128;

/// A response that is being read.
#[derive(Debug)]
pub(super) struct ResponseReader<'e> {
    expect: &'e Expect,
    /// An answer to `HEAD` has no body, whatever its fields say.
    is_to_head: bool,
    state: State,
    status: u16,
    goes_on: bool,
    /// The body, where it is looked at.
    body: Vec<u8>,
    body_bytes: u64,
}

#[derive(Debug)]
enum State {
    Head,
    Length { left: u64 },
    Chunks(Chunked),
    UntilClosed,
    Done,
}

impl<'e> ResponseReader<'e> {
    /// A response that is checked against `expect`.
    #[must_use]
    pub(super) const fn new(expect: &'e Expect, is_to_head: bool) -> Self {
        Self {
            expect,
            is_to_head,
            state: State::Head,
            status: 0,
            goes_on: true,
            body: Vec::new(),
            body_bytes: 0,
        }
    }

    /// Whether all of it was read.
    #[must_use]
    pub(super) const fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether the connection can be used again.
    pub(super) const fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Reads what has come, and says how many bytes of it were used; the rest comes again, with more behind it.
    ///
    /// # Errors
    /// When it is malformed, or longer than allowed.
    pub(super) fn feed(&mut self, input: &[u8]) -> Result<usize, RequestFailure> {
        let mut used = 0;
        loop {
            let rest = &input[used..];
            if rest.is_empty() {
                return Ok(used);
            }
            let n = match &mut self.state {
                State::Done => return Ok(used),
                State::Head => match self.head(rest)? {
                    0 => return Ok(used),
                    n => n,
                },
                State::Length { left } => {
                    let n = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= n as u64;
                    if *left == 0 {
                        self.state = State::Done;
                    }
                    self.keep(&rest[..n])?;
                    n
                }
                State::Chunks(chunks) => {
                    match chunks.next(rest).map_err(RequestFailure::malformed)? {
                        Piece::Framing(n) => {
                            if chunks.is_done() {
                                self.state = State::Done;
                            }
                            n
                        }
                        Piece::Data(n) => {
                            self.keep(&rest[..n])?;
                            n
                        }
                    }
                }
                State::UntilClosed => {
                    self.keep(rest)?;
                    rest.len()
                }
            };
            used += n;
        }
    }

    /// The server has closed the connection.
    ///
    /// # Errors
    /// When it was not the end of the response.
    pub(super) fn closed(&mut self) -> Result<(), RequestFailure> {
        match self.state {
            State::UntilClosed | State::Done => {
                self.state = State::Done;
                Ok(())
            }
            State::Head => {
                Err(RequestFailure::new(Failure::Closed, "the connection closed before an answer"))
            }
            State::Length { .. } | State::Chunks(_) => Err(RequestFailure::new(
                Failure::Closed,
                "the connection closed before the end of an answer",
            )),
        }
    }

    /// Checks the whole response against what was expected.
    ///
    /// # Errors
    /// When the status or the body is another.
    pub(super) fn judge(&self) -> Result<(), RequestFailure> {
        if !self.expect.allows(self.status) {
            return Err(RequestFailure::new(Failure::Status, format!("status {}", self.status)));
        }
        if !self.expect.looks_at_body() {
            return Ok(());
        }
        self.expect.check(&self.body).map_err(|text| RequestFailure::new(Failure::Check, text))
    }

    /// Reads the head, if it is all there, and gives its length; otherwise 0.
    fn head(&mut self, input: &[u8]) -> Result<usize, RequestFailure> {
        let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let mut head = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default()
            .parse_response_with_uninit_headers(&mut head, input, &mut fields)
            .map_err(|error| {
                RequestFailure::malformed(format!("the head of an answer: {error}"))
            })?;
        let httparse::Status::Complete(len) = parsed else {
            if input.len() >= HEAD_BYTES_MAX {
                return Err(RequestFailure::malformed(format!(
                    "the head of an answer is longer than {HEAD_BYTES_MAX} bytes"
                )));
            }
            return Ok(0);
        };
        self.status = head.code.unwrap_or(0);
        if (100..200).contains(&self.status) && self.status != 101 {
            // What comes before the answer proper.
            return Ok(len);
        }
        self.goes_on = head.version == Some(1);
        let (mut length, mut is_chunked) = (None, false);
        for field in head.headers.iter() {
            if field.name.eq_ignore_ascii_case("content-length") {
                length = Some(number(field.value)?);
            } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
                is_chunked = has_word(field.value, "chunked");
            } else if field.name.eq_ignore_ascii_case("connection") {
                self.goes_on &= !has_word(field.value, "close");
            }
        }
        self.state =
            match (self.is_to_head || self.status == 204 || self.status == 304, is_chunked, length)
            {
                (true, ..) | (false, false, Some(0)) => State::Done,
                (false, true, _) => State::Chunks(Chunked::new()),
                (false, false, Some(left)) => State::Length { left },
                (false, false, None) => {
                    self.goes_on = false;
                    State::UntilClosed
                }
            };
        Ok(len)
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<(), RequestFailure> {
        self.body_bytes += bytes.len() as u64;
        if self.body_bytes > self.expect.bytes_max.get() {
            return Err(RequestFailure::new(
                Failure::TooLong,
                format!("an answer is longer than {} bytes", self.expect.bytes_max.get()),
            ));
        }
        if self.expect.looks_at_body() {
            self.body.extend_from_slice(bytes);
        }
        Ok(())
    }
}

/// What a `content-length` says.
fn number(value: &[u8]) -> Result<u64, RequestFailure> {
    let text = std::str::from_utf8(value).unwrap_or_default().trim();
    // A sign is none of HTTP's.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()).then_some(text);
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| RequestFailure::malformed(format!("content-length is {text:?}")))
}

/// Whether a list of words has this one.
fn has_word(value: &[u8], word: &str) -> bool {
    value
        .split(|byte| *byte == b',')
        .any(|each| each.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::ResponseReader;
    use crate::expect::Expect;
    use curtail_load::Failure;

    /// Reads `text`, `step` bytes at a time, then the end; gives whether the connection goes on, or the failure.
    fn read(text: &[u8], step: usize, expect: &Expect) -> Result<bool, Failure> {
        let mut answer = ResponseReader::new(expect, false);
        let mut waiting = Vec::new();
        for piece in text.chunks(step) {
            waiting.extend_from_slice(piece);
            let used = answer.feed(&waiting).map_err(|failed| failed.failure)?;
            waiting.drain(..used);
        }
        if !answer.is_done() {
            answer.closed().map_err(|failed| failed.failure)?;
        }
        answer.judge().map_err(|failed| failed.failure)?;
        assert!(waiting.is_empty(), "{} bytes behind the answer", waiting.len());
        Ok(answer.goes_on())
    }

    #[test]
    fn answers_are_read_however_they_arrive() {
        let hello = Expect { contains: vec!["hello".to_owned()], ..Expect::default() };
        for (text, goes_on) in [
            (&b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"[..], true),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive, Close\r\n\r\nhello", false),
            (b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", true),
            (b"HTTP/1.0 200 OK\r\n\r\nhello", false),
            (b"HTTP/1.1 200 OK\r\n\r\nhello", false),
        ] {
            for step in 1..=text.len() {
                assert_eq!(read(text, step, &hello), Ok(goes_on), "step {step} of {}", text.escape_ascii());
            }
        }
        assert_eq!(read(b"HTTP/1.1 204 No Content\r\n\r\n", 3, &Expect::default()), Ok(true));
    }

    #[test]
    fn each_failure_is_known_for_what_it_is() {
        let any = Expect::default();
        let short = Expect { bytes_max: curtail_units::Bytes::new(4), ..Expect::default() };
        let other = Expect { contains: vec!["other".to_owned()], ..Expect::default() };
        for (text, expect, failure) in [
            (&b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n"[..], &any, Failure::Status),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel", &any, Failure::Closed),
            (b"", &any, Failure::Closed),
            (b"SSH-2.0-OpenSSH_9.2\r\n", &any, Failure::Malformed),
            (b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello", &any, Failure::Malformed),
            (
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nhello",
                &any,
                Failure::Malformed,
            ),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", &short, Failure::TooLong),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", &other, Failure::Check),
        ] {
            assert_eq!(read(text, 7, expect), Err(failure), "{}", text.escape_ascii());
        }
        let mut endless = b"HTTP/1.1 200 OK\r\nx: ".to_vec();
        endless.resize(super::HEAD_BYTES_MAX + 100, b'y');
        assert_eq!(read(&endless, 4_096, &any), Err(Failure::Malformed));
    }
}

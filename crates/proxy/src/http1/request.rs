//! A request on its way to a replica.
//!
//! The head and the small pieces of a body are put together and written at once; a large piece is written
//! from where it lies.

use super::fields::write_field;
use super::{Error, chunked};
use crate::attempt::AttemptRequest;
use crate::body::AttemptBody;
use bytes::{Buf, Bytes};
use http::{HeaderMap, Method, header};
use http_body::{Body, Frame};
use std::io::{self, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// A piece of a body is copied up to this size: it then leaves with what is before and after it.
const COPIED_BYTES_MAX: usize = 4 << 10;

/// A request, as far as it is not yet written.
#[derive(Debug, Default)]
pub(super) struct Sending {
    progress: Progress,
    /// Put together.
    buffer: Vec<u8>,
    /// So much of the buffer is written.
    written: usize,
    /// Written after the buffer.
    piece: Bytes,
    /// Written after the piece.
    after_piece: &'static [u8],
    /// What is still to come.
    body: Option<Rest>,
    /// The connection took something of this request.
    has_written: bool,
}

#[derive(Debug, Default)]
enum Progress {
    Writing,
    /// All of it is written.
    #[default]
    Done,
    /// The connection takes no more. What it said is taken from here once.
    Broken(Option<io::Error>),
}

/// What is still to come of a body.
#[derive(Debug)]
struct Rest {
    body: AttemptBody,
    length: Length,
}

#[derive(Clone, Copy, Debug)]
enum Length {
    /// So many bytes are still to come.
    Known(u64),
    /// In chunks, until the last one.
    Chunked,
}

impl Sending {
    /// Puts the head of a request together.
    pub(super) fn begin(&mut self, request: AttemptRequest) {
        let length = match &request.body {
            AttemptBody::Empty => None,
            AttemptBody::Replay(_) => {
                Some(request.body.size_hint().exact().map_or(Length::Chunked, Length::Known))
            }
        };
        // The buffer stays for as long as the connection.
        self.buffer.clear();
        write_head(&mut self.buffer, &request, length);
        let body = request.body;
        self.written = 0;
        self.has_written = false;
        self.body = length.map(|length| Rest { body, length });
        self.progress = Progress::Writing;
    }

    /// Whether all has been written.
    pub(super) const fn is_done(&self) -> bool {
        matches!(self.progress, Progress::Done)
    }

    /// Whether the connection has taken nothing of the request.
    pub(super) const fn is_unwritten(&self) -> bool {
        !self.has_written
    }

    /// Why the connection took no more, if it did not.
    pub(super) const fn take_failure(&mut self) -> Option<io::Error> {
        match &mut self.progress {
            Progress::Broken(failure) => failure.take(),
            Progress::Writing | Progress::Done => None,
        }
    }

    /// Writes on, until there is no more to write or nobody to write to.
    ///
    /// # Errors
    /// When the client does not send what was to be written. A connection that breaks is no error here: see
    /// [`Self::take_failure`].
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<Result<(), Error>> {
        while matches!(self.progress, Progress::Writing) {
            // What there is of the body leaves with what stands before it.
            let gathered = self.gather(cx)?;
            if let Err(failure) = ready!(self.poll_write(cx, stream)) {
                self.progress = Progress::Broken(Some(failure));
                break;
            }
            ready!(gathered);
            if self.body.is_none() {
                self.progress = Progress::Done;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Puts together what there is of the body, until it is worth a write or there is no more to come.
    fn gather(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Error> {
        while self.piece.is_empty() && self.buffer.len() < COPIED_BYTES_MAX {
            let Some(rest) = &mut self.body else { break };
            let Poll::Ready(frame) = Pin::new(&mut rest.body).poll_frame(cx) else {
                return Ok(Poll::Pending);
            };
            match frame.transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => self.put(data)?,
                Some(Err(frame)) => self.end_body(frame.into_trailers().ok().as_ref())?,
                None => self.end_body(None)?,
            }
        }
        Ok(Poll::Ready(()))
    }

    /// Writes what has been put together, until the connection has really taken it.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(stream);
        loop {
            while self.written < self.buffer.len() {
                let rest = &self.buffer[self.written..];
                self.written += some(ready!(stream.as_mut().poll_write(cx, rest))?)?;
                self.has_written = true;
            }
            self.buffer.clear();
            self.written = 0;
            if self.piece.is_empty() {
                return stream.poll_flush(cx);
            }
            while !self.piece.is_empty() {
                let written = some(ready!(stream.as_mut().poll_write(cx, &self.piece))?)?;
                self.piece.advance(written);
            }
            self.buffer.extend_from_slice(self.after_piece);
        }
    }

    /// Takes a piece of the body.
    fn put(&mut self, data: Bytes) -> Result<(), Error> {
        let Some(rest) = self.body.as_mut().filter(|_| !data.is_empty()) else { return Ok(()) };
        self.after_piece = match &mut rest.length {
            Length::Known(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(Error::BodyLength)?;
                b""
            }
            Length::Chunked => {
                chunked::begin_chunk(&mut self.buffer, data.len());
                chunked::CHUNK_END
            }
        };
        if data.len() > COPIED_BYTES_MAX {
            self.piece = data;
        } else {
            self.buffer.extend_from_slice(&data);
            self.buffer.extend_from_slice(self.after_piece);
        }
        Ok(())
    }

    /// There is no more to come.
    fn end_body(&mut self, trailers: Option<&HeaderMap>) -> Result<(), Error> {
        match self.body.take().map(|rest| rest.length) {
            None | Some(Length::Known(0)) => Ok(()),
            Some(Length::Known(_)) => Err(Error::BodyLength),
            Some(Length::Chunked) => {
                chunked::end(&mut self.buffer, trailers);
                Ok(())
            }
        }
    }
}

fn some(written: usize) -> io::Result<usize> {
    if written == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(written) }
}

/// Writes the head. How the body is framed is ours to say: it may come to us in another framing.
fn write_head(buffer: &mut Vec<u8>, request: &AttemptRequest, length: Option<Length>) {
    let head = &request.head;
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    for part in [head.method.as_str(), " ", target, " HTTP/1.1\r\n"] {
        buffer.extend_from_slice(part.as_bytes());
    }
    for (name, value) in request.fields() {
        let is_framing = *name == header::CONTENT_LENGTH || *name == header::TRANSFER_ENCODING;
        if !is_framing {
            write_field(buffer, name.as_str(), value.as_bytes());
        }
    }
    // RFC 9110, section 8.6: where a body is usual, that there is none is said.
    let is_body_usual = matches!(head.method, Method::POST | Method::PUT | Method::PATCH);
    match length {
        Some(Length::Chunked) => write_field(buffer, "transfer-encoding", b"chunked"),
        Some(Length::Known(bytes)) => {
            write!(buffer, "content-length: {bytes}\r\n").expect("a vector takes everything");
        }
        None if is_body_usual => write_field(buffer, "content-length", b"0"),
        None => {}
    }
    buffer.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;

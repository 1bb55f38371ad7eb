//! HTTP/1.1 as bytes: what a client or a replica does that no library would do for it.

use bytes::{Buf, Bytes, BytesMut};
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection, and what has been read of it and not looked at.
#[derive(Debug)]
pub(crate) struct Wire<S = TcpStream> {
    stream: S,
    unread: BytesMut,
}

/// The first line and the fields of a message, as they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) start: String,
    pub(crate) fields: Vec<(String, String)>,
}

/// A whole message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) head: Head,
    pub(crate) body: Bytes,
}

impl Head {
    /// The value of a field that is there at most once.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() < 2, "{name} is there {} times: {self:?}", all.len());
        all.first().copied()
    }

    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let named = |(n, _): &&(String, String)| n.eq_ignore_ascii_case(name);
        self.fields.iter().filter(named).map(|(_, value)| value.as_str()).collect()
    }

    /// The status of a response.
    pub(crate) fn status(&self) -> u16 {
        let status = self.start.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("{:?} is not a status line", self.start))
    }

    /// Method and target of a request.
    pub(crate) fn request(&self) -> (&str, &str) {
        let mut words = self.start.split(' ');
        (words.next().unwrap_or_default(), words.next().unwrap_or_default())
    }
}

impl Wire {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("somebody listens");
        stream.set_nodelay(true).expect("a TCP connection");
        Self::new(stream)
    }

    /// Ends the connection the hard way: the other side reads "connection reset".
    pub(crate) fn reset(self) {
        let socket = self.stream.into_std().expect("a socket of this runtime");
        let socket = socket2::Socket::from(socket);
        socket.set_linger(Some(std::time::Duration::ZERO)).expect("a TCP connection");
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, unread: BytesMut::new() }
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await?;
        self.stream.flush().await
    }

    /// Writes what the other side is expected to be there for.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.write(bytes).await.expect("the other side is there");
    }

    /// The connection itself, for another protocol.
    pub(crate) fn into_stream(self) -> S {
        assert!(self.unread.is_empty(), "bytes that nobody has looked at: {:?}", self.unread);
        self.stream
    }

    /// Says that nothing more will be written.
    pub(crate) async fn close_write(&mut self) {
        self.stream.shutdown().await.expect("the other side is there");
    }

    /// Reads on; false when the other side has closed.
    async fn more(&mut self) -> io::Result<bool> {
        Ok(self.stream.read_buf(&mut self.unread).await? > 0)
    }

    /// The next head; [`None`] when the connection is closed before its first byte.
    pub(crate) async fn read_head(&mut self) -> io::Result<Option<Head>> {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n\r\n") {
                let text = self.unread.split_to(end + 4);
                return Ok(Some(head(&text[..end])));
            }
            if !self.more().await? {
                let closed = self.unread.is_empty();
                return if closed { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
        }
    }

    /// The next `len` bytes.
    pub(crate) async fn read_exact(&mut self, len: usize) -> io::Result<Bytes> {
        while self.unread.len() < len {
            if !self.more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.unread.split_to(len).freeze())
    }

    /// The next chunk of a chunked body; an empty one ends it, and leaves the trailers to be read.
    pub(crate) async fn read_chunk(&mut self) -> io::Result<Bytes> {
        let line = self.read_line().await?;
        let size = line.split(';').next().and_then(|size| usize::from_str_radix(size, 16).ok());
        let size = size.unwrap_or_else(|| panic!("{line:?} is not the size of a chunk"));
        if size == 0 {
            return Ok(Bytes::new());
        }
        let chunk = self.read_exact(size).await?;
        assert_eq!(self.read_exact(2).await?, "\r\n", "after a chunk");
        Ok(chunk)
    }

    /// The next line, without its end.
    pub(crate) async fn read_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = find(&self.unread, b"\r\n") {
                let line = self.unread.split_to(end);
                self.unread.advance(2);
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            if !self.more().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The next whole message; [`None`] when the connection is closed before it begins. A body without a
    /// length is taken for one that ends with the connection when this is a response, for none otherwise.
    pub(crate) async fn read_message(&mut self) -> io::Result<Option<Message>> {
        match self.read_head().await? {
            Some(head) => self.read_body(head).await.map(Some),
            None => Ok(None),
        }
    }

    /// The next whole message that is no interim response.
    pub(crate) async fn read_final_message(&mut self) -> io::Result<Option<Message>> {
        loop {
            match self.read_head().await? {
                Some(head) if (100..200).contains(&head.status()) => {}
                Some(head) => return self.read_body(head).await.map(Some),
                None => return Ok(None),
            }
        }
    }

    async fn read_body(&mut self, head: Head) -> io::Result<Message> {
        let mut body = BytesMut::new();
        let is_response = head.start.starts_with("HTTP/");
        if head.get("transfer-encoding").is_some_and(|te| te.eq_ignore_ascii_case("chunked")) {
            loop {
                let chunk = self.read_chunk().await?;
                if chunk.is_empty() {
                    break;
                }
                body.extend_from_slice(&chunk);
            }
            // Trailers are of no interest here.
            while !self.read_line().await?.is_empty() {}
        } else if let Some(len) = head.get("content-length") {
            let len = len.parse().expect("a number of bytes");
            body.extend_from_slice(&self.read_exact(len).await?);
        } else if is_response && !matches!(head.status(), 204 | 304) {
            while self.more().await? {}
            body = self.unread.split();
        }
        Ok(Message { head, body: body.freeze() })
    }

    /// The next response, which must come.
    pub(crate) async fn response(&mut self) -> Message {
        self.read_message().await.expect("the connection holds").expect("a response")
    }

    /// Reads until the other side closes, well or by a reset; returns what came before.
    pub(crate) async fn read_to_close(&mut self) -> Bytes {
        while matches!(self.more().await, Ok(true)) {}
        self.unread.split().freeze()
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

fn head(text: &[u8]) -> Head {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.split("\r\n");
    let start = lines.next().unwrap_or_default().to_owned();
    Head { start, fields: lines.map(field).collect() }
}

fn field(line: &str) -> (String, String) {
    let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("{line:?} is not a field"));
    (name.to_owned(), value.trim().to_owned())
}

//! HTTP/2 as frames: what a client or a replica does that no library would do for it.

use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;

pub(crate) const NO_ERROR: u32 = 0;
pub(crate) const PROTOCOL_ERROR: u32 = 1;
pub(crate) const INTERNAL_ERROR: u32 = 2;
pub(crate) const FLOW_CONTROL_ERROR: u32 = 3;
pub(crate) const SETTINGS_TIMEOUT: u32 = 4;
pub(crate) const STREAM_CLOSED: u32 = 5;
pub(crate) const FRAME_SIZE_ERROR: u32 = 6;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const CANCEL: u32 = 8;
pub(crate) const COMPRESSION_ERROR: u32 = 9;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// A connection on which frames are written and read one by one.
#[derive(Debug)]
pub(crate) struct Frames {
    stream: TcpStream,
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frames {
    /// Connects as a client, and says so with an empty SETTINGS frame.
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).await.expect("somebody listens");
        stream.set_nodelay(true).expect("a TCP connection");
        stream.write_all(PREFACE).await.expect("the other side is there");
        let mut frames = Self { stream };
        frames.send(SETTINGS, 0, 0, &[]).await;
        frames
    }

    /// Takes the server's side of a connection.
    pub(crate) async fn accept(mut stream: TcpStream) -> io::Result<Self> {
        let mut preface = [0; PREFACE.len()];
        stream.read_exact(&mut preface).await?;
        assert_eq!(preface, PREFACE);
        let mut frames = Self { stream };
        frames.write(SETTINGS, 0, 0, &[]).await?;
        Ok(frames)
    }

    pub(crate) async fn write(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> io::Result<()> {
        self.stream.write_all(&frame_bytes(kind, flags, stream, payload)).await
    }

    /// Writes what the other side is expected to be there for.
    pub(crate) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.write(kind, flags, stream, payload).await.expect("the other side is there");
    }

    /// The next frame that is not about the connection's settings and windows; [`None`] when it is closed.
    /// Settings and pings are acknowledged.
    pub(crate) async fn read(&mut self) -> Option<Frame> {
        loop {
            let frame = self.read_any().await.ok()?;
            let is_ack = frame.flags & ACK != 0;
            match frame.kind {
                SETTINGS | PING if is_ack => {}
                SETTINGS => self.write(SETTINGS, ACK, 0, &[]).await.ok()?,
                PING => self.write(PING, ACK, 0, &frame.payload).await.ok()?,
                WINDOW_UPDATE => {}
                _ => return Some(frame),
            }
        }
    }

    /// Closes the connection in order: the other side reads everything, then the end.
    pub(crate) async fn close(mut self) {
        self.stream.shutdown().await.ok();
        while self.read().await.is_some() {}
    }

    /// Reads the next frame of any kind, without acknowledging it.
    pub(crate) async fn read_any(&mut self) -> io::Result<Frame> {
        read_frame(&mut self.stream).await
    }
}

/// A frame as bytes.
pub(crate) fn frame_bytes(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    let mut frame = vec![len[1], len[2], len[3], kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Reads the next frame of any kind.
pub(crate) async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; usize::try_from(len).expect("24 bits")];
    stream.read_exact(&mut payload).await?;
    let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Ok(Frame { kind: head[3], flags: head[4], stream: id, payload })
}

/// Header fields as HPACK literals that are neither compressed nor remembered.
pub(crate) fn fields<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name.as_ref(), value.as_ref()] {
            // RFC 7541, section 5.1: seven bits, the rest in groups of seven.
            let mut rest = text.len();
            if rest < 127 {
                block.push(u8::try_from(rest).expect("seven bits"));
            } else {
                block.push(127);
                rest -= 127;
                while rest >= 128 {
                    block.push(u8::try_from(rest % 128).expect("seven bits") | 128);
                    rest /= 128;
                }
                block.push(u8::try_from(rest).expect("seven bits"));
            }
            block.extend_from_slice(text);
        }
    }
    block
}

/// The fields of a request.
pub(crate) fn request(method: &str, path: &str) -> Vec<u8> {
    let scheme = (":scheme", "http");
    fields(&[(":method", method), scheme, (":authority", "service.test"), (":path", path)])
}

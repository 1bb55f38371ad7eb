//! A server for tests that says what it is told to say, one connection after the other.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

/// What it does with one request.
pub(crate) enum Does {
    /// Answers with these bytes.
    Says(&'static str),
    /// Answers with these bytes, and closes the connection.
    SaysAndCloses(&'static str),
    /// Closes the connection.
    Closes,
    /// Says nothing, until the client has gone.
    Waits,
}

/// Requests as they came: the number of the connection, and head and body.
pub(crate) type Asked = (usize, String);

/// Starts it with what it does with each request; returns its address and what it was asked.
pub(crate) fn start(does: Vec<Does>) -> (SocketAddr, Receiver<Asked>, JoinHandle<()>) {
    serving(does, |stream| stream)
}

/// The same, where a connection speaks first as it must.
pub(crate) fn serving<S: Read + Write>(
    does: Vec<Does>,
    accept: impl Fn(TcpStream) -> S + Send + 'static,
) -> (SocketAddr, Receiver<Asked>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let (tells, told) = sync_channel(64);
    let thread = std::thread::spawn(move || {
        let mut does = does.into_iter().peekable();
        for nth in 0.. {
            if does.peek().is_none() {
                return;
            }
            let (stream, _) = listener.accept().expect("a client");
            let mut stream = BufReader::new(accept(stream));
            while let Some(asked) = request(&mut stream) {
                tells.send((nth, asked)).expect("the test lives");
                let is_open = match does.next() {
                    Some(Does::Says(bytes)) => stream.get_mut().write_all(bytes.as_bytes()).is_ok(),
                    Some(Does::SaysAndCloses(bytes)) => {
                        stream.get_mut().write_all(bytes.as_bytes()).expect("the client lives");
                        false
                    }
                    Some(Does::Waits) => stream.read(&mut [0]).is_err(),
                    Some(Does::Closes) | None => false,
                };
                if !is_open {
                    break;
                }
            }
        }
    });
    (address, told, thread)
}

/// One request; [`None`] when the client has closed the connection.
fn request<S: Read>(stream: &mut BufReader<S>) -> Option<String> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_ascii_lowercase();
    let len = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    let mut body = vec![0; len.map_or(0, |len| len.parse().expect("a number"))];
    stream.read_exact(&mut body).ok()?;
    Some(head + &String::from_utf8(body).expect("text"))
}

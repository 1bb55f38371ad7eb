//! A server for tests with scripted responses, one connection after the other.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

/// The reaction to one request.
pub(crate) enum ServerAction {
    /// Responds with these bytes.
    Respond(&'static str),
    /// Responds with these bytes, and closes the connection.
    RespondAndClose(&'static str),
    /// Closes the connection.
    Close,
    /// Does not respond until the client has disconnected.
    Wait,
}

/// A request as received: the number of the connection, then head and body.
pub(crate) type ReceivedRequest = (usize, String);

/// Starts a server with an action for each request; returns the server's address and the received requests.
pub(crate) fn start(
    actions: Vec<ServerAction>,
) -> (SocketAddr, Receiver<ReceivedRequest>, JoinHandle<()>) {
    serving(actions, |stream| stream)
}

/// Starts such a server; `accept` first prepares each connection.
pub(crate) fn serving<S: Read + Write>(
    actions: Vec<ServerAction>,
    accept: impl Fn(TcpStream) -> S + Send + 'static,
) -> (SocketAddr, Receiver<ReceivedRequest>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let (sender, requests) = sync_channel(64);
    let thread = std::thread::spawn(move || {
        let mut actions = actions.into_iter().peekable();
        for nth in 0.. {
            if actions.peek().is_none() {
                return;
            }
            let (stream, _) = listener.accept().expect("a client");
            let mut stream = BufReader::new(accept(stream));
            while let Some(requests) = request(&mut stream) {
                sender.send((nth, requests)).expect("the test lives");
                let is_open = match actions.next() {
                    Some(ServerAction::Respond(bytes)) => {
                        stream.get_mut().write_all(bytes.as_bytes()).is_ok()
                    }
                    Some(ServerAction::RespondAndClose(bytes)) => {
                        stream.get_mut().write_all(bytes.as_bytes()).expect("the client lives");
                        false
                    }
                    Some(ServerAction::Wait) => stream.read(&mut [0]).is_err(),
                    Some(ServerAction::Close) | None => false,
                };
                if !is_open {
                    break;
                }
            }
        }
    });
    (address, requests, thread)
}

/// Reads one request; [`None`] if the client has closed the connection.
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

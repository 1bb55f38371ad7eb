//! Links: TCP connections that pass through this process, so that a fault can delay them.
//!
//! Bytes pass in pieces, in order and in both directions, each delayed by the `by` of [`Links::slow`]. A request and
//! its response take twice `by` longer, and a new connection as much again. Delays of several faults add up.
//! **Limits**: [`PIECES_MAX`] pieces of [`PIECE_BYTES`] wait in a direction; a faster sender waits, as with a full
//! window. [`CONNECTIONS_MAX`] connections a link. Delays are exact to a millisecond. The CPU time of the links counts
//! as the load generator's, because both run in this process.

use super::config::LinkConfig;
use super::problem::SuiteEnd;
use curtail_http::accept::{AcceptedConnection, Acceptor};
use curtail_http::runtime_thread::RuntimeThread;
use curtail_units::Duration;
use std::future::{Pending, pending};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep, sleep_until};

const PIECE_BYTES: usize = 16 << 10;
const PIECES_MAX: usize = 64;
const CONNECTIONS_MAX: usize = 4_096;

/// The links of a suite, which close when this is dropped.
#[derive(Debug)]
pub(super) struct Links {
    delays: Vec<(String, Delay)>,
    /// The thread that forwards; absent without links.
    _thread: Option<RuntimeThread>,
}

/// The present delay of a link, in nanoseconds.
#[derive(Clone, Debug, Default)]
struct Delay(Arc<AtomicU64>);

impl Delay {
    fn now(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

impl Links {
    pub(super) fn open(configs: &[LinkConfig]) -> Result<Self, SuiteEnd> {
        let bind = |link: &LinkConfig| {
            let LinkConfig { name, listen, to } = link;
            let listener = std::net::TcpListener::bind(listen).map_err(|error| {
                SuiteEnd::io(name, &format!("the link cannot listen on {listen}"), &error)
            })?;
            Ok((name.clone(), listener, *to))
        };
        let links = configs.iter().map(bind).collect::<Result<_, SuiteEnd>>()?;
        Self::begin(links).map_err(|error| SuiteEnd::io("links", "they cannot be opened", &error))
    }

    /// Forwards connections from the listener of each named link to its address.
    fn begin(links: Vec<(String, std::net::TcpListener, SocketAddr)>) -> io::Result<Self> {
        if links.is_empty() {
            return Ok(Self { delays: Vec::new(), _thread: None });
        }
        let thread = RuntimeThread::start("links")?;
        let entered = thread.runtime().enter();
        let mut delays = Vec::new();
        for (name, listener, to) in links {
            listener.set_nonblocking(true)?;
            let delay = Delay::default();
            let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
            let acceptor = Acceptor::new(format!("link {name}"), listener, places, pending())?;
            delays.push((name, delay.clone()));
            tokio::spawn(accept(acceptor, to, delay));
        }
        drop(entered);
        Ok(Self { delays, _thread: Some(thread) })
    }

    /// Delays the link `name` by `by`, in addition to other delays.
    pub(super) fn slow(&self, name: &str, by: Duration) {
        self.delay(name).fetch_add(by.as_ns(), Ordering::Relaxed);
    }

    pub(super) fn end_slow(&self, name: &str, by: Duration) {
        self.delay(name).fetch_sub(by.as_ns(), Ordering::Relaxed);
    }

    /// The delay of a link, whose name the configuration has checked.
    fn delay(&self, name: &str) -> &AtomicU64 {
        let found = self.delays.iter().find(|(each, _)| each == name);
        &found.expect("a link of the suite").1.0
    }
}

async fn accept(mut acceptor: Acceptor<Pending<()>>, to: SocketAddr, delay: Delay) {
    while let Some(AcceptedConnection { stream, place, .. }) = acceptor.next(|| ()).await {
        let delay = delay.clone();
        tokio::spawn(async move {
            // A side that goes away takes the other with it: both streams are dropped here.
            let _gone = connection(stream, to, &delay).await;
            drop(place);
        });
    }
}

async fn connection(near: TcpStream, to: SocketAddr, delay: &Delay) -> io::Result<()> {
    sleep(2 * delay.now()).await;
    let far = TcpStream::connect(to).await?;
    far.set_nodelay(true)?;
    let ((from_near, to_near), (from_far, to_far)) = (near.into_split(), far.into_split());
    let (there, back) = (pass(from_near, to_far, delay), pass(from_far, to_near, delay));
    tokio::try_join!(there, back).map(|_| ())
}

/// Forwards one direction up to its end, and forwards the end.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: &Delay) -> io::Result<()> {
    let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES_MAX);
    let read = async move {
        loop {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            let is_end = from.read_buf(&mut piece).await? == 0;
            let due = Instant::now() + delay.now();
            if sender.send((due, piece)).await.is_err() || is_end {
                return Ok(());
            }
        }
    };
    let write = async move {
        while let Some((due, piece)) = pieces.recv().await {
            sleep_until(due).await;
            to.write_all(&piece).await?;
        }
        to.shutdown().await
    };
    tokio::try_join!(read, write).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::Links;
    use curtail_units::Duration;
    use socket2::{Domain, Socket, Type};
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::Instant;

    /// A server that sends back what it gets until there is no more, and then says good-bye.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a client");
                std::thread::spawn(move || {
                    let mut reader = stream.try_clone().expect("two handles");
                    // A client that is cut off hears no good-bye.
                    std::io::copy(&mut reader, &mut stream)?;
                    stream.write_all(b"bye")
                });
            }
        });
        address
    }

    fn link(to: SocketAddr) -> (Links, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        (Links::begin(vec![("far".to_owned(), listener, to)]).expect("a timer"), address)
    }

    fn asked(stream: &mut TcpStream, text: &[u8]) -> std::time::Duration {
        let began = Instant::now();
        stream.write_all(text).expect("sent");
        let mut response = vec![0; text.len()];
        stream.read_exact(&mut response).expect("a response");
        assert_eq!(response, text);
        began.elapsed()
    }

    #[test]
    fn a_slow_link_adds_its_delay_to_each_direction_and_keeps_the_order() {
        let (links, address) = link(echo());
        let mut stream = TcpStream::connect(address).expect("it listens");
        asked(&mut stream, b"fast");
        // Two faults at once add up.
        links.slow("far", Duration::from_ms(30));
        links.slow("far", Duration::from_ms(10));
        let took = asked(&mut stream, b"slow");
        assert!(took >= std::time::Duration::from_millis(80), "{took:?}");
        let began = Instant::now();
        let mut another = TcpStream::connect(address).expect("it listens");
        asked(&mut another, b"slow");
        assert!(began.elapsed() >= std::time::Duration::from_millis(160), "{:?}", began.elapsed());
        // Sent while it is fast again, behind what is still on its way.
        let long: Vec<u8> = (0..4_000_000_u32).map(|nth| nth.to_le_bytes()[1]).collect();
        stream.write_all(b"first").expect("sent");
        links.end_slow("far", Duration::from_ms(30));
        links.end_slow("far", Duration::from_ms(10));
        let mut reader = stream.try_clone().expect("two handles");
        let reading = std::thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).map(|_| all)
        });
        stream.write_all(&long).expect("sent");
        stream.shutdown(std::net::Shutdown::Write).expect("open until now");
        let all = reading.join().expect("no panic").expect("to the end");
        assert!(all == [b"first".as_slice(), &long, b"bye"].concat(), "{} bytes", all.len());
    }

    #[test]
    fn a_link_to_nobody_closes_its_connections() {
        // Bound, so that no other socket gets the port, and not listening.
        let nobody = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        nobody.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
        let to = nobody.local_addr().expect("bound").as_socket().expect("of IP");
        let (_links, address) = link(to);
        let mut stream = TcpStream::connect(address).expect("it listens");
        // The end, or a reset when it is closed before this arrives.
        let response = stream.write_all(b"hello").and_then(|()| stream.read(&mut [0; 8]));
        assert!(matches!(response, Ok(0) | Err(_)), "{response:?}");
    }

    #[test]
    fn links_that_are_dropped_close_their_connections() {
        let (links, address) = link(echo());
        let mut stream = TcpStream::connect(address).expect("it listens");
        asked(&mut stream, b"there");
        drop(links);
        let response = stream.read(&mut [0; 8]);
        assert!(matches!(response, Ok(0) | Err(_)), "{response:?}");
    }
}

//! Listening, and the connections of those who ask.
//!
//! **Limits**: [`CONNECTIONS_MAX`] connections; [`HEADER_TIMEOUT`] for a head. A connection is closed when the client
//! has not read the response within the time of its request, so a client that reads nothing holds nothing for long.

use crate::Limits;
use crate::answer::{Answering, PATIENCE};
use crate::sql::Sql;
use curtail_http::accept::{Acceptor, bind};
use curtail_store::Store;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// Questions are few, and people ask them.
const CONNECTIONS_MAX: usize = 256;

const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Extra time to send the end of a response.
const GRACE: Duration = Duration::from_secs(1);

/// An API that answers until it is stopped, or this is dropped.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    accepting: JoinHandle<()>,
    /// Nothing is said by it: it ends when this does.
    until: oneshot::Sender<()>,
}

/// Starts to answer, on the runtime of whoever calls.
///
/// # Errors
/// When the address cannot be listened on.
pub async fn start(
    address: SocketAddr,
    store: Arc<Store>,
    sql: Sql,
    limits: Limits,
) -> io::Result<Running> {
    let socket = bind(address)?;
    let address = socket.local_addr()?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (until, stopped) = oneshot::channel();
    let acceptor = Acceptor::new("api", socket, places, async { drop(stopped.await) })?;
    let answering = Arc::new(Answering::new(store, sql, limits));
    let accepting = tokio::spawn(serve_all(acceptor, answering));
    Ok(Running { address, accepting, until })
}

impl Running {
    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops, and waits until nothing runs any more for those who have asked.
    pub async fn stop(self) {
        drop(self.until);
        // It has panicked, or it has ended.
        let _ended = self.accepting.await;
    }
}

/// Serves until it is stopped. Then it waits for no client, and the queries that run for them end.
async fn serve_all(mut acceptor: Acceptor<impl Future<Output = ()>>, answering: Arc<Answering>) {
    let mut connections = JoinSet::new();
    while let Some(accepted) = acceptor.next(|| ()).await {
        // Connections that have ended are forgotten.
        while connections.try_join_next().is_some() {}
        let answering = Arc::clone(&answering);
        connections.spawn(async move {
            serve(accepted.stream, &answering).await;
            drop(accepted.place);
        });
    }
    connections.shutdown().await;
}

async fn serve(stream: TcpStream, answering: &Answering) {
    // The deadline of the current request.
    let until = watch::Sender::new(None);
    let service = service_fn(async |request| {
        until.send_replace(Some(Instant::now() + PATIENCE + GRACE));
        Ok::<_, Infallible>(answering.answer(request).await)
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // The client knows why it closed the connection.
        served = serving => if let Err(error) = served {
            tracing::debug!(%error, "connection ended with an error");
        },
        () = is_over(until.subscribe()) => {
            tracing::debug!("connection closed: its last request exceeded its time limit");
        }
    }
}

/// Waits until the deadline of the last request.
async fn is_over(mut until: watch::Receiver<Option<Instant>>) {
    loop {
        let at = *until.borrow_and_update();
        let over = async {
            match at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = over => return,
            changed = until.changed() => if changed.is_err() { pending::<()>().await },
        }
    }
}

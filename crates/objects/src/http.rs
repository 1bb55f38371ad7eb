//! HTTP for `object_store`: requests in, answers out.
//!
//! Everything is read and written by one thread, `objects`, whoever asks. So a thread that merges for seconds
//! delays no answer that another one waits for on the same connection, and no time is up because of it.
//!
//! **In time**, by [`TIMES`]: a connection; from then on the head of the answer, for which there is a second
//! more for each [`SLOWEST_BYTES_PER_S`] that are sent; each next piece of its body.
//!
//! **Again**: `object_store` sends a request again when it was not sent (a connection was not made, or closed
//! before), and also after it was sent where that changes nothing. A put that may only be done once is never
//! sent twice here; whoever sent it looks whether it was done.
//!
//! **Limits**: [`REQUESTS_MAX`] at once, for each store; further ones wait.

use crate::address::{Address, NoAddress, host_field};
use crate::connections::{Connection, Connections};
use bytes::Bytes;
use http::header::{HOST, HeaderValue, USER_AGENT};
use http::{Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use object_store::client::{
    ClientConfigKey, ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind,
    HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Sleep, timeout};

/// How long is waited for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// A connection, with TLS.
    pub(crate) connect: Duration,
    /// The head of an answer.
    pub(crate) answer: Duration,
    /// The next piece of a body.
    pub(crate) read: Duration,
}

const TIMES: Times = Times {
    connect: Duration::from_secs(3),
    answer: Duration::from_secs(15),
    read: Duration::from_secs(15),
};

/// Who takes less is too slow.
const SLOWEST_BYTES_PER_S: u64 = 1 << 20;

/// So many requests are under way at once.
const REQUESTS_MAX: usize = 64;

/// Who we are.
const AGENT: HeaderValue = HeaderValue::from_static(concat!("curtail/", env!("CARGO_PKG_VERSION")));

/// Makes the HTTP below one store.
#[derive(Debug)]
pub(crate) struct Http;

impl HttpConnector for Http {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let is = |key| options.get_config_value(&key);
        let unsupported = |what: &str| object_store::Error::NotSupported { source: what.into() };
        if is(ClientConfigKey::ProxyUrl).is_some() {
            return Err(unsupported("requests are not sent through HTTP proxies"));
        }
        if is(ClientConfigKey::AllowInvalidCertificates).as_deref() == Some("true") {
            return Err(unsupported("certificates are always checked; SSL_CERT_FILE adds to them"));
        }
        let allows_http = is(ClientConfigKey::AllowHttp).as_deref() == Some("true");
        let client = Client::start(allows_http, TIMES, Connections::default());
        let client = client.map_err(|error| object_store::Error::Generic {
            store: "HTTP",
            source: Box::new(error),
        })?;
        Ok(HttpClient::new(client))
    }
}

/// The requests of one store.
#[derive(Debug)]
pub(crate) struct Client {
    allows_http: bool,
    free: Arc<Semaphore>,
    thread: Arc<Thread>,
}

/// The thread that reads and writes; it ends when nobody has this any more.
#[derive(Debug)]
struct Thread {
    times: Times,
    connections: Arc<Connections>,
    runtime: Handle,
    _ends: oneshot::Sender<()>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error(transparent)]
    Nowhere(#[from] NoAddress),
    #[error(
        "{0} is asked over https only, unless AWS_ALLOW_HTTP, GOOGLE_ALLOW_HTTP or AZURE_ALLOW_HTTP is true"
    )]
    Plain(Address),
    #[error("{address}: no {what} within {} s", after.as_secs())]
    Late { address: Address, what: &'static str, after: Duration },
    #[error("{address}: {source}")]
    Broken {
        address: Address,
        #[source]
        source: hyper::Error,
    },
    #[error("the thread of the store has ended")]
    Ended,
}

impl Client {
    pub(crate) fn start(
        allows_http: bool,
        times: Times,
        connections: Connections,
    ) -> std::io::Result<Self> {
        let own = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (ends, ended) = oneshot::channel();
        let (runtime, connections) = (own.handle().clone(), Arc::new(connections));
        let thread = Arc::new(Thread { times, connections, runtime, _ends: ends });
        let run = move || drop(own.block_on(ended));
        std::thread::Builder::new().name("objects".to_owned()).spawn(run)?;
        let free = Arc::new(Semaphore::new(REQUESTS_MAX));
        Ok(Self { allows_http, free, thread })
    }
}

impl Thread {
    /// Sends a request. This runs on the thread.
    async fn send(
        self: Arc<Self>,
        request: HttpRequest,
        address: Address,
        turn: OwnedSemaphorePermit,
    ) -> Result<HttpResponse, HttpError> {
        let (connection, answer) = self.answer(request, &address).await?;
        let connections = Arc::clone(&self.connections);
        tokio::spawn(keep(connections, address.clone(), connection, turn));
        let (head, body) = answer.into_parts();
        let late = Box::pin(tokio::time::sleep(self.times.read));
        let body = Patient { body, late, is_waiting: false, address, thread: self };
        Ok(Response::from_parts(head, HttpResponseBody::new(body)))
    }

    /// The head of an answer, and the connection on which the rest comes.
    async fn answer(
        &self,
        mut request: HttpRequest,
        address: &Address,
    ) -> Result<(Connection, Response<Incoming>), HttpError> {
        let seconds = request.body().content_length() as u64 / SLOWEST_BYTES_PER_S;
        let after = self.times.answer + Duration::from_secs(seconds);
        loop {
            let (mut connection, is_new) = match self.connections.take(address) {
                Some(connection) => (connection, false),
                None => (self.connect(address).await?, true),
            };
            let sent = timeout(after, connection.try_send_request(request)).await;
            let mut error = match sent {
                Ok(Ok(answer)) => return Ok((connection, answer)),
                Ok(Err(error)) => error,
                Err(_) => {
                    let late = NoAnswer::Late { address: address.clone(), what: "answer", after };
                    return Err(HttpError::new(HttpErrorKind::Timeout, late));
                }
            };
            let kind = match error.take_message() {
                // It had been closed while nobody used it.
                Some(unsent) if !is_new => {
                    request = unsent;
                    continue;
                }
                Some(_) => HttpErrorKind::Request,
                None => HttpErrorKind::Interrupted,
            };
            let broken = NoAnswer::Broken { address: address.clone(), source: error.into_error() };
            return Err(HttpError::new(kind, broken));
        }
    }

    async fn connect(&self, address: &Address) -> Result<Connection, HttpError> {
        let after = self.times.connect;
        let connected = timeout(after, self.connections.connect(address)).await;
        // Either way nothing was sent.
        let unsent = match connected {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => HttpError::new(HttpErrorKind::Connect, error),
            Err(_) => {
                let late = NoAnswer::Late { address: address.clone(), what: "connection", after };
                HttpError::new(HttpErrorKind::Connect, late)
            }
        };
        Err(unsent)
    }
}

/// Keeps a connection for the next request, when the answer has been read to its end.
async fn keep(
    connections: Arc<Connections>,
    address: Address,
    mut connection: Connection,
    turn: OwnedSemaphorePermit,
) {
    if connection.ready().await.is_ok() {
        connections.keep(address, connection);
    }
    drop(turn);
}

#[async_trait::async_trait]
impl HttpService for Client {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let begun = Instant::now();
        let unknown = |error| HttpError::new(HttpErrorKind::Unknown, error);
        let ended = || unknown(NoAnswer::Ended);
        let address = Address::of(request.uri()).map_err(|error| unknown(error.into()))?;
        if !address.is_tls && !self.allows_http {
            return Err(unknown(NoAnswer::Plain(address)));
        }
        prepare(&mut request);
        let (method, path) = (request.method().clone(), shown(request.uri()));
        let sent_bytes = request.body().content_length();
        let turn = Arc::clone(&self.free).acquire_owned().await.map_err(|_| ended())?;
        // Dropped with this future, so that nobody waits on for a caller that has gone.
        let mut sending = JoinSet::new();
        let send = Arc::clone(&self.thread).send(request, address, turn);
        sending.spawn_on(send, &self.thread.runtime);
        let answer = sending.join_next().await.ok_or_else(ended)?.map_err(|_| ended())?;
        let status = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        let us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::debug!(%method, %path, sent_bytes, status, us, "asked");
        answer
    }
}

/// Path and query, but for what would let whoever reads it in: the signature of a shared access token.
fn shown(uri: &Uri) -> String {
    let mut shown = uri.path().to_owned();
    let pairs = uri.query().into_iter().flat_map(|query| query.split('&'));
    for (nth, pair) in pairs.filter(|pair| !pair.starts_with("sig=")).enumerate() {
        shown.push(if nth == 0 { '?' } else { '&' });
        shown.push_str(pair);
    }
    shown
}

/// What a request of HTTP/1.1 says besides.
fn prepare(request: &mut HttpRequest) {
    if !request.headers().contains_key(HOST)
        && let Some(host) = host_field(request.uri())
    {
        request.headers_mut().insert(HOST, host);
    }
    request.headers_mut().entry(USER_AGENT).or_insert(AGENT);
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
}

/// A body, each piece of which must come in time.
#[derive(Debug)]
struct Patient {
    body: Incoming,
    late: Pin<Box<Sleep>>,
    /// Whether somebody waits for the next piece; the time that its reader takes does not count.
    is_waiting: bool,
    address: Address,
    /// It is read there.
    thread: Arc<Thread>,
}

impl Body for Patient {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(frame) = frame {
            self.is_waiting = false;
            let address = self.address.clone();
            let broken = |source| {
                HttpError::new(HttpErrorKind::Interrupted, NoAnswer::Broken { address, source })
            };
            return Poll::Ready(frame.map(|frame| frame.map_err(broken)));
        }
        let after = self.thread.times.read;
        if !self.is_waiting {
            self.is_waiting = true;
            self.late.as_mut().reset(tokio::time::Instant::now() + after);
        }
        self.late.as_mut().poll(context).map(|()| {
            let (address, what) = (self.address.clone(), "rest of the answer");
            let late = NoAnswer::Late { address, what, after };
            Some(Err(HttpError::new(HttpErrorKind::Timeout, late)))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;

//! The HTTP client of `object_store`.
//!
//! One thread, `objects`, reads and writes for all callers. A calling thread that merges for seconds therefore delays
//! no response to another thread, and causes no timeout.
//!
//! **Timeouts** ([`TIMEOUTS`]): one for a connection attempt, one for the head of the response (one second longer for
//! each [`UPLOAD_BYTES_PER_S_MIN`] of the request), and one for each piece of the body.
//!
//! **Retries**: `object_store` retries a request that was not sent (no connection, or it closed before), and any
//! idempotent request. A conditional put that was sent is never retried; its caller checks whether the put took effect.
//!
//! **Limits**: [`REQUESTS_MAX`] requests at once for each store; further requests wait. Each server has at most
//! [`IDLE_MAX`] idle connections.

use bytes::Bytes;
use curtail_http::client::{Client, ClientError, ClientLimits, StreamedBody};
use curtail_http::connect::{ConnectConfig, Connector, Protocol};
use curtail_http::origin::ServerOrigin;
use curtail_http::runtime_thread::RuntimeThread;
use curtail_http::tls::TlsError;
use curtail_units::Duration;
use http::Uri;
use http::header::{HOST, HeaderValue, USER_AGENT};
use http_body::{Body, Frame, SizeHint};
use object_store::client::{
    ClientConfigKey, ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind,
    HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody, HttpService,
};
use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Sleep;

/// The time limits of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// Timeout of a connection attempt, including TLS.
    pub(crate) connect: Duration,
    /// Timeout of the head of a response.
    pub(crate) response: Duration,
    /// Timeout of the next piece of a body.
    pub(crate) read: Duration,
}

const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(3),
    response: Duration::from_secs(15),
    read: Duration::from_secs(15),
};

/// Minimum rate at which a server must read a request, in bytes a second.
const UPLOAD_BYTES_PER_S_MIN: u64 = 1 << 20;

/// Maximum number of requests in flight for each store.
const REQUESTS_MAX: usize = 64;

/// Idle time after which a connection is closed. The time is short, because a server that closes an idle connection may
/// or may not have read a request that arrives at the same time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum number of idle connections to each server.
const IDLE_MAX: usize = 32;

const USER_AGENT_VALUE: HeaderValue =
    HeaderValue::from_static(concat!("curtail/", env!("CARGO_PKG_VERSION")));

/// Creates the HTTP client of a store.
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
        let client = StoreClient::start(allows_http, TIMEOUTS, None);
        let client = client.map_err(|error| object_store::Error::Generic {
            store: "HTTP",
            source: Box::new(error),
        })?;
        Ok(HttpClient::new(client))
    }
}

/// Sends the requests of one store.
#[derive(Debug)]
pub(crate) struct StoreClient {
    allows_http: bool,
    free: Arc<Semaphore>,
    thread: Arc<IoThread>,
}

/// The thread `objects`, and what its tasks share.
#[derive(Debug)]
struct IoThread {
    timeouts: Timeouts,
    connect: ConnectConfig,
    clients: Mutex<HashMap<ServerOrigin, Arc<Client<HttpRequestBody>>>>,
    thread: RuntimeThread,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
enum StoreClientError {
    #[error("{0}: expected https://host/… or http://host/…")]
    Url(Uri),
    #[error(
        "{0}: expected https, unless AWS_ALLOW_HTTP, GOOGLE_ALLOW_HTTP or AZURE_ALLOW_HTTP is true"
    )]
    ClearText(ServerOrigin),
    #[error("{server}: the rest of the response paused for more than {timeout}")]
    Paused { server: ServerOrigin, timeout: Duration },
    #[error("{server}: the response broke off: {source}")]
    BrokenOff {
        server: ServerOrigin,
        #[source]
        source: hyper::Error,
    },
    #[error("the thread of the store has ended")]
    Ended,
}

impl StoreClient {
    pub(crate) fn start(
        allows_http: bool,
        timeouts: Timeouts,
        ca_file: Option<PathBuf>,
    ) -> std::io::Result<Self> {
        let connect = ConnectConfig {
            protocol: Protocol::Http1,
            timeout: timeouts.connect,
            idle_timeout: IDLE_TIMEOUT,
            ca_file,
            ..ConnectConfig::default()
        };
        let thread = RuntimeThread::start("objects")?;
        let thread = Arc::new(IoThread { timeouts, connect, clients: Mutex::default(), thread });
        let free = Arc::new(Semaphore::new(REQUESTS_MAX));
        Ok(Self { allows_http, free, thread })
    }
}

impl IoThread {
    /// Sends a request; runs on the thread `objects`.
    async fn send(
        self: Arc<Self>,
        request: HttpRequest,
        server: ServerOrigin,
        permit: OwnedSemaphorePermit,
    ) -> Result<HttpResponse, HttpError> {
        let seconds = request.body().content_length() as u64 / UPLOAD_BYTES_PER_S_MIN;
        let timeout = self.timeouts.response + Duration::from_secs(seconds);
        let client = self.client(&server);
        let client = client.map_err(|error| HttpError::new(HttpErrorKind::Connect, error))?;
        let response = client.send_streaming(request, timeout).await.map_err(|error| {
            let kind = match &error {
                ClientError::Connect(_) => HttpErrorKind::Connect,
                ClientError::NotSent { .. } => HttpErrorKind::Request,
                ClientError::TimedOut { .. } => HttpErrorKind::Timeout,
                ClientError::NoResponse { .. }
                | ClientError::BrokenOff { .. }
                | ClientError::TooLarge { .. } => HttpErrorKind::Interrupted,
            };
            HttpError::new(kind, error)
        })?;
        let pause = Box::pin(tokio::time::sleep(self.timeouts.read.into()));
        Ok(response.map(|body| {
            let is_waiting = false;
            HttpResponseBody::new(TimedBody {
                body,
                pause,
                is_waiting,
                server,
                thread: self,
                _permit: permit,
            })
        }))
    }

    fn client(&self, server: &ServerOrigin) -> Result<Arc<Client<HttpRequestBody>>, TlsError> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(server) {
            return Ok(Arc::clone(client));
        }
        let limits = ClientLimits { body_bytes_max: 0, idle_max: IDLE_MAX };
        let client = Arc::new(Client::new(Connector::load(server, &self.connect)?, limits));
        clients.insert(server.clone(), Arc::clone(&client));
        Ok(client)
    }
}

#[async_trait::async_trait]
impl HttpService for StoreClient {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let start = Instant::now();
        let unknown = |error| HttpError::new(HttpErrorKind::Unknown, error);
        let ended = || unknown(StoreClientError::Ended);
        let server = ServerOrigin::of_uri(request.uri(), None)
            .ok_or_else(|| unknown(StoreClientError::Url(request.uri().clone())))?;
        if !server.tls && !self.allows_http {
            return Err(unknown(StoreClientError::ClearText(server)));
        }
        set_headers(&mut request);
        let (method, path) = (request.method().clone(), loggable(request.uri()));
        let sent_bytes = request.body().content_length();
        let permit = Arc::clone(&self.free).acquire_owned().await.map_err(|_| ended())?;
        // Dropped with this future, so a request whose caller has gone is cancelled.
        let mut sending = JoinSet::new();
        let send = Arc::clone(&self.thread).send(request, server, permit);
        sending.spawn_on(send, self.thread.thread.runtime());
        let response = sending.join_next().await.ok_or_else(ended)?.map_err(|_| ended())?;
        let status = response.as_ref().map_or(0, |response| response.status().as_u16());
        let us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::debug!(%method, %path, sent_bytes, status, us, "request to the store");
        response
    }
}

/// Returns path and query without the signature of a shared access token, which would grant access.
fn loggable(uri: &Uri) -> String {
    let mut shown = uri.path().to_owned();
    let pairs = uri.query().into_iter().flat_map(|query| query.split('&'));
    for (nth, pair) in pairs.filter(|pair| !pair.starts_with("sig=")).enumerate() {
        shown.push(if nth == 0 { '?' } else { '&' });
        shown.push_str(pair);
    }
    shown
}

/// Sets `user-agent`, and `host` with the value that was signed: without a default port.
fn set_headers(request: &mut HttpRequest) {
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let host = authority.and_then(|authority| HeaderValue::from_str(authority).ok());
    if let Some(host) = host {
        request.headers_mut().entry(HOST).or_insert(host);
    }
    request.headers_mut().entry(USER_AGENT).or_insert(USER_AGENT_VALUE);
}

/// A body with a timeout for each piece.
#[derive(Debug)]
struct TimedBody {
    body: StreamedBody<HttpRequestBody>,
    pause: Pin<Box<Sleep>>,
    /// Whether the reader waits for the next piece; only this wait counts towards the timeout.
    is_waiting: bool,
    server: ServerOrigin,
    /// The thread that reads the body.
    thread: Arc<IoThread>,
    _permit: OwnedSemaphorePermit,
}

impl Body for TimedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(frame) = frame {
            self.is_waiting = false;
            let broken_off = |source| {
                let error = StoreClientError::BrokenOff { server: self.server.clone(), source };
                HttpError::new(HttpErrorKind::Interrupted, error)
            };
            return Poll::Ready(frame.map(|frame| frame.map_err(broken_off)));
        }
        let timeout = self.thread.timeouts.read;
        if !self.is_waiting {
            self.is_waiting = true;
            let deadline = tokio::time::Instant::now() + timeout.into();
            self.pause.as_mut().reset(deadline);
        }
        self.pause.as_mut().poll(context).map(|()| {
            let error = StoreClientError::Paused { server: self.server.clone(), timeout };
            Some(Err(HttpError::new(HttpErrorKind::Timeout, error)))
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

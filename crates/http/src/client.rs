//! A small client for requests outside the data path: queries, imports, exported spans.
//!
//! A [`Client`] sends requests to one server and keeps idle connections. It resends a request on a new connection only
//! if the server has read no part of the request.
//! **Limits**: [`ClientLimits`], and the timeouts of the [`Connector`]. A connection closes if its request is
//! abandoned, or if a response rejects a request with a body, because the server may not have read the body.

use crate::clock::Clock;
use crate::connect::{ConnectError, Connector, Offer};
use bytes::Bytes;
use curtail_units::{Duration, Instant};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::task::JoinHandle;

/// Limits of a client.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Maximum size of a response body.
    pub body_bytes_max: usize,
    /// Maximum number of idle connections.
    pub idle_max: usize,
}

/// Sends requests with bodies of this type to one server.
#[derive(Debug)]
pub struct Client<B> {
    connector: Connector,
    clock: Clock,
    limits: ClientLimits,
    authority: Authority,
    /// The idle connections; the last returned connection is taken first.
    idle: Mutex<Vec<IdleConnection<B>>>,
}

#[derive(Debug)]
struct IdleConnection<B> {
    connection: Connection<B>,
    idle_since: Instant,
}

/// A complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The trailers, if there are any.
    pub trailers: Option<HeaderMap>,
}

impl ClientResponse {
    /// Whether a retry may succeed, by the rules of OTLP: 429, 502, 503 and 504.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self.status.as_u16(), 429 | 502..=504)
    }

    /// Returns the time in `Retry-After` if the header has seconds; a date is ignored.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.headers.get(header::RETRY_AFTER)?.to_str().ok()?;
        seconds.trim().parse().ok().map(Duration::from_secs)
    }
}

/// Why there is no complete response.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum ClientError {
    /// No connection was made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection ended before any part of the request was sent.
    #[error("{server}: the request was not sent: {source}")]
    NotSent { server: String, source: hyper::Error },
    /// The connection ended before the response began.
    #[error("{server}: no response{}: {source}", advice(server, source))]
    NoResponse { server: String, source: hyper::Error },
    /// The response is incomplete.
    #[error("{server}: the response broke off: {source}")]
    BrokenOff { server: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// The response body is too large.
    #[error("{server}: the response has more than {bytes_max} bytes")]
    TooLarge { server: String, bytes_max: usize },
    /// The response took too long.
    #[error("{server}: no complete response within {timeout}")]
    TimedOut { server: String, timeout: Duration },
}

impl ClientError {
    /// Whether the server does not speak the expected protocol, so that no retry can succeed.
    #[must_use]
    pub fn is_wrong_protocol(&self) -> bool {
        matches!(self, Self::Connect(ConnectError::Tls { .. } | ConnectError::NoVersion { .. }))
            || matches!(self, Self::NoResponse { source, .. } if source.is_parse())
    }

    /// Whether the time limit of the connection attempt or of the response was exceeded.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. } | Self::Connect(ConnectError::TimedOut { .. }))
    }
}

/// Returns advice for a response that is not HTTP.
fn advice(server: &str, error: &hyper::Error) -> &'static str {
    let may_be_tls = error.is_parse() && server.starts_with("http://");
    if may_be_tls { " in HTTP; if the server expects TLS, write https://" } else { "" }
}

/// A connection that carries one request at a time, and closes when this is dropped.
#[derive(Debug)]
struct Connection<B> {
    sender: Sender<B>,
    driver: JoinHandle<()>,
    /// Whether another request may follow.
    is_reusable: bool,
}

#[derive(Debug)]
enum Sender<B> {
    Http1(http1::SendRequest<B>),
    Http2(http2::SendRequest<B>),
}

impl<B> Drop for Connection<B> {
    fn drop(&mut self) {
        // The socket closes at once, even if a response is still to come.
        self.driver.abort();
    }
}

impl<B> Client<B>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static,
{
    /// Creates a client without connections.
    ///
    /// # Panics
    /// Never: an origin has a valid authority.
    #[must_use]
    pub fn new(connector: Connector, limits: ClientLimits) -> Self {
        let authority = connector.origin().authority();
        let authority = Authority::try_from(authority).expect("an origin has a valid authority");
        Self { connector, clock: Clock::start(), limits, authority, idle: Mutex::default() }
    }

    /// Sends a request, whose URI is path and query, and waits for the complete response. The connection attempt and
    /// the response may take `timeout` together. Adds `host` if it is missing.
    ///
    /// # Errors
    /// [`ClientError`] with the step that failed.
    pub async fn send(
        &self,
        request: Request<B>,
        timeout: Duration,
    ) -> Result<ClientResponse, ClientError> {
        let exchange = async {
            let (connection, response) = self.exchange(request, timeout).await?;
            let response = self.read(response).await?;
            self.put_idle(connection);
            Ok(response)
        };
        match tokio::time::timeout(timeout.into(), exchange).await {
            Ok(result) => result,
            Err(_) => Err(self.timed_out(timeout)),
        }
    }

    /// Sends a request, whose URI is path and query, and waits at most `timeout` for the head of the response, without
    /// the time of the connection attempt. Adds `host` if it is missing. The caller limits size and time of the body.
    ///
    /// # Errors
    /// [`ClientError`] with the step that failed.
    pub async fn send_streaming(
        self: &Arc<Self>,
        request: Request<B>,
        timeout: Duration,
    ) -> Result<Response<StreamedBody<B>>, ClientError> {
        let (connection, response) = self.exchange(request, timeout).await?;
        let lease = Some((Arc::clone(self), connection));
        let mut response = response.map(|body| StreamedBody { body, lease });
        if response.body().is_end_stream() {
            response.body_mut().return_connection();
        }
        Ok(response)
    }

    /// Sends a request; returns the head of the response, and the connection.
    async fn exchange(
        &self,
        mut request: Request<B>,
        timeout: Duration,
    ) -> Result<(Connection<B>, Response<Incoming>), ClientError> {
        let has_body = !request.body().is_end_stream();
        loop {
            let idle = self.idle().pop();
            let (mut connection, is_new) = match idle.map(|idle| idle.connection) {
                Some(connection) => (connection, false),
                None => (self.connect().await?, true),
            };
            self.address(&mut request, connection.is_http2());
            let sent = tokio::time::timeout(timeout.into(), connection.send(request)).await;
            let server = || self.server();
            match sent.map_err(|_| self.timed_out(timeout))? {
                Ok(response) => {
                    let status = response.status();
                    let is_rejected = status.is_client_error() || status.is_server_error();
                    connection.is_reusable = !(has_body && is_rejected);
                    return Ok((connection, response));
                }
                // The server closed the connection while it was idle.
                Err((_, Some(unsent))) if !is_new => request = unsent,
                Err((source, Some(_))) => {
                    return Err(ClientError::NotSent { server: server(), source });
                }
                Err((source, None)) => {
                    return Err(ClientError::NoResponse { server: server(), source });
                }
            }
        }
    }

    async fn connect(&self) -> Result<Connection<B>, ClientError> {
        let connected = self.connector.connect(&self.clock, Offer::All).await?;
        let io = TokioIo::new(connected.stream);
        let not_sent = |source| ClientError::NotSent { server: self.server(), source };
        // The later error of a connection is also the error of its request.
        if connected.is_http2 {
            let (sender, driver) = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                // A server that hangs is found although it owes nothing, such as an event.
                .keep_alive_interval(Some(self.connector.http2_ping_interval().into()))
                .handshake(io)
                .await
                .map_err(not_sent)?;
            return Ok(Connection::new(Sender::Http2(sender), driver));
        }
        let (sender, driver) = http1::handshake(io).await.map_err(not_sent)?;
        Ok(Connection::new(Sender::Http1(sender), driver))
    }

    /// Names the server in the form of the connection's protocol.
    fn address(&self, request: &mut Request<B>, is_http2: bool) {
        let path = request.uri().path_and_query().cloned();
        let path = path.unwrap_or(PathAndQuery::from_static("/"));
        if is_http2 {
            let scheme = if self.connector.origin().tls { Scheme::HTTPS } else { Scheme::HTTP };
            let host = request.headers_mut().remove(header::HOST);
            let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
            // A request that is sent again has its host there.
            let host = host.or_else(|| request.uri().authority().cloned());
            let uri = Uri::builder()
                .scheme(scheme)
                .authority(host.unwrap_or_else(|| self.authority.clone()))
                .path_and_query(path)
                .build();
            *request.uri_mut() = uri.expect("scheme, authority and path are all there");
            *request.version_mut() = http::Version::HTTP_2;
        } else {
            *request.uri_mut() = path.into();
            *request.version_mut() = http::Version::HTTP_11;
            let host = || HeaderValue::from_str(self.authority.as_str()).expect("it is ASCII");
            request.headers_mut().entry(header::HOST).or_insert_with(host);
        }
    }

    async fn read(&self, response: Response<Incoming>) -> Result<ClientResponse, ClientError> {
        let (head, body) = response.into_parts();
        let bytes_max = self.limits.body_bytes_max;
        let body = Limited::new(body, bytes_max).collect().await.map_err(|source| {
            let server = self.server();
            if source.is::<LengthLimitError>() {
                ClientError::TooLarge { server, bytes_max }
            } else {
                ClientError::BrokenOff { server, source }
            }
        })?;
        let trailers = body.trailers().cloned();
        let (status, headers) = (head.status, head.headers);
        Ok(ClientResponse { status, headers, body: body.to_bytes(), trailers })
    }
}

impl<B> Client<B> {
    fn put_idle(&self, connection: Connection<B>) {
        let mut idle = self.idle();
        if idle.len() < self.limits.idle_max && connection.is_reusable {
            idle.push(IdleConnection { connection, idle_since: self.clock.now() });
        }
    }

    /// Whether a connection is open and idle.
    #[must_use]
    pub fn has_idle(&self) -> bool {
        !self.idle().is_empty()
    }

    /// Locks the idle connections, and removes connections that are closed or have been idle for too long.
    fn idle(&self) -> MutexGuard<'_, Vec<IdleConnection<B>>> {
        let now = self.clock.now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|idle| {
            !idle.connection.is_closed()
                && now.since(idle.idle_since) < self.connector.idle_timeout()
        });
        idle
    }

    fn timed_out(&self, timeout: Duration) -> ClientError {
        ClientError::TimedOut { server: self.server(), timeout }
    }

    fn server(&self) -> String {
        self.connector.origin().to_string()
    }
}

/// A response body. At its end, the connection becomes idle. Dropping the body earlier closes the connection.
#[derive(Debug)]
pub struct StreamedBody<B> {
    body: Incoming,
    lease: Option<(Arc<Client<B>>, Connection<B>)>,
}

impl<B> StreamedBody<B> {
    fn return_connection(&mut self) {
        if let Some((client, connection)) = self.lease.take() {
            client.put_idle(connection);
        }
    }
}

impl<B> Body for StreamedBody<B> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.return_connection();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Connection<B> {
    fn new(
        sender: Sender<B>,
        driver: impl Future<Output = hyper::Result<()>> + Send + 'static,
    ) -> Self {
        let driver = tokio::spawn(async move { drop(driver.await) });
        Self { sender, driver, is_reusable: true }
    }

    const fn is_http2(&self) -> bool {
        matches!(self.sender, Sender::Http2(_))
    }

    fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }
}

impl<B: Body + 'static> Connection<B> {
    /// Sends a request; returns the response, or the error, with the request if no part of it was sent.
    async fn send(
        &mut self,
        request: Request<B>,
    ) -> Result<Response<Incoming>, (hyper::Error, Option<Request<B>>)> {
        // An idle connection may not have noticed yet that it can take a request, or that it is closed.
        let ready = match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await,
            Sender::Http2(sender) => sender.ready().await,
        };
        if let Err(error) = ready {
            return Err((error, Some(request)));
        }
        let sent = match &mut self.sender {
            Sender::Http1(sender) => sender.try_send_request(request).await,
            Sender::Http2(sender) => sender.try_send_request(request).await,
        };
        sent.map_err(|mut error| {
            let unsent = error.take_message();
            (error.into_error(), unsent)
        })
    }
}

#[cfg(test)]
mod tests;

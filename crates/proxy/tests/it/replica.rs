//! Replicas that respond as a function says, over HTTP/1.1 and HTTP/2, in clear text and under TLS.

use crate::body::{self, Body};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Notify, Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// What a replica speaks.
#[derive(Clone)]
pub(crate) enum Speaks {
    Http1,
    /// With prior knowledge.
    Http2,
    /// The same, with a maximum of concurrent requests on a connection.
    Http2Streams(u32),
    /// The same, with WebSockets (RFC 8441).
    Http2WebSockets,
    /// What is negotiated.
    Tls(Arc<rustls::ServerConfig>),
    /// The same, with WebSockets over HTTP/2.
    TlsWebSockets(Arc<rustls::ServerConfig>),
}

/// How a replica speaks HTTP/2.
#[derive(Clone, Copy)]
struct Http2Options {
    /// Maximum concurrent requests on a connection.
    streams_max: u32,
    has_websockets: bool,
}

impl Http2Options {
    const USUAL: Self = Self { streams_max: 1_000, has_websockets: false };

    const WEBSOCKETS: Self = Self { has_websockets: true, ..Self::USUAL };
}

/// A request as a replica saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    /// The protocol of extended CONNECT.
    pub(crate) protocol: Option<String>,
}

impl Seen {
    /// The value of a field that is there at most once.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let all: Vec<_> = self.headers.get_all(name).iter().collect();
        assert!(all.len() < 2, "{name} is there {} times: {:?}", all.len(), self.headers);
        all.first().map(|value| value.to_str().expect("plain text"))
    }
}

/// A server that runs until it is dropped.
pub(crate) struct Replica {
    address: SocketAddr,
    record: Arc<Record>,
    accepting: tokio::task::JoinHandle<()>,
    /// Dropped when all connections are to end at once.
    alive: watch::Sender<bool>,
}

/// What a replica saw.
#[derive(Debug, Default)]
pub(crate) struct Record {
    seen: Mutex<Vec<Seen>>,
    connections: AtomicUsize,
    /// Requests whose response was not sent to the end, because the proxy reset them.
    reset: AtomicUsize,
    failed: AtomicBool,
    changed: Notify,
}

impl Record {
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The one request so far.
    pub(crate) fn only(&self) -> Seen {
        let seen = self.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        seen[0].clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// How often the request with this `x-request-id` was begun.
    pub(crate) fn executions(&self, id: &str) -> usize {
        self.matching(|seen| seen.headers.get("x-request-id").is_some_and(|v| v == id))
    }

    /// How many requests are like that.
    pub(crate) fn matching(&self, is: impl Fn(&Seen) -> bool) -> usize {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().filter(|seen| is(seen)).count()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn reset(&self) -> usize {
        self.reset.load(Ordering::SeqCst)
    }

    /// Waits until the record says so.
    pub(crate) async fn until(&self, so: impl Fn(&Self) -> bool) {
        loop {
            let changed = self.changed.notified();
            if so(self) {
                return;
            }
            changed.await;
        }
    }
}

/// Counts a response that is dropped before it was made.
struct InService<'a> {
    record: &'a Record,
    has_responded: bool,
}

impl Drop for InService<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.record.failed.store(true, Ordering::SeqCst);
        }
        if !self.has_responded {
            self.record.reset.fetch_add(1, Ordering::SeqCst);
            self.record.changed.notify_waiters();
        }
    }
}

impl Replica {
    /// Responds to every request as `response` says.
    pub(crate) async fn start<A, F>(speaks: Speaks, response: A) -> Self
    where
        A: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), speaks, response).await
    }

    /// The same at an address of the test's choice, such as that of an earlier server.
    pub(crate) async fn start_at<A, F>(address: SocketAddr, speaks: Speaks, response: A) -> Self
    where
        A: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let listener = listen(address).await;
        let address = listener.local_addr().expect("it is bound");
        let record = Arc::new(Record::default());
        let (alive, _) = watch::channel(true);
        let (shared, response) = (Arc::clone(&record), Arc::new(response));
        let lives = alive.subscribe();
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("connections come");
                stream.set_nodelay(true).expect("a TCP connection");
                shared.connections.fetch_add(1, Ordering::SeqCst);
                shared.changed.notify_waiters();
                let (speaks, mut lives) = (speaks.clone(), lives.clone());
                let (record, response) = (Arc::clone(&shared), Arc::clone(&response));
                tokio::spawn(async move {
                    let serving = serve(stream, speaks, record, response);
                    tokio::select! {
                        () = serving => {}
                        _ = lives.changed() => {}
                    }
                });
            }
        });
        Self { address, record, accepting, alive }
    }

    /// Responds to every request with 200 and `text`.
    pub(crate) async fn responding(speaks: Speaks, text: &'static str) -> Self {
        Self::start(speaks, move |_| std::future::ready(ok(text))).await
    }

    /// Responds only to hedges, which are of a lower class than their first attempts.
    pub(crate) async fn for_hedges(speaks: Speaks) -> Self {
        let replica = Self::start(speaks, |request| async move {
            if !request.headers().contains_key("curtail-class") {
                std::future::pending::<()>().await;
            }
            ok("good")
        });
        replica.await
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it is found under TLS: certificates are issued for this name.
    pub(crate) fn tls_url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }

    pub(crate) fn record(&self) -> &Arc<Record> {
        &self.record
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.accepting.abort();
        self.alive.send_replace(false);
        let failed = self.record.failed.load(Ordering::SeqCst);
        assert!(!failed || std::thread::panicking(), "a replica's response failed: see above");
    }
}

/// Listens with room for as many connections as tests make at once: when there is none, the kernel sends
/// cookies (SYN flooding), and one that it does not take back is a connection that breaks. Waits until an earlier server
/// at the address has ended.
async fn listen(address: SocketAddr) -> TcpListener {
    loop {
        let socket = TcpSocket::new_v4().expect("the system gives a socket");
        socket.set_reuseaddr(true).expect("a socket");
        match socket.bind(address).and_then(|()| socket.listen(4_096)) {
            Ok(listener) => return listener,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && address.port() != 0 => {
                tokio::task::yield_now().await;
            }
            Err(error) => panic!("{address}: {error}"),
        }
    }
}

/// A replica whose responses wait for a permit each.
pub(crate) async fn gated(speaks: Speaks) -> (Replica, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let opens = Arc::clone(&gate);
    let replica = Replica::start(speaks, move |_| {
        let opens = Arc::clone(&opens);
        async move {
            opens.acquire().await.expect("never closed").forget();
            ok("good")
        }
    });
    (replica.await, gate)
}

/// A good response with a text.
pub(crate) fn ok(text: &'static str) -> Response<Body> {
    Response::new(body::whole(text))
}

/// A response with this status and no body.
pub(crate) fn status(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(body::empty());
    *response.status_mut() = status;
    response
}

/// No response at all: the stream is reset, or the connection closed.
pub(crate) fn abort() -> Response<Body> {
    let mut response = Response::new(body::empty());
    response.extensions_mut().insert(Abort);
    response
}

/// Marks a response that must not be sent.
#[derive(Clone, Copy)]
struct Abort;

async fn serve<A, F>(
    stream: tokio::net::TcpStream,
    speaks: Speaks,
    record: Arc<Record>,
    response: Arc<A>,
) where
    A: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    match speaks {
        Speaks::Http1 => serve_http(stream, None, record, response).await,
        Speaks::Http2 => serve_http(stream, Some(Http2Options::USUAL), record, response).await,
        Speaks::Http2Streams(streams_max) => {
            let options = Http2Options { streams_max, ..Http2Options::USUAL };
            serve_http(stream, Some(options), record, response).await;
        }
        Speaks::Http2WebSockets => {
            serve_http(stream, Some(Http2Options::WEBSOCKETS), record, response).await;
        }
        Speaks::Tls(config) => {
            serve_tls(stream, (config, Http2Options::USUAL), record, response).await;
        }
        Speaks::TlsWebSockets(config) => {
            serve_tls(stream, (config, Http2Options::WEBSOCKETS), record, response).await;
        }
    }
}

/// Serves a connection under TLS, over what is negotiated.
async fn serve_tls<A, F>(
    stream: tokio::net::TcpStream,
    (config, options): (Arc<rustls::ServerConfig>, Http2Options),
    record: Arc<Record>,
    response: Arc<A>,
) where
    A: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    // A client that does not like our certificate goes away: that is its right.
    let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else { return };
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    serve_http(stream, is_http2.then_some(options), record, response).await;
}

/// Serves a connection over HTTP/2, or over HTTP/1.1.
async fn serve_http<S, A, F>(
    stream: S,
    http2: Option<Http2Options>,
    record: Arc<Record>,
    response: Arc<A>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        let (record, response) = (Arc::clone(&record), Arc::clone(&response));
        async move {
            let protocol = request.extensions().get::<Protocol>();
            record.seen.lock().unwrap_or_else(PoisonError::into_inner).push(Seen {
                method: request.method().clone(),
                uri: request.uri().clone(),
                version: request.version(),
                headers: request.headers().clone(),
                protocol: protocol.map(|protocol| protocol.as_str().to_owned()),
            });
            record.changed.notify_waiters();
            let is_head = request.method() == Method::HEAD;
            let mut in_service = InService { record: &record, has_responded: false };
            let response = response(request).await;
            in_service.has_responded = true;
            drop(in_service);
            if response.extensions().get::<Abort>().is_some() {
                return Err(io::Error::other("broken off by the test"));
            }
            Ok(if is_head { without_body(response) } else { response })
        }
    });
    let io = TokioIo::new(stream);
    // How a connection ends is the proxy's business, and tests look at what the proxy makes of it.
    if let Some(Http2Options { streams_max, has_websockets }) = http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        if has_websockets {
            builder.enable_connect_protocol();
        }
        builder
            .timer(TokioTimer::new())
            // A replica that trusts its proxies: cancelled hedges are no attack.
            .max_pending_accept_reset_streams(10_000)
            .max_local_error_reset_streams(None)
            .max_concurrent_streams(streams_max)
            .serve_connection(io, service)
            .await
            .ok();
    } else {
        http1::Builder::new().serve_connection(io, service).with_upgrades().await.ok();
    }
}

/// The response to HEAD: it has a length, and no body.
fn without_body(response: Response<Body>) -> Response<Body> {
    let (mut head, body) = response.into_parts();
    if let Some(len) = http_body::Body::size_hint(&body).exact() {
        head.headers.entry("content-length").or_insert(len.into());
    }
    Response::from_parts(head, body::empty())
}

/// The path of the request, as the response's body.
pub(crate) fn echo_path(request: &Request<Incoming>) -> Response<Body> {
    Response::new(body::whole(request.uri().path().to_owned()))
}

//! Runs the query of a request and writes the response.

use crate::api_error::{ApiError, ErrorFormat};
use crate::body::{self, BodyPart, ResponseBody};
use crate::listen::Api;
use crate::query_request::QueryRequest;
use crate::query_threads::QueryThreads;
use crate::response_chunks::ResponseChunks;
use crate::sql::{self, SqlRunner};
use crate::{Limits, jaeger, tempo, v1};
use bytes::Bytes;
use curtail_http::access::TENANT;
use curtail_http::drain::DrainSignal;
use curtail_metrics::form_for;
use curtail_store::Store;
use curtail_store::tree::Unread;
use curtail_text::describe_error;
use http::header::{
    ACCEPT, ALLOW, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY, WWW_AUTHENTICATE,
};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Body;
use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;

/// The methods of all paths except SQL.
const READ_METHODS: &str = "GET, HEAD";

/// The header with the number of runs that cannot be read and may have more rows.
const INCOMPLETE: &str = "curtail-incomplete";

/// The header with the maximum relative error of quantiles in the response.
const QUANTILE_ERROR: &str = "curtail-quantile-error";

/// The header of each response with the version of this program, by which a client knows that it asks a server of Curtail.
const VERSION: &str = "curtail-version";

/// The delay before a retry, in seconds.
const RETRY_AFTER_S: u64 = 1;

/// Maximum time of a request, from its head to the last byte of its response.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Maximum size of a response that is sent as a whole, so that status and headers describe the whole response.
const WHOLE_BYTES: usize = 4 << 20;

/// Maximum number of responses longer than [`WHOLE_BYTES`] in flight. Each of these keeps [`WHOLE_BYTES`] in memory
/// until its client has read them.
const LARGE_RESPONSES_MAX: usize = 16;

/// A successful response.
pub(crate) struct ApiResponse {
    content_type: &'static str,
    body: Vec<u8>,
    /// The rest of a streamed response.
    rest: Option<Box<dyn ResponseChunks>>,
    unread: usize,
    quantile_error: Option<f64>,
}

/// The result of a request.
pub(crate) type ApiResult = Result<ApiResponse, ApiError>;

impl ApiResponse {
    pub(crate) fn json(json: &serde_json::Value) -> Self {
        Self::of("application/json", json.to_string().into_bytes())
    }

    pub(crate) const fn of(content_type: &'static str, body: Vec<u8>) -> Self {
        Self { content_type, body, rest: None, unread: 0, quantile_error: None }
    }

    /// Creates a response of chunks: a short response is read completely, a longer response is streamed.
    pub(crate) async fn of_chunks(
        mut chunks: impl ResponseChunks + 'static,
    ) -> Result<Self, ApiError> {
        let mut body = Vec::new();
        while body.len() < WHOLE_BYTES {
            let Some(chunk) = chunks.next().await? else {
                let response = Self::of(chunks.content_type(), body);
                return Ok(response.without(chunks.unread()));
            };
            body.extend(chunk);
        }
        let response = Self::of(chunks.content_type(), body).without(chunks.unread());
        Ok(Self { rest: Some(Box::new(chunks)), ..response })
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::of("text/plain; charset=utf-8", format!("{text}\n").into_bytes())
    }

    /// Marks the response as incomplete, because these runs may have more rows.
    pub(crate) fn without(mut self, unread: &[Unread]) -> Self {
        // A run may have several damaged parts.
        let runs: BTreeMap<_, _> = unread.iter().map(|unread| (&unread.path, unread)).collect();
        for Unread { path, error } in runs.values() {
            let error = describe_error(&**error);
            tracing::error!(%path, error, "a run cannot be read");
        }
        self.unread = runs.len();
        self
    }

    /// Sets the maximum relative error of the quantiles in the response.
    pub(crate) const fn with_quantile_error(mut self, error: f64) -> Self {
        self.quantile_error = Some(error);
        self
    }
}

/// Responds to requests, several at once.
#[derive(Debug)]
pub(crate) struct QueryService {
    pub(crate) api: Api,
    threads: QueryThreads,
    /// One permit per query thread; a request without a permit waits.
    turns: Arc<Semaphore>,
    /// One permit per large response in flight; at the maximum, a request is rejected.
    large: Arc<Semaphore>,
    sql: SqlRunner,
    patience: Duration,
    draining: Arc<DrainSignal>,
}

impl QueryService {
    pub(crate) fn new(api: Api, draining: Arc<DrainSignal>) -> io::Result<Self> {
        let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let query_threads = api.query_threads.unwrap_or_else(cores);
        Ok(Self {
            sql: SqlRunner::new(api.sql.clone()),
            api,
            threads: QueryThreads::start(query_threads)?,
            turns: Arc::new(Semaphore::new(query_threads)),
            large: Arc::new(Semaphore::new(LARGE_RESPONSES_MAX)),
            patience: PATIENCE,
            draining,
        })
    }

    /// Ends the threads of queries.
    pub(crate) async fn stop(self) {
        self.threads.stop().await;
    }

    /// Responds to a request. The query ends if this future is dropped.
    pub(crate) async fn respond<B>(&self, request: Request<B>) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let is_head = request.method() == Method::HEAD;
        let mut response = self.respond_to_any(request).await;
        response.headers_mut().insert(VERSION, HeaderValue::from_static(env!("CARGO_PKG_VERSION")));
        if is_head {
            // hyper would send the body over HTTP/2. The length stays that of the response to `GET`.
            if let Some(bytes) = response.body().size_hint().exact() {
                response.headers_mut().insert(CONTENT_LENGTH, bytes.into());
            }
            *response.body_mut() = ResponseBody::Left(Full::default());
        }
        response
    }

    /// Responds to a request; the response to `HEAD` still has a body.
    async fn respond_to_any<B>(&self, request: Request<B>) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (mut head, body) = request.into_parts();
        if let Some(response) = self.health(head.uri.path()) {
            return response;
        }
        let form = ErrorFormat::of(head.uri.path());
        match self.api.access.check(&head.headers) {
            Err(error) => return to_http(Err(error.into()), form),
            // A token may be bound to a tenant, which the request need not name.
            Ok(Some(tenant)) => {
                let tenant = HeaderValue::try_from(tenant).expect("a tenant is ASCII");
                head.headers.insert(TENANT, tenant);
            }
            Ok(None) => {}
        }
        if head.uri.path() == "/metrics" {
            let response = match check_read_method(&head.method) {
                Ok(()) => self.metrics_page(&head),
                Err(error) => to_http(Err(error), form),
            };
            return with_allow(response, READ_METHODS);
        }
        if head.uri.path().starts_with(curtail_profile::PREFIX) {
            if let Err(error) = self.api.access.check_process(&head.headers) {
                return to_http(Err(error.into()), form);
            }
            let (path, query) = (head.uri.path(), head.uri.query());
            let profile = curtail_profile::respond(&head.method, path, query).await;
            return profile.map(ResponseBody::Left);
        }
        let timer = self.api.metrics.begin(head.uri.path());
        let (response, methods) = if head.uri.path() == sql::PATH {
            (to_http(self.sql(&head, body).await, form), "POST")
        } else {
            (self.run_query(head).await, READ_METHODS)
        };
        timer.end(response.status(), response.headers().contains_key(INCOMPLETE));
        with_allow(response, methods)
    }

    /// Responds to a health check, which needs no token.
    fn health(&self, path: &str) -> Option<Response<ResponseBody>> {
        let health = match path {
            "/healthz" => Ok(ApiResponse::text("ok")),
            // Grafana's data source for Tempo asks at `/ready`.
            "/readyz" | "/ready" if self.draining.is_begun() => Err(ApiError::draining()),
            "/readyz" | "/ready" => Ok(ApiResponse::text("ready")),
            _ => return None,
        };
        Some(to_http(health, ErrorFormat::Text))
    }

    /// Responds to a scrape of the metrics.
    fn metrics_page(&self, head: &Parts) -> Response<ResponseBody> {
        let accept = head.headers.get_all(ACCEPT).iter();
        let form = form_for(accept.filter_map(|field| field.to_str().ok()));
        let (content_type, page) = self.api.page.render(form);
        let mut response = to_http(Ok(ApiResponse::of(content_type, page)), ErrorFormat::Text);
        response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
        response
    }

    /// Runs a query in SQL.
    async fn sql<B>(&self, head: &Parts, body: B) -> ApiResult
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        if head.method != Method::POST {
            return Err(ApiError::method("POST"));
        }
        let request = QueryRequest::of(&head.uri, &head.headers)?;
        let result = self.sql.respond(&request, body);
        let in_time = tokio::time::timeout(self.patience, result).await;
        in_time.unwrap_or_else(|_| Err(ApiError::late(sql::PATH, self.patience)))
    }

    /// Runs a query on the threads of queries.
    async fn run_query(&self, head: Parts) -> Response<ResponseBody> {
        let until = Instant::now() + self.patience;
        let form = ErrorFormat::of(head.uri.path());
        let late = ApiError::late(head.uri.path(), self.patience);
        let turn = tokio::time::timeout_at(until, Arc::clone(&self.turns).acquire_owned()).await;
        let Ok(turn) = turn else { return to_http(Err(late), form) };
        let task = QueryTask {
            store: Arc::clone(&self.api.store),
            limits: **self.api.limits.load(),
            turns: Arc::clone(&self.turns),
            large: Arc::clone(&self.large),
            turn: turn.ok(),
        };
        let (waits, gone) = oneshot::channel::<()>();
        let (parts, streamed) = body::stream(waits);
        let (to_begin, begun) = oneshot::channel();
        // Nobody waits for the task itself: it ends when the client is gone.
        let _task = self.threads.spawn(async move {
            let mut to_begin = Some(to_begin);
            tokio::select! {
                biased;
                _ = gone => return,
                () = wait_until(until) => {}
                () = task.run(&head, &mut to_begin, parts) => return,
            }
            match to_begin {
                Some(to_begin) => drop(to_begin.send((Err(late), false))),
                None => log_aborted("the client did not read it in time"),
            }
        });
        let failed = |_| (Err(ApiError::failed()), false);
        let (result, is_streamed) = begun.await.unwrap_or_else(failed);
        let mut response = to_http(result, form);
        if is_streamed {
            *response.body_mut() = streamed;
        }
        response
    }
}

/// The head of a response, and whether its body is streamed.
type ResponseStart = (ApiResult, bool);

/// A query of a client.
struct QueryTask {
    store: Arc<Store>,
    limits: Limits,
    turns: Arc<Semaphore>,
    large: Arc<Semaphore>,
    /// The permit to use the threads; released while the client does not read.
    turn: Option<OwnedSemaphorePermit>,
}

impl QueryTask {
    async fn run(
        mut self,
        head: &Parts,
        to_begin: &mut Option<oneshot::Sender<ResponseStart>>,
        parts: mpsc::Sender<BodyPart>,
    ) {
        let mut begin = |begun: ResponseStart| {
            if let Some(to_begin) = to_begin.take() {
                // The client may be gone.
                let _gone = to_begin.send(begun);
            }
        };
        let mut response = match run_request(&self.store, &self.limits, head).await {
            Ok(response) => response,
            Err(error) => return begin((Err(error), false)),
        };
        let Some(mut chunks) = response.rest.take() else { return begin((Ok(response), false)) };
        let Ok(_permit) = Arc::clone(&self.large).try_acquire_owned() else {
            return begin((Err(ApiError::busy()), false));
        };
        let first = std::mem::take(&mut response.body);
        begin((Ok(response), true));
        let known = chunks.unread().len();
        let mut next: Result<_, ApiError> = Ok(Some(first));
        loop {
            let part = match next {
                Ok(Some(chunk)) => BodyPart::Chunk(chunk.into()),
                Ok(None) => BodyPart::End,
                Err(error) => return log_aborted(&error.message),
            };
            let is_end = matches!(part, BodyPart::End);
            if !self.send(&parts, part).await || is_end {
                return;
            }
            next = chunks.next().await;
            if chunks.unread().len() > known && !chunks.has_status() {
                return log_aborted("a part of a run cannot be read");
            }
        }
    }

    /// Sends a part; returns whether the client is still connected.
    async fn send(&mut self, parts: &mpsc::Sender<BodyPart>, part: BodyPart) -> bool {
        let part = match parts.try_send(part) {
            Ok(()) => return true,
            Err(TrySendError::Closed(_)) => return false,
            Err(TrySendError::Full(part)) => part,
        };
        self.turn = None;
        let is_sent = parts.send(part).await.is_ok();
        self.turn = Arc::clone(&self.turns).acquire_owned().await.ok();
        is_sent
    }
}

/// Waits until a deadline. Unlike a timer, this is ready at once if the deadline has passed.
async fn wait_until(until: Instant) {
    while Instant::now() < until {
        tokio::time::sleep_until(until).await;
    }
}

fn log_aborted(why: &str) {
    tracing::warn!(why, "response aborted");
}

fn to_http(result: ApiResult, form: ErrorFormat) -> Response<ResponseBody> {
    let (status, content) = match result {
        Ok(content) => (StatusCode::OK, content),
        Err(error) => {
            tracing::debug!(status = %error.status, message = error.message, "request failed");
            (error.status, error.to_response(form))
        }
    };
    let mut response = Response::new(ResponseBody::Left(Full::new(content.body.into())));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content.content_type);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    match status {
        StatusCode::UNAUTHORIZED => {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
        }
        _ => {}
    }
    if content.unread > 0 {
        response.headers_mut().insert(INCOMPLETE, content.unread.into());
    }
    if let Some(error) = content.quantile_error {
        let error = HeaderValue::try_from(error.to_string()).expect("a number is ASCII");
        response.headers_mut().insert(QUANTILE_ERROR, error);
    }
    response
}

fn check_read_method(method: &Method) -> Result<(), ApiError> {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    if is_read { Ok(()) } else { Err(ApiError::method("GET or HEAD")) }
}

/// Names the methods of the path, if the method of the request is not one of them.
fn with_allow(
    mut response: Response<ResponseBody>,
    methods: &'static str,
) -> Response<ResponseBody> {
    if response.status() == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    }
    response
}

async fn run_request(store: &Arc<Store>, limits: &Limits, head: &Parts) -> ApiResult {
    check_read_method(&head.method)?;
    let request = QueryRequest::of(&head.uri, &head.headers)?;
    if request.path.starts_with("/jaeger/") {
        jaeger::respond(store, limits, &request).await
    } else if request.path.starts_with(v1::PREFIX) {
        v1::respond(store, limits, &request).await
    } else {
        tempo::respond(store, limits, &request).await
    }
}

#[cfg(test)]
mod tests;

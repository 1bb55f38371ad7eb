//! From a request to its answer.

use crate::asked::Asked;
use crate::body::{self, Part, ResponseBody};
use crate::listen::Api;
use crate::metrics::{MetricsPage, QueryMetrics};
use crate::pieces::Pieces;
use crate::query_threads::QueryThreads;
use crate::refusal::{Refusal, RefusalForm};
use crate::sql;
use crate::{Limits, jaeger, tempo, v1};
use arc_swap::ArcSwap;
use bytes::Bytes;
use curtail_http::access::{Access, TENANT};
use curtail_http::drain::DrainSignal;
use curtail_metrics::form_for;
use curtail_store::Store;
use curtail_store::tree::Unread;
use curtail_text::describe_error;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue, RETRY_AFTER, VARY, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
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

/// The number of runs that cannot be read and may have more.
const INCOMPLETE: &str = "curtail-incomplete";

/// The relative error that a quantile in the response may have.
const QUANTILE_ERROR: &str = "curtail-quantile-error";

/// The delay before a retry.
const RETRY_AFTER_S: u64 = 1;

/// Maximum time of a request, from its head to the last byte of its response.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Responses up to this size are sent as a whole, so that status and headers describe all of it.
const WHOLE_BYTES: usize = 4 << 20;

/// The maximum number of responses longer than [`WHOLE_BYTES`] in flight: each keeps that much in memory for as long
/// as its client takes to read it.
const LARGE_RESPONSES_MAX: usize = 16;

/// What was found.
pub(crate) struct Answer {
    of: &'static str,
    body: Vec<u8>,
    /// The rest of a streamed response.
    rest: Option<Box<dyn Pieces>>,
    unread: usize,
    quantile_error: Option<f64>,
}

impl Answer {
    pub(crate) fn json(json: &serde_json::Value) -> Self {
        Self::of("application/json", json.to_string().into_bytes())
    }

    pub(crate) const fn of(of: &'static str, body: Vec<u8>) -> Self {
        Self { of, body, rest: None, unread: 0, quantile_error: None }
    }

    /// A response in pieces. A short one is complete here; a longer one is streamed.
    pub(crate) async fn of_pieces(mut pieces: impl Pieces + 'static) -> Result<Self, Refusal> {
        let mut body = Vec::new();
        while body.len() < WHOLE_BYTES {
            let Some(piece) = pieces.next().await? else {
                let answer = Self::of(pieces.content_type(), body);
                return Ok(answer.without(pieces.unread()));
            };
            body.extend(piece);
        }
        let answer = Self::of(pieces.content_type(), body).without(pieces.unread());
        Ok(Self { rest: Some(Box::new(pieces)), ..answer })
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::of("text/plain; charset=utf-8", format!("{text}\n").into_bytes())
    }

    /// Says which runs may have more.
    pub(crate) fn without(mut self, unread: &[Unread]) -> Self {
        // Of one of them several parts may be damaged.
        let runs: BTreeMap<_, _> = unread.iter().map(|unread| (&unread.path, unread)).collect();
        for Unread { path, error } in runs.values() {
            let error = describe_error(&**error);
            tracing::error!(%path, error, "a run cannot be read");
        }
        self.unread = runs.len();
        self
    }

    /// Sets the relative error that its quantiles may have.
    pub(crate) const fn with_quantile_error(mut self, error: f64) -> Self {
        self.quantile_error = Some(error);
        self
    }
}

/// Answers questions, some at once.
#[derive(Debug)]
pub(crate) struct QueryService {
    access: Arc<Access>,
    store: Arc<Store>,
    limits: Arc<ArcSwap<Limits>>,
    threads: QueryThreads,
    /// One permit per query thread; a request without a permit waits.
    turns: Arc<Semaphore>,
    /// One permit per large response in flight; at the maximum, a request is rejected.
    large: Arc<Semaphore>,
    sql: sql::Asking,
    patience: Duration,
    metrics: Arc<QueryMetrics>,
    page: Arc<dyn MetricsPage>,
    draining: Arc<DrainSignal>,
}

impl QueryService {
    pub(crate) fn new(api: Api, draining: Arc<DrainSignal>) -> io::Result<Self> {
        let Api { access, store, sql, limits, query_threads, metrics, page, .. } = api;
        let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let query_threads = query_threads.unwrap_or_else(cores);
        Ok(Self {
            access,
            store,
            limits,
            threads: QueryThreads::start(query_threads)?,
            turns: Arc::new(Semaphore::new(query_threads)),
            large: Arc::new(Semaphore::new(LARGE_RESPONSES_MAX)),
            sql: sql::Asking::new(sql),
            patience: PATIENCE,
            metrics,
            page,
            draining,
        })
    }

    /// Ends the threads of queries.
    pub(crate) async fn stop(self) {
        self.threads.stop().await;
    }

    pub(crate) fn metrics(&self) -> &QueryMetrics {
        &self.metrics
    }

    /// Responds to a request. Its query ends when this is dropped.
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (mut head, body) = request.into_parts();
        if let Some(response) = self.health(head.uri.path()) {
            return response;
        }
        let form = RefusalForm::of(head.uri.path());
        match self.access.check(&head.headers) {
            Err(error) => return written(Err(error.into()), form),
            // A token may be bound to a tenant, which the request need not name.
            Ok(Some(tenant)) => {
                let tenant = HeaderValue::try_from(tenant).expect("a tenant is ASCII");
                head.headers.insert(TENANT, tenant);
            }
            Ok(None) => {}
        }
        if head.uri.path() == "/metrics" {
            return self.metrics_page(&head);
        }
        let timer = self.metrics.begin(head.uri.path());
        let response = if head.uri.path() == sql::PATH {
            written(self.sql(&head, body).await, form)
        } else {
            self.run_query(head).await
        };
        timer.end(response.status(), response.headers().contains_key(INCOMPLETE));
        response
    }

    /// Responds to a health check, which needs no token.
    fn health(&self, path: &str) -> Option<Response<ResponseBody>> {
        let health = match path {
            "/healthz" => Ok(Answer::text("ok")),
            // Grafana's data source for Tempo asks at `/ready`.
            "/readyz" | "/ready" if self.draining.is_begun() => Err(Refusal::draining()),
            "/readyz" | "/ready" => Ok(Answer::text("ready")),
            _ => return None,
        };
        Some(written(health, RefusalForm::Text))
    }

    /// Responds to a scrape of the metrics.
    fn metrics_page(&self, head: &Parts) -> Response<ResponseBody> {
        let accept = head.headers.get_all(ACCEPT).iter();
        let form = form_for(accept.filter_map(|field| field.to_str().ok()));
        let (content_type, page) = self.page.render(form);
        let mut response = written(Ok(Answer::of(content_type, page)), RefusalForm::Text);
        response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
        response
    }

    /// Has a question in SQL answered by its program.
    async fn sql<B>(&self, head: &Parts, body: B) -> Result<Answer, Refusal>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        if head.method != Method::POST {
            return Err(Refusal::method("POST"));
        }
        let asked = Asked::of(&head.uri, &head.headers)?;
        let answered = self.sql.answer(&asked, body);
        let in_time = tokio::time::timeout(self.patience, answered).await;
        in_time.unwrap_or_else(|_| Err(Refusal::late(self.patience)))
    }

    /// Runs a query on its threads.
    async fn run_query(&self, head: Parts) -> Response<ResponseBody> {
        let (patience, until) = (self.patience, Instant::now() + self.patience);
        let form = RefusalForm::of(head.uri.path());
        let turn = tokio::time::timeout_at(until, Arc::clone(&self.turns).acquire_owned()).await;
        let Ok(turn) = turn else { return written(Err(Refusal::late(patience)), form) };
        let task = QueryTask {
            store: Arc::clone(&self.store),
            limits: **self.limits.load(),
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
            let late = tokio::select! {
                biased;
                _ = gone => return,
                () = wait_until(until) => Refusal::late(patience),
                () = task.run(&head, &mut to_begin, parts) => return,
            };
            match to_begin {
                Some(to_begin) => drop(to_begin.send((Err(late), false))),
                None => log_aborted("the client did not read it in time"),
            }
        });
        let failed = |_| (Err(Refusal::failed()), false);
        let (answered, is_streamed) = begun.await.unwrap_or_else(failed);
        let mut response = written(answered, form);
        if is_streamed {
            *response.body_mut() = ResponseBody::Streamed(streamed);
        }
        response
    }
}

/// The head of a response, and whether its body is streamed.
type ResponseStart = (Result<Answer, Refusal>, bool);

/// A query of a client.
struct QueryTask {
    store: Arc<Store>,
    limits: Limits,
    turns: Arc<Semaphore>,
    large: Arc<Semaphore>,
    /// Released while the client does not read.
    turn: Option<OwnedSemaphorePermit>,
}

impl QueryTask {
    async fn run(
        mut self,
        head: &Parts,
        to_begin: &mut Option<oneshot::Sender<ResponseStart>>,
        parts: mpsc::Sender<Part>,
    ) {
        let mut begin = |begun: ResponseStart| {
            if let Some(to_begin) = to_begin.take() {
                // The client may be gone.
                let _gone = to_begin.send(begun);
            }
        };
        let mut answer = match answered(&self.store, &self.limits, head).await {
            Ok(answer) => answer,
            Err(refusal) => return begin((Err(refusal), false)),
        };
        let Some(mut pieces) = answer.rest.take() else { return begin((Ok(answer), false)) };
        let Ok(_permit) = Arc::clone(&self.large).try_acquire_owned() else {
            return begin((Err(Refusal::busy()), false));
        };
        let first = std::mem::take(&mut answer.body);
        begin((Ok(answer), true));
        let known = pieces.unread().len();
        let mut next: Result<_, Refusal> = Ok(Some(first));
        loop {
            let part = match next {
                Ok(Some(piece)) => Part::Piece(piece.into()),
                Ok(None) => Part::End,
                Err(refusal) => return log_aborted(&refusal.message),
            };
            let is_end = matches!(part, Part::End);
            if !self.send(&parts, part).await || is_end {
                return;
            }
            next = pieces.next().await;
            if pieces.unread().len() > known && !pieces.has_status() {
                return log_aborted("a part of a run cannot be read");
            }
        }
    }

    /// Sends a part; returns whether the client is still there.
    async fn send(&mut self, parts: &mpsc::Sender<Part>, part: Part) -> bool {
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

/// Waits until a deadline. Unlike a timer, it is ready at once when the deadline has passed.
async fn wait_until(until: Instant) {
    while Instant::now() < until {
        tokio::time::sleep_until(until).await;
    }
}

fn log_aborted(why: &str) {
    tracing::warn!(why, "response aborted");
}

fn written(answered: Result<Answer, Refusal>, form: RefusalForm) -> Response<ResponseBody> {
    let (status, answer) = match answered {
        Ok(answer) => (StatusCode::OK, answer),
        Err(refusal) => {
            tracing::debug!(status = %refusal.status, message = refusal.message, "not answered");
            (refusal.status, refusal.written(form))
        }
    };
    let mut response = Response::new(ResponseBody::Whole(Some(answer.body.into())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(answer.of));
    match status {
        StatusCode::UNAUTHORIZED => {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
        }
        _ => {}
    }
    if answer.unread > 0 {
        response.headers_mut().insert(INCOMPLETE, answer.unread.into());
    }
    if let Some(error) = answer.quantile_error {
        let error = HeaderValue::try_from(error.to_string()).expect("a number is ASCII");
        response.headers_mut().insert(QUANTILE_ERROR, error);
    }
    response
}

async fn answered(store: &Arc<Store>, limits: &Limits, head: &Parts) -> Result<Answer, Refusal> {
    if head.method != Method::GET {
        return Err(Refusal::method("GET"));
    }
    let asked = Asked::of(&head.uri, &head.headers)?;
    if asked.path.starts_with("/jaeger/") {
        jaeger::answer(store, limits, &asked).await
    } else if asked.path.starts_with(v1::PREFIX) {
        v1::respond(store, limits, &asked).await
    } else {
        tempo::answer(store, limits, &asked).await
    }
}

#[cfg(test)]
mod tests;

//! From a request to its answer.

use crate::asked::Asked;
use crate::refusal::Refusal;
use crate::sql::{self, Sql};
use crate::{jaeger, tempo};
use bytes::Bytes;
use curtail_store::Store;
use curtail_store::tree::Unread;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Body;
use std::collections::BTreeMap;
use std::error::Error;
use std::iter::successors;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

/// Says how many runs may have more, and cannot be read.
const UNREAD: &str = "curtail-unread";

/// A question that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was found.
#[derive(Debug)]
pub(crate) struct Answer {
    of: &'static str,
    body: Vec<u8>,
    unread: usize,
}

impl Answer {
    pub(crate) fn json(json: &serde_json::Value) -> Self {
        Self::of("application/json", json.to_string().into_bytes())
    }

    pub(crate) const fn of(of: &'static str, body: Vec<u8>) -> Self {
        Self { of, body, unread: 0 }
    }

    fn text(text: &str) -> Self {
        Self::of("text/plain; charset=utf-8", format!("{text}\n").into_bytes())
    }

    /// Says which runs may have more.
    pub(crate) fn without(mut self, unread: &[Unread]) -> Self {
        // Of one of them several parts may be damaged.
        let runs: BTreeMap<_, _> = unread.iter().map(|unread| (&unread.path, unread)).collect();
        for Unread { path, error } in runs.values() {
            let causes = successors(Some(&**error as &dyn Error), |cause| (**cause).source());
            let error = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
            tracing::error!(%path, error, "a run cannot be read");
        }
        self.unread = runs.len();
        self
    }
}

/// Answers questions, some at once.
#[derive(Debug)]
pub(crate) struct Answering {
    store: Arc<Store>,
    /// So many are answered at once, each by a thread; the others wait for their turn.
    turns: Semaphore,
    sql: sql::Asking,
    patience: Duration,
}

impl Answering {
    pub(crate) fn new(store: Arc<Store>, sql: Sql) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (turns, sql) = (Semaphore::new(cores), sql::Asking::new(sql));
        Self { store, turns, sql, patience: PATIENCE }
    }

    /// Answers a question. Who does not wait for the answer makes nobody look for it.
    pub(crate) async fn answer<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let (head, body) = request.into_parts();
        match head.uri.path() {
            "/ready" => written(Ok(Answer::text("ready"))),
            sql::PATH => written(self.sql(&head, body).await),
            _ => written(self.looked_for(head).await),
        }
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

    /// Has a thread look for the answer in the store.
    async fn looked_for(&self, head: Parts) -> Result<Answer, Refusal> {
        let _turn = self.turns.acquire().await;
        let (store, runtime, patience) =
            (Arc::clone(&self.store), Handle::current(), self.patience);
        let (_waits, gone) = oneshot::channel::<()>();
        let looking = tokio::task::spawn_blocking(move || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    _ = gone => Err(Refusal::gone()),
                    () = tokio::time::sleep(patience) => Err(Refusal::late(patience)),
                    answered = answered(&store, &head) => answered,
                }
            })
        });
        looking.await.unwrap_or_else(|_| Err(Refusal::failed()))
    }
}

fn written(answered: Result<Answer, Refusal>) -> Response<Full<Bytes>> {
    let (status, answer) = match answered {
        Ok(answer) => (StatusCode::OK, answer),
        Err(refusal) => {
            tracing::debug!(status = %refusal.status, message = refusal.message, "not answered");
            (refusal.status, Answer::text(&refusal.message))
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(answer.body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(answer.of));
    if answer.unread > 0 {
        response.headers_mut().insert(UNREAD, answer.unread.into());
    }
    response
}

async fn answered(store: &Store, head: &Parts) -> Result<Answer, Refusal> {
    if head.method != Method::GET {
        return Err(Refusal::method("GET"));
    }
    let asked = Asked::of(&head.uri, &head.headers)?;
    if asked.path.starts_with("/jaeger/") {
        jaeger::answer(store, &asked).await
    } else {
        tempo::answer(store, &asked).await
    }
}

#[cfg(test)]
mod tests;

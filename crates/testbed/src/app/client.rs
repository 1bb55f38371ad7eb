//! The client: the app whose latency is measured.
//!
//! | request | response |
//! |---|---|
//! | `GET /work?payload=small`, `…=large` | fetches that payload from storage, posts it to the server, reports the result |
//! | `GET /work` | the same with a random payload: 1 in 20 is the large one |
//! | `GET /stats` | counts of requests and attempts since the start, as JSON |
//! | `GET /healthz` | `ok` |
//!
//! The client retries reads of the storage after every failure. It retries posts to the server only when the server has
//! rejected them, because a post that timed out may have been executed.
//! A response has the milliseconds of `storage`, `server` and `backoff` in `server-timing` (W3C), and the number of
//! retries in `x-retries`.
//! **Failures**: 504 when the last attempt timed out, 503 when it was rejected, otherwise 502.

use super::peer::{Call, Failed, Peer};
use super::{ClientConfig, Config, Requests, json, ok, wait};
use crate::listener::Respond;
use crate::respond::{ConnectionBreak, SERVER_TIMING, expected_method, text};
use bytes::Bytes;
use curtail_units::{Duration, Rng};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use tokio::sync::Semaphore;

/// Maximum number of requests at once; each has a connection to storage or to the server.
pub(super) const WORK_MAX: usize = 256;

/// One payload in this number is large, unless a request names the size.
const LARGE_ONE_IN: f64 = 20.0;

const X_RETRIES: HeaderName = HeaderName::from_static("x-retries");

#[derive(Debug)]
pub(super) struct Client {
    config: ClientConfig,
    server_timeout: Duration,
    storage: Peer,
    server: Peer,
    room: Semaphore,
    requests: Requests,
    failures: AtomicU64,
}

/// Maximum wait before a retry, without its jitter.
const WAIT_MAX: Duration = Duration::from_secs(32);

/// The time that one request spent, by purpose.
#[derive(Clone, Copy, Debug, Default)]
struct TimeBreakdown {
    storage: Duration,
    server: Duration,
    backoff: Duration,
    retries: u32,
}

/// A failed request, with the peer and the reason.
#[derive(Debug)]
struct Failure {
    of: &'static str,
    why: Failed,
}

impl Client {
    /// A client of storage and server at these addresses.
    pub(super) fn new(
        config: &Config,
        (storage, server): (SocketAddr, SocketAddr),
        requests: Requests,
    ) -> Self {
        let client = config.client;
        let server_timeout = if config.causes.short_timeouts {
            client.server_timeout_short
        } else {
            client.server_timeout
        };
        Self {
            config: client,
            server_timeout,
            storage: Peer::new("storage", storage, client.connect_timeout),
            server: Peer::new("server", server, client.connect_timeout),
            room: Semaphore::new(WORK_MAX),
            requests,
            failures: AtomicU64::new(0),
        }
    }

    async fn respond_to<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET {
            return expected_method("GET");
        }
        let payload = match request.uri().path() {
            "/work" => match request.uri().query() {
                None => None,
                Some("payload=small") => Some("/payload/small"),
                Some("payload=large") => Some("/payload/large"),
                Some(_) => {
                    let what = "expected payload=small, payload=large or nothing\n";
                    return text(StatusCode::BAD_REQUEST, what);
                }
            },
            "/stats" => return json(self.stats()),
            "/healthz" => return ok(),
            _ => {
                let what =
                    "expected /work?payload=small, /work?payload=large, /stats or /healthz\n";
                return text(StatusCode::NOT_FOUND, what);
            }
        };
        let Ok(_room) = self.room.try_acquire() else {
            let what = format!("{WORK_MAX} requests are worked on: no room for one more\n");
            return text(StatusCode::SERVICE_UNAVAILABLE, what);
        };
        self.work(payload).await
    }

    async fn work(&self, payload: Option<&str>) -> Response<Full<Bytes>> {
        let rng = self.requests.next();
        let path = payload.unwrap_or_else(|| {
            let is_large = rng.split("payload").chance(1.0 / LARGE_ONE_IN);
            if is_large { "/payload/large" } else { "/payload/small" }
        });
        let mut spent = TimeBreakdown::default();
        let mut response = match self.pass_on(path, &rng, &mut spent).await {
            Ok(echo) => {
                let numbers = 1 + echo.iter().filter(|byte| **byte == b',').count();
                json(format!("{{\"numbers\":{numbers},\"retries\":{}}}\n", spent.retries))
            }
            Err(failure) => {
                self.failures.fetch_add(1, Relaxed);
                failure.response()
            }
        };
        let headers = response.headers_mut();
        headers.insert(X_RETRIES, HeaderValue::from(spent.retries));
        headers.insert(SERVER_TIMING, spent.timing());
        response
    }

    /// Fetches the payload and posts it; returns the response of the server.
    async fn pass_on(
        &self,
        path: &str,
        rng: &Rng,
        spent: &mut TimeBreakdown,
    ) -> Result<Bytes, Failure> {
        let call = Call {
            method: Method::GET,
            path,
            body: Bytes::new(),
            timeout: self.config.storage_timeout,
        };
        let (result, took) = self.call(&self.storage, &call, rng, spent).await;
        spent.storage = took;
        let payload = result?;
        let call = Call {
            method: Method::POST,
            path: "/test",
            body: payload.clone(),
            timeout: self.server_timeout,
        };
        let (result, took) = self.call(&self.server, &call, rng, spent).await;
        spent.server = took;
        let echo = result?;
        if echo != payload {
            let why = Failed::Broken("another array than it was sent".to_owned());
            return Err(Failure { of: self.server.name, why });
        }
        Ok(echo)
    }

    /// Sends a request until it has a response, or may not be sent again; also returns the time of the attempts.
    async fn call(
        &self,
        peer: &Peer,
        call: &Call<'_>,
        rng: &Rng,
        spent: &mut TimeBreakdown,
    ) -> (Result<Bytes, Failure>, Duration) {
        let mut rng = rng.split(peer.name);
        let mut took = Duration::ZERO;
        let mut failed = 0;
        loop {
            let began = Instant::now();
            let result = peer.attempt(call).await;
            took = took + Duration::from(began.elapsed());
            let why = match result {
                Ok(body) => return (Ok(body), took),
                Err(why) => why,
            };
            failed += 1;
            let may_be_repeated = call.method == Method::GET || why == Failed::Refused;
            if failed == self.config.attempts_max || !may_be_repeated {
                return (Err(Failure { of: peer.name, why }), took);
            }
            let backoff = wait_before_retry(self.config.backoff, failed, &mut rng);
            wait(backoff).await;
            spent.backoff = spent.backoff + backoff;
            spent.retries += 1;
            peer.tally.retries.fetch_add(1, Relaxed);
        }
    }

    fn stats(&self) -> String {
        let stats = serde_json::json!({
            "requests": self.requests.count.load(Relaxed),
            "failures": self.failures.load(Relaxed),
            "storage": self.storage.tally.to_json(),
            "server": self.server.tally.to_json(),
        });
        format!("{stats}\n")
    }
}

impl Respond for Client {
    async fn respond(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, ConnectionBreak> {
        Ok(self.respond_to(&request).await)
    }
}

impl Failure {
    fn response(&self) -> Response<Full<Bytes>> {
        let (status, what) = match &self.why {
            Failed::TimedOut => (StatusCode::GATEWAY_TIMEOUT, "it took too long"),
            Failed::Refused => (StatusCode::SERVICE_UNAVAILABLE, "it refused every attempt"),
            Failed::Broken(what) => (StatusCode::BAD_GATEWAY, what.as_str()),
        };
        text(status, format!("{}: {what}\n", self.of))
    }
}

impl TimeBreakdown {
    fn timing(&self) -> HeaderValue {
        let [storage, server, backoff] =
            [self.storage, self.server, self.backoff].map(Duration::as_ms_f64);
        let value =
            format!("storage;dur={storage:.3}, server;dur={server:.3}, backoff;dur={backoff:.3}");
        HeaderValue::try_from(value).expect("digits and plain words")
    }
}

/// Truncated exponential backoff: the wait after `failed` failures (from 1 on), ±50 % at random, so that requests that
/// failed together are not retried together. Google's storage clients do the same.
fn wait_before_retry(backoff: Duration, failed: u32, rng: &mut Rng) -> Duration {
    let doublings = i32::try_from(failed.saturating_sub(1)).unwrap_or(i32::MAX);
    let wait = backoff.mul_f64(2_f64.powi(doublings)).min(WAIT_MAX);
    wait.mul_f64(0.5 + rng.unit())
}

#[cfg(test)]
mod tests {
    use super::{WAIT_MAX, wait_before_retry};
    use curtail_units::{Duration, Rng};

    #[test]
    fn each_wait_is_twice_the_one_before_within_half_of_it_and_truncated() {
        let seed = 7;
        let mut rng = Rng::new(seed);
        for (failed, ms) in [(1, 500), (2, 1_000), (3, 2_000), (7, 32_000), (40, 32_000)] {
            let middle = Duration::from_ms(ms).min(WAIT_MAX);
            let waits: Vec<Duration> = (0..200)
                .map(|_| wait_before_retry(Duration::from_ms(500), failed, &mut rng))
                .collect();
            let (low, high) = (middle.mul_f64(0.5), middle.mul_f64(1.5));
            assert!(waits.iter().all(|wait| (low..=high).contains(wait)), "{failed}, seed {seed}");
            // Uniform: among 200, none in either quarter would be a chance of 2 in 10^25.
            assert!(waits.iter().any(|wait| *wait < middle.mul_f64(0.75)), "{failed}, seed {seed}");
            assert!(waits.iter().any(|wait| *wait > middle.mul_f64(1.25)), "{failed}, seed {seed}");
        }
    }
}

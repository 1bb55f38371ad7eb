//! The storage of payloads.
//!
//! | request | response |
//! |---|---|
//! | `GET /payload/small` | an array of 500 numbers, 3.5 kB |
//! | `GET /payload/large` | the same payload, or with the cause `large_payloads` 100,000 numbers, 0.7 MB |
//! | `GET /healthz` | `ok` |
//!
//! The response begins after a random service time, plus the transfer time of the payload at `bytes_per_second`.

use super::{
    BODY_BYTES_MAX, Config, LARGE_LEN, Requests, SMALL_LEN, StorageConfig, json, ok, wait,
};
use crate::listener::Respond;
use crate::respond::{ConnectionBreak, expected_method, text};
use bytes::Bytes;
use curtail_units::{Duration, Rng};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;

#[derive(Debug)]
pub(super) struct Storage {
    config: StorageConfig,
    small: Bytes,
    large: Bytes,
    requests: Requests,
}

impl Storage {
    /// A storage whose payloads follow from `rng`.
    pub(super) fn new(config: &Config, rng: &Rng, requests: Requests) -> Self {
        let small = numbers(SMALL_LEN, &rng.split("small"));
        let large = if config.causes.large_payloads {
            numbers(LARGE_LEN, &rng.split("large"))
        } else {
            small.clone()
        };
        Self { config: config.storage.clone(), small, large, requests }
    }
}

impl Respond for Storage {
    async fn respond(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, ConnectionBreak> {
        if request.method() != Method::GET {
            return Ok(expected_method("GET"));
        }
        Ok(match request.uri().path() {
            "/payload/small" => self.send(&self.small).await,
            "/payload/large" => self.send(&self.large).await,
            "/healthz" => ok(),
            _ => {
                text(StatusCode::NOT_FOUND, "expected /payload/small, /payload/large or /healthz\n")
            }
        })
    }
}

impl Storage {
    async fn send(&self, payload: &Bytes) -> Response<Full<Bytes>> {
        let mut rng = self.requests.next();
        let per_second = self.config.bytes_per_second.get() as f64;
        let carrying = Duration::from_secs_f64(payload.len() as f64 / per_second);
        wait(self.config.service.draw(&mut rng) + carrying).await;
        json(payload.clone())
    }
}

/// `len` random numbers of six digits, as an array in JSON.
fn numbers(len: usize, rng: &Rng) -> Bytes {
    let mut rng = rng.clone();
    let numbers: Vec<usize> = (0..len).map(|_| 100_000 + rng.below(900_000)).collect();
    let bytes = serde_json::to_vec(&numbers).expect("numbers can be written");
    debug_assert!(bytes.len() <= BODY_BYTES_MAX, "the server would not take it");
    Bytes::from(bytes)
}

//! The server, which processes payloads.
//!
//! | request | response |
//! |---|---|
//! | `POST /test` with an array of numbers | the same array, read and written number by number |
//! | `GET /test` | an array of 999 numbers |
//! | `GET /healthz` | `ok` |
//!
//! A random service time is added to the work on the JSON. With the cause `retries`, the server rejects a share of the
//! payloads with 503 before it reads them.

use super::{BODY_BYTES_MAX, Config, Requests, ServerConfig, json, ok, wait};
use crate::listener::Respond;
use crate::respond::{ConnectionBreak, expected_method, text};
use bytes::Bytes;
use curtail_units::Rng;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;

const NUMBERS: u64 = 999;

#[derive(Debug)]
pub(super) struct Server {
    config: ServerConfig,
    is_refusing: bool,
    requests: Requests,
}

impl Server {
    pub(super) fn new(config: &Config, requests: Requests) -> Self {
        Self { config: config.server.clone(), is_refusing: config.causes.retries, requests }
    }
}

impl Respond for Server {
    async fn respond(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, ConnectionBreak> {
        let is_get = request.method() == Method::GET;
        Ok(match request.uri().path() {
            "/healthz" if is_get => ok(),
            "/healthz" => expected_method("GET"),
            "/test" if is_get => self.send((1..=NUMBERS).collect(), &self.requests.next()).await,
            "/test" if request.method() == Method::POST => self.work_on(request.into_body()).await,
            "/test" => expected_method("GET, POST"),
            _ => text(StatusCode::NOT_FOUND, "expected /test or /healthz\n"),
        })
    }
}

impl Server {
    async fn work_on(&self, body: Incoming) -> Response<Full<Bytes>> {
        let rng = self.requests.next();
        if self.is_refusing && rng.split("refused").chance(self.config.refused.get()) {
            return text(StatusCode::SERVICE_UNAVAILABLE, "refused\n");
        }
        let Ok(body) = Limited::new(body, BODY_BYTES_MAX).collect().await else {
            let what = format!("expected a whole body of at most {BODY_BYTES_MAX} bytes\n");
            return text(StatusCode::BAD_REQUEST, what);
        };
        match serde_json::from_slice(&body.to_bytes()) {
            Ok(numbers) => self.send(numbers, &rng).await,
            Err(error) => {
                let what = format!("expected an array of numbers in JSON: {error}\n");
                text(StatusCode::BAD_REQUEST, what)
            }
        }
    }

    async fn send(&self, numbers: Vec<u64>, rng: &Rng) -> Response<Full<Bytes>> {
        let service = self.config.service.draw(&mut rng.split("service"));
        wait(service).await;
        json(serde_json::to_vec(&numbers).expect("numbers can be written"))
    }
}

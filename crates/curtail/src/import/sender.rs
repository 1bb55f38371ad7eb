//! Sends batches to a server, one after the other over one connection.
//!
//! If the server is full or unavailable (429, 502, 503, 504, no connection, no response), the sender retries: after the
//! time in `Retry-After`, or after a backoff that doubles from 0.5 s to 30 s. It fails if a batch is not accepted
//! within `patience`. The sender does not retry after any other status.
//!
//! **Source**: the OTLP specification 1.x, "OTLP/HTTP Response" and "OTLP/HTTP Throttling".

use crate::server_access::ServerAccessArgs;
use crate::server_url::ServerUrl;
use bytes::Bytes;
use curtail_http::client::{Client, ClientLimits, ClientResponse};
use curtail_http::origin::ServerOrigin;
use curtail_otlp::{Signal, left_out, status_message};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use std::io;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const BACKOFF: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// Maximum time of an exchange, including the connection attempt.
const EXCHANGE_MAX: curtail_units::Duration = curtail_units::Duration::from_secs(60);

/// Responses are short; batches go over one connection.
const LIMITS: ClientLimits = ClientLimits { body_bytes_max: 64 << 10, idle_max: 1 };

#[derive(Debug)]
pub(super) struct Sender {
    target: ServerUrl,
    headers: HeaderMap,
    patience: Duration,
    client: Client<Full<Bytes>>,
}

#[derive(Debug)]
pub(super) enum SendOutcome {
    /// The server accepted all rows except `rejected`, for the reason `why`.
    Accepted { rejected: u64, why: String },
    /// The server rejected the whole batch, and would reject it again.
    Rejected(String),
}

enum Attempt {
    Done(SendOutcome),
    /// The batch may be accepted later.
    Retry {
        why: String,
        after: Option<Duration>,
    },
    /// The server would reject every batch.
    Fail(String),
}

fn path(target: &ServerUrl, signal: Signal) -> String {
    format!("{}{}", target.path, signal.export_path(false))
}

impl Sender {
    pub(super) fn new(
        target: &ServerUrl,
        access: &ServerAccessArgs,
        patience: Duration,
    ) -> anyhow::Result<Self> {
        let mut headers = access.headers()?;
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        headers.insert(header::CONTENT_TYPE, protobuf);
        let client = access.client(target, EXCHANGE_MAX, LIMITS)?;
        Ok(Self { target: target.clone(), headers, patience, client })
    }

    /// Sends a batch until the server decides on it. Calls `report` with the reason of each wait.
    pub(super) async fn send(
        &self,
        (signal, batch): (Signal, &[u8]),
        report: &mut impl FnMut(&str),
    ) -> anyhow::Result<SendOutcome> {
        let body = Bytes::copy_from_slice(batch);
        let (deadline, mut backoff) = (Instant::now() + self.patience, BACKOFF);
        loop {
            let (why, after) = match self.try_once(signal, body.clone()).await {
                Attempt::Done(outcome) => return Ok(outcome),
                Attempt::Fail(why) => return Err(io::Error::other(why).into()),
                Attempt::Retry { why, after } => (why, after),
            };
            let wait = after.unwrap_or(backoff);
            backoff = (2 * backoff).min(BACKOFF_MAX);
            if Instant::now() + wait > deadline {
                let patience = self.patience;
                let why = format!("{why}; nothing was accepted within {patience:?}");
                return Err(io::Error::other(why).into());
            }
            report(&format!("{why}; retry in {wait:?}"));
            sleep(wait).await;
        }
    }

    async fn try_once(&self, signal: Signal, body: Bytes) -> Attempt {
        let request = Request::post(path(&self.target, signal)).body(Full::new(body));
        let Ok(mut request) = request else {
            return Attempt::Fail("its path is not valid".to_owned());
        };
        request.headers_mut().clone_from(&self.headers);
        match self.client.send(request, EXCHANGE_MAX).await {
            Ok(response) => attempt(&self.target.origin, &response),
            Err(error) if error.is_wrong_protocol() => Attempt::Fail(error.to_string()),
            Err(error) => Attempt::Retry { why: error.to_string(), after: None },
        }
    }
}

fn attempt(server: &ServerOrigin, response: &ClientResponse) -> Attempt {
    let ClientResponse { status, body, .. } = response;
    match *status {
        status if response.is_retryable() => Attempt::Retry {
            why: format!("{server}: {status}"),
            after: response.retry_after().map(Duration::from),
        },
        StatusCode::OK => match left_out(body) {
            Ok((rejected, why)) => Attempt::Done(SendOutcome::Accepted { rejected, why }),
            Err(malformed) => {
                Attempt::Fail(format!("{server}: its response is not OTLP's: {malformed}"))
            }
        },
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => {
            Attempt::Done(SendOutcome::Rejected(describe_status(*status, body)))
        }
        status => Attempt::Fail(format!("{server}: {}", describe_status(status, body))),
    }
}

/// The status and the message of the body, a `google.rpc.Status` or text.
fn describe_status(status: StatusCode, body: &[u8]) -> String {
    let text = status_message(body).unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    let readable: String = text.chars().filter(|c| !c.is_control()).take(500).collect();
    let described = format!("{status}: {readable}").trim_end_matches([':', ' ']).to_owned();
    let is_token_missing = status == StatusCode::UNAUTHORIZED;
    if is_token_missing { described + "; pass --token-file" } else { described }
}

#[cfg(test)]
mod tests {
    use super::{ServerUrl, path};
    use curtail_otlp::Signal;

    #[test]
    fn a_target_is_a_url_of_http() {
        for (url, authority, expected) in [
            ("http://127.0.0.1:4318", "127.0.0.1:4318", "/v1/logs"),
            ("http://localhost", "localhost:80", "/v1/logs"),
            ("http://[::1]:4318/otlp/", "[::1]:4318", "/otlp/v1/logs"),
        ] {
            let target = url.parse::<ServerUrl>().expect("a URL");
            assert_eq!(
                (&*target.origin.authority(), &*path(&target, Signal::Logs)),
                (authority, expected)
            );
        }
        for wrong in ["127.0.0.1:4318", "ftp://127.0.0.1", "/v1", "", "http://a?b=c"] {
            assert_eq!(
                wrong.parse::<ServerUrl>().err().as_deref(),
                Some("expected http://HOST:PORT or https://HOST:PORT")
            );
        }
    }
}

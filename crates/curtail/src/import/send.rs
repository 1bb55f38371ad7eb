//! One batch after the other to a server, over one connection.
//!
//! A server that is full or away (429, 502, 503, 504, no connection, no answer) is asked again: after the time
//! that it says, else after one that doubles, from half a second to 30. When it has not taken a batch for as long as
//! patience lasts, that is an error. What else it refuses is refused for good.
//!
//! **Source**: the OTLP specification 1.x, "OTLP/HTTP Response" and "OTLP/HTTP Throttling".

use super::read::Batch;
use crate::server_access::ServerAccessArgs;
use crate::server_url::ServerUrl;
use bytes::Bytes;
use curtail_http::client::{Client, ClientError, ClientLimits, ClientResponse};
use curtail_http::connect::ConnectError;
use curtail_http::origin::ServerOrigin;
use curtail_otlp::{Signal, left_out};
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use std::str::FromStr;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const BACKOFF: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// An exchange that takes longer has failed, connecting included.
const EXCHANGE_MAX: curtail_units::Duration = curtail_units::Duration::from_secs(60);

/// Responses are short; batches go over one connection.
const LIMITS: ClientLimits = ClientLimits { body_bytes_max: 64 << 10, idle_max: 1 };

/// Where to send.
#[derive(Clone, Debug)]
pub(super) struct Target(ServerUrl);

/// The way to a server.
#[derive(Debug)]
pub(super) struct Sender {
    target: Target,
    fields: HeaderMap,
    patience: Duration,
    client: Client<Full<Bytes>>,
}

/// What a server says of a batch.
#[derive(Debug)]
pub(super) enum Verdict {
    /// All but so many rows.
    Taken { refused: u64, why: String },
    /// None of it, and never.
    Refused(String),
}

/// What came of one try.
enum Try {
    Told(Verdict),
    /// It may be taken later.
    Later {
        why: String,
        after: Option<Duration>,
    },
    /// Nothing that we send will be taken.
    Never(String),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let parsed = ServerUrl::parse(url, None).map(Self);
        parsed.ok_or_else(|| "expected http://HOST:PORT or https://HOST:PORT".to_owned())
    }
}

impl Target {
    fn path(&self, signal: Signal) -> String {
        let below = match signal {
            Signal::Traces => "traces",
            Signal::Logs => "logs",
            Signal::Metrics => "metrics",
        };
        format!("{}/v1/{below}", self.0.path)
    }
}

impl Sender {
    /// A sender to `target`, which connects when there is something to send.
    pub(super) fn new(
        target: &Target,
        access: &ServerAccessArgs,
        patience: Duration,
    ) -> anyhow::Result<Self> {
        let mut fields = access.headers()?;
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        fields.insert(header::CONTENT_TYPE, protobuf);
        let client = access.client(&target.0, EXCHANGE_MAX, LIMITS)?;
        Ok(Self { target: target.clone(), fields, patience, client })
    }

    /// Sends a batch until the server says what becomes of it. Whenever that takes patience, `waits` is told why.
    ///
    /// # Errors
    /// When patience ends, or nothing can be sent at all.
    pub(super) async fn send(
        &self,
        batch: &Batch,
        waits: &mut impl FnMut(&str),
    ) -> anyhow::Result<Verdict> {
        let body = Bytes::from(batch.bytes.clone());
        let (until, mut backoff) = (Instant::now() + self.patience, BACKOFF);
        loop {
            let (why, after) = match self.try_once(batch.signal, body.clone()).await {
                Try::Told(verdict) => return Ok(verdict),
                Try::Never(why) => return Err(std::io::Error::other(why).into()),
                Try::Later { why, after } => (why, after),
            };
            let wait = after.unwrap_or(backoff);
            backoff = (2 * backoff).min(BACKOFF_MAX);
            if Instant::now() + wait > until {
                let patience = self.patience;
                let why = format!("{why}; nothing was taken within {patience:?}");
                return Err(std::io::Error::other(why).into());
            }
            waits(&format!("{why}; again in {wait:?}"));
            sleep(wait).await;
        }
    }

    async fn try_once(&self, signal: Signal, body: Bytes) -> Try {
        let mut request = Request::post(self.target.path(signal)).body(Full::new(body));
        if let Ok(request) = &mut request {
            request.headers_mut().clone_from(&self.fields);
        }
        let Ok(request) = request else { return Try::Never("its path is not valid".to_owned()) };
        match self.client.send(request, EXCHANGE_MAX).await {
            Ok(response) => verdict(&self.target.0.origin, &response),
            // An untrusted certificate stays untrusted.
            Err(error @ ClientError::Connect(ConnectError::Tls { .. })) => {
                Try::Never(error.to_string())
            }
            Err(error) => Try::Later { why: error.to_string(), after: None },
        }
    }
}

fn verdict(server: &ServerOrigin, response: &ClientResponse) -> Try {
    let ClientResponse { status, body, .. } = response;
    match *status {
        status if response.is_retryable() => Try::Later {
            why: format!("{server}: {status}"),
            after: response.retry_after().map(Duration::from),
        },
        StatusCode::OK => match left_out(body) {
            Ok((refused, why)) => Try::Told(Verdict::Taken { refused, why }),
            Err(malformed) => {
                Try::Never(format!("{server}: its response is not OTLP's: {malformed}"))
            }
        },
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => {
            Try::Told(Verdict::Refused(said(*status, body)))
        }
        status => Try::Never(format!("{server}: {}", said(status, body))),
    }
}

/// The status, and what can be read of why.
fn said(status: StatusCode, body: &[u8]) -> String {
    let readable =
        |text: &str| text.chars().filter(|c| !c.is_control()).take(500).collect::<String>();
    // A `google.rpc.Status` has its message in field 2, which is text as it stands; other servers send text.
    let text = readable(&String::from_utf8_lossy(body));
    format!("{status} {text}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::Target;
    use curtail_otlp::Signal;

    #[test]
    fn a_target_is_a_url_of_http() {
        for (url, authority, path) in [
            ("http://127.0.0.1:4318", "127.0.0.1:4318", "/v1/logs"),
            ("http://localhost", "localhost:80", "/v1/logs"),
            ("http://[::1]:4318/otlp/", "[::1]:4318", "/otlp/v1/logs"),
        ] {
            let target = url.parse::<Target>().expect("a URL");
            assert_eq!(
                (&*target.0.origin.authority(), &*target.path(Signal::Logs)),
                (authority, path)
            );
        }
        for wrong in ["127.0.0.1:4318", "ftp://127.0.0.1", "/v1", "", "http://a?b=c"] {
            assert_eq!(
                wrong.parse::<Target>().err().as_deref(),
                Some("expected http://HOST:PORT or https://HOST:PORT")
            );
        }
    }
}

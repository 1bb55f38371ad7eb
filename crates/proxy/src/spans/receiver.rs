//! The receiver of spans: one connection to it, one exchange at a time, and what its answers mean.
//!
//! **Source**: OTLP 1.x, sections "OTLP/gRPC Response", "OTLP/HTTP Response" and their retryable codes;
//! "gRPC over HTTP2" for the framing.
//! **Limits**: [`ANSWER_BYTES_MAX`] of an answer are read. Of the ways in which a receiver may ask for
//! patience, `Retry-After` in seconds is understood; a date in its place, and gRPC's `RetryInfo`, are not.

use super::envelope::{self, Parts};
use super::protobuf::{Fields, Value};
use crate::StartError;
use crate::config::{ConnectConfig, Protocol, SpansConfig, SpansProtocol};
use curtail_http::clock::Clock;
use curtail_http::connect::{Connector, Offer};
use curtail_units::Duration;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

/// An answer says a number and perhaps a sentence; what is longer is not from an OTLP receiver.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// What a receiver made of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has the batch, but for so many spans that it would not have.
    Taken { rejected: u64 },
    /// Not now: the same batch may be sent again, after this time if it says so.
    Later { why: String, after: Option<Duration> },
    /// It will never take this batch.
    Never { why: String },
}

/// The receiver as the exporter reaches it.
#[derive(Debug)]
pub(super) struct Receiver {
    connector: Connector,
    clock: Clock,
    protocol: SpansProtocol,
    /// The address in messages, and what is asked for.
    endpoint: String,
    uri: Uri,
    host: HeaderValue,
    /// The connection, once there is one.
    sender: Option<Sender>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Parts>),
    Http2(http2::SendRequest<Parts>),
}

impl Receiver {
    /// # Errors
    /// When the TLS configuration towards the receiver cannot be used.
    pub(super) fn new(config: &SpansConfig, clock: Clock) -> Result<Self, StartError> {
        let authority = config.endpoint.authority();
        let (protocol, uri) = match config.protocol {
            SpansProtocol::Http => (Protocol::Http1, "/v1/traces".to_owned()),
            SpansProtocol::Grpc => {
                let scheme = if config.endpoint.tls { "https" } else { "http" };
                let method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
                (Protocol::Http2, format!("{scheme}://{authority}{method}"))
            }
        };
        let connect = ConnectConfig { protocol, ..ConnectConfig::default() };
        Ok(Self {
            connector: Connector::load(&config.endpoint, &connect)?,
            clock,
            protocol: config.protocol,
            endpoint: config.endpoint.to_string(),
            uri: uri.parse().expect("an address and a path make a URI"),
            host: HeaderValue::from_str(&authority).expect("an authority is visible ASCII"),
            sender: None,
        })
    }

    /// The address in messages.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Sends a batch. A connection that was open before may have been closed by the receiver just now:
    /// then a new one is tried at once.
    pub(super) async fn send(&mut self, body: Parts) -> Verdict {
        if self.sender.as_ref().is_some_and(|sender| !sender.is_closed())
            && let Ok(verdict) = self.exchange(body.clone()).await
        {
            return verdict;
        }
        match self.exchange_on_new(body).await {
            Ok(verdict) => verdict,
            Err(why) => Verdict::Later { why, after: None },
        }
    }

    /// Gives the connection up: an exchange on it was left in the middle.
    pub(super) fn disconnect(&mut self) {
        self.sender = None;
    }

    async fn exchange_on_new(&mut self, body: Parts) -> Result<Verdict, String> {
        self.sender = None;
        let connected =
            self.connector.connect(&self.clock, Offer::All).await.map_err(|e| e.to_string())?;
        let io = TokioIo::new(connected.stream);
        let sender = match self.protocol {
            SpansProtocol::Http => {
                let (sender, connection) =
                    http1::handshake(io).await.map_err(|error| error.to_string())?;
                tokio::spawn(connection);
                Sender::Http1(sender)
            }
            SpansProtocol::Grpc => {
                let (sender, connection) = http2::Builder::new(TokioExecutor::new())
                    .timer(TokioTimer::new())
                    .handshake(io)
                    .await
                    .map_err(|error| error.to_string())?;
                tokio::spawn(connection);
                Sender::Http2(sender)
            }
        };
        self.sender = Some(sender);
        self.exchange(body).await
    }

    async fn exchange(&mut self, body: Parts) -> Result<Verdict, String> {
        let request = self.request(body);
        let answered = match self.sender.as_mut().expect("the caller has connected") {
            Sender::Http1(sender) => match sender.ready().await {
                Ok(()) => sender.send_request(request).await,
                Err(error) => Err(error),
            },
            Sender::Http2(sender) => match sender.ready().await {
                Ok(()) => sender.send_request(request).await,
                Err(error) => Err(error),
            },
        };
        let response = answered.map_err(|error| format!("no answer: {error}"))?;
        self.judge(response).await
    }

    fn request(&self, body: Parts) -> Request<Parts> {
        let mut request = Request::new(body);
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        let agent = concat!("curtail-proxy/", env!("CARGO_PKG_VERSION"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        match self.protocol {
            SpansProtocol::Http => {
                headers.insert(header::HOST, self.host.clone());
                let kind = HeaderValue::from_static("application/x-protobuf");
                headers.insert(header::CONTENT_TYPE, kind);
            }
            SpansProtocol::Grpc => {
                *request.version_mut() = http::Version::HTTP_2;
                let headers = request.headers_mut();
                let kind = HeaderValue::from_static("application/grpc");
                headers.insert(header::CONTENT_TYPE, kind);
                headers.insert(header::TE, HeaderValue::from_static("trailers"));
            }
        }
        request
    }

    async fn judge(&self, response: Response<Incoming>) -> Result<Verdict, String> {
        let (head, body) = response.into_parts();
        let collected = Limited::new(body, ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|error| format!("the answer broke off: {error}"))?;
        let trailers = collected.trailers().cloned();
        let body = collected.to_bytes();
        if head.status != StatusCode::OK {
            return Ok(verdict_on_status(head.status, &head.headers));
        }
        if self.protocol == SpansProtocol::Grpc {
            // An answer without a message has its status among the headers.
            let headers = [trailers.as_ref(), Some(&head.headers)];
            let (code, message) = headers
                .into_iter()
                .flatten()
                .find_map(grpc_status)
                .ok_or("the answer has no grpc-status")?;
            if code != 0 {
                return Ok(verdict_on_grpc(code, &message));
            }
        }
        let rejected = rejected_spans(envelope::unwrap(self.protocol, &body));
        Ok(Verdict::Taken { rejected })
    }
}

impl Sender {
    fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }
}

fn verdict_on_status(status: StatusCode, headers: &HeaderMap) -> Verdict {
    let why = format!("it answers {status}");
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            let after = headers.get(header::RETRY_AFTER).and_then(|v| v.to_str().ok());
            let after = after.and_then(|seconds| seconds.trim().parse().ok());
            Verdict::Later { why, after: after.map(Duration::from_secs) }
        }
        _ => Verdict::Never { why },
    }
}

/// The code and the message of `grpc-status` and `grpc-message`.
fn grpc_status(headers: &HeaderMap) -> Option<(u16, String)> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let code = text("grpc-status")?.parse().ok()?;
    Some((code, text("grpc-message").unwrap_or_default().to_owned()))
}

fn verdict_on_grpc(code: u16, message: &str) -> Verdict {
    let why = format!("it answers gRPC status {code}: {message}");
    match code {
        // CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS.
        1 | 4 | 10 | 11 | 14 | 15 => Verdict::Later { why, after: None },
        _ => Verdict::Never { why },
    }
}

/// `ExportTraceServiceResponse.partial_success.rejected_spans`; absent means none.
fn rejected_spans(message: &[u8]) -> u64 {
    const PARTIAL_SUCCESS: u64 = 1;
    const REJECTED_SPANS: u64 = 1;
    let partial = Fields(message).find_map(|(field, value)| match (field, value) {
        (PARTIAL_SUCCESS, Value::Bytes(partial)) => Some(partial),
        _ => None,
    });
    let mut fields = partial.map(Fields).into_iter().flatten();
    let rejected = fields.find_map(|(field, value)| match (field, value) {
        (REJECTED_SPANS, Value::Int(rejected)) => Some(rejected),
        _ => None,
    });
    rejected.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{Verdict, rejected_spans, verdict_on_status};
    use curtail_units::Duration;
    use http::{HeaderMap, HeaderValue, StatusCode, header};

    #[test]
    fn rejected_spans_are_found_or_none_whatever_the_receiver_writes() {
        for (message, rejected) in [
            (&[][..], 0),
            (&[0x0a, 0], 0),
            (&[0x0a, 3, 0x08, 0x96, 0x01], 150),
            (&[0x0a, 6, 0x12, 1, b'n', 0x08, 7, 0x00], 7),
            // Unknown fields of every wire type before it.
            (&[0x10, 1, 0x19, 1, 2, 3, 4, 5, 6, 7, 8, 0x25, 1, 2, 3, 4, 0x0a, 2, 0x08, 9], 9),
            (&[0x0a, 200, 0x08], 0),
            (&[0x0b], 0),
            (&[0xff; 16], 0),
        ] {
            assert_eq!(rejected_spans(message), rejected, "{message:?}");
        }
    }

    #[test]
    fn a_time_to_wait_is_read_in_seconds() {
        for (retry_after, after) in [
            ("30", Some(Duration::from_secs(30))),
            (" 1 ", Some(Duration::from_secs(1))),
            ("Fri, 31 Dec 1999 23:59:59 GMT", None),
            ("-1", None),
            ("", None),
        ] {
            let value = HeaderValue::from_static(retry_after);
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, value)]);
            let verdict = verdict_on_status(StatusCode::TOO_MANY_REQUESTS, &headers);
            let Verdict::Later { after: read, .. } = verdict else { panic!("{verdict:?}") };
            assert_eq!(read, after, "{retry_after:?}");
        }
    }
}

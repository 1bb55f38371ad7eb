//! The receiver of spans: one connection to it, one exchange at a time, and the meaning of its responses.
//!
//! **Source**: OTLP 1.x, "OTLP/gRPC Response" and "OTLP/HTTP Response"; "gRPC over HTTP2" for the framing.
//! **Limits**: [`LIMITS`]. `Retry-After` is read in seconds; a date there, and gRPC's `RetryInfo`, are ignored.

use super::envelope::{self, Parts};
use crate::StartError;
use crate::config::{ConnectConfig, Protocol, SpansConfig, SpansProtocol};
use curtail_http::access;
use curtail_http::client::{Client, ClientError, ClientLimits, ClientResponse};
use curtail_http::connect::Connector;
use curtail_protobuf::{Fields, Value};
use curtail_units::Duration;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use std::path::PathBuf;

/// A response has a number and perhaps a sentence; a larger one is not from an OTLP receiver.
const LIMITS: ClientLimits = ClientLimits { body_bytes_max: 64 << 10, idle_max: 1 };

/// The result of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The receiver has stored the batch except `rejected` spans.
    Accepted { rejected: u64 },
    /// The same batch may be sent again, after this time if the receiver names one.
    RetryLater { why: String, after: Option<Duration> },
    /// The receiver will never store this batch.
    Rejected { why: String },
}

/// The receiver as the exporter reaches it.
#[derive(Debug)]
pub(crate) struct Receiver {
    client: Client<Parts>,
    protocol: SpansProtocol,
    /// The address in messages.
    endpoint: String,
    token_file: Option<PathBuf>,
    tenant: Option<HeaderValue>,
}

impl Receiver {
    /// Prepares connections to the receiver; nothing is sent.
    ///
    /// # Errors
    /// When the TLS configuration or the token cannot be used.
    pub(crate) fn new(config: &SpansConfig) -> Result<Self, StartError> {
        let protocol = match config.protocol {
            SpansProtocol::Http => Protocol::Http1,
            SpansProtocol::Grpc => Protocol::Http2,
        };
        let ca_file = config.ca_file.clone();
        let connect = ConnectConfig { protocol, ca_file, ..ConnectConfig::default() };
        let tenant = config.tenant.as_deref().map(HeaderValue::from_str);
        let receiver = Self {
            client: Client::new(Connector::load(&config.endpoint, &connect)?, LIMITS),
            protocol: config.protocol,
            endpoint: config.endpoint.to_string(),
            token_file: config.token_file.clone(),
            tenant: tenant.and_then(Result::ok),
        };
        receiver.token()?;
        Ok(receiver)
    }

    /// The address in messages.
    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Sends a batch within `timeout`. A receiver that closes a reused connection may have stored the batch; the proxy
    /// sends it again.
    pub(super) async fn send(&self, body: Parts, timeout: Duration) -> Verdict {
        let token = match self.token() {
            Ok(token) => token,
            Err(error) => return Verdict::RetryLater { why: error.to_string(), after: None },
        };
        let is_reused = self.client.has_idle();
        let send = || self.client.send(self.request(body.clone(), token.clone()), timeout);
        let sending = async {
            match send().await {
                Err(ClientError::NoResponse { .. }) if is_reused => send().await,
                sent => sent,
            }
        };
        // One timeout for both attempts together.
        let sent = tokio::time::timeout(timeout.into(), sending).await;
        let timed_out = |_| Err(ClientError::TimedOut { server: self.endpoint.clone(), timeout });
        match sent.unwrap_or_else(timed_out) {
            Ok(response) => self.judge(&response),
            Err(error) => Verdict::RetryLater { why: error.to_string(), after: None },
        }
    }

    /// The token as it is now: a file may be replaced while the proxy runs.
    fn token(&self) -> Result<Option<HeaderValue>, StartError> {
        let Some(file) = &self.token_file else { return Ok(None) };
        let token = access::read_token(file);
        token.map(Some).map_err(|source| StartError::Token { file: file.clone(), source })
    }

    fn request(&self, body: Parts, token: Option<HeaderValue>) -> Request<Parts> {
        let mut request = Request::new(body);
        *request.method_mut() = http::Method::POST;
        let headers = request.headers_mut();
        headers.extend(token.map(|token| (header::AUTHORIZATION, token)));
        headers.extend(self.tenant.clone().map(|tenant| (access::TENANT, tenant)));
        let agent = concat!("curtail-proxy/", env!("CARGO_PKG_VERSION"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        let (path, kind) = match self.protocol {
            SpansProtocol::Http => ("/v1/traces", "application/x-protobuf"),
            SpansProtocol::Grpc => {
                headers.insert(header::TE, HeaderValue::from_static("trailers"));
                let method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
                (method, "application/grpc")
            }
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        *request.uri_mut() = Uri::from_static(path);
        request
    }

    fn judge(&self, response: &ClientResponse) -> Verdict {
        if response.status == StatusCode::UNAUTHORIZED {
            return self.unauthorized(&response.status.to_string());
        }
        if response.status != StatusCode::OK {
            return verdict_on_status(response);
        }
        if self.protocol == SpansProtocol::Grpc {
            // A response without a message has its status among the headers.
            let headers = [response.trailers.as_ref(), Some(&response.headers)];
            match headers.into_iter().flatten().find_map(grpc_status) {
                Some((0, _)) => {}
                Some((16, message)) => {
                    return self.unauthorized(&format!("gRPC status 16: {message}"));
                }
                Some((code, message)) => return verdict_on_grpc(code, &message),
                None => {
                    let why = "the response has no grpc-status".to_owned();
                    return Verdict::RetryLater { why, after: None };
                }
            }
        }
        Verdict::Accepted {
            rejected: rejected_spans(envelope::unwrap(self.protocol, &response.body)),
        }
    }

    fn unauthorized(&self, status: &str) -> Verdict {
        let advice = match &self.token_file {
            Some(file) => format!("it does not accept the token of {}", file.display()),
            None => "name the file of a token with spans.token_file".to_owned(),
        };
        Verdict::Rejected { why: format!("the receiver responds {status}: {advice}") }
    }
}

fn verdict_on_status(response: &ClientResponse) -> Verdict {
    let why = format!("the receiver responds {}", response.status);
    if response.is_retryable() {
        Verdict::RetryLater { why, after: response.retry_after() }
    } else {
        Verdict::Rejected { why }
    }
}

/// The code and the message of `grpc-status` and `grpc-message`.
fn grpc_status(headers: &HeaderMap) -> Option<(u16, String)> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let code = text("grpc-status")?.parse().ok()?;
    Some((code, text("grpc-message").unwrap_or_default().to_owned()))
}

fn verdict_on_grpc(code: u16, message: &str) -> Verdict {
    let why = format!("the receiver responds gRPC status {code}: {message}");
    match code {
        // CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS.
        1 | 4 | 10 | 11 | 14 | 15 => Verdict::RetryLater { why, after: None },
        _ => Verdict::Rejected { why },
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
    use super::{ClientResponse, Verdict, rejected_spans, verdict_on_status};
    use bytes::Bytes;
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
            let response = ClientResponse {
                status: StatusCode::TOO_MANY_REQUESTS,
                headers: HeaderMap::from_iter([(header::RETRY_AFTER, value)]),
                body: Bytes::new(),
                trailers: None,
            };
            let verdict = verdict_on_status(&response);
            let Verdict::RetryLater { after: read, .. } = verdict else { panic!("{verdict:?}") };
            assert_eq!(read, after, "{retry_after:?}");
        }
    }
}

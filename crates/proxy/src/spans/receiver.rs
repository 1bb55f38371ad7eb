//! The receiver of spans and effects: one connection to it, one exchange at a time, and the meaning of its responses.
//!
//! **Source**: OTLP 1.x, "OTLP/gRPC Response" and "OTLP/HTTP Response".
//! **Limits**: the size of a response body, and one idle connection ([`LIMITS`]). `Retry-After` is read in seconds; a
//! date there, and gRPC's `RetryInfo`, are ignored.

use super::envelope::Parts;
use crate::StartError;
use crate::config::{ConnectConfig, Protocol, SpansConfig, SpansProtocol};
use curtail_http::access;
use curtail_http::client::{Client, ClientError, ClientLimits, ClientResponse};
use curtail_http::connect::Connector;
use curtail_http::grpc;
use curtail_otlp::{Signal, left_out};
use curtail_units::Duration;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use std::path::PathBuf;

/// A response has a number and perhaps a sentence; a larger one is not from an OTLP receiver.
const LIMITS: ClientLimits = ClientLimits { body_bytes_max: 64 << 10, idle_max: 1 };

/// The result of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
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
    /// The path of exports.
    path: &'static str,
    /// The address in messages.
    endpoint: String,
    token_file: Option<PathBuf>,
    tenant: Option<HeaderValue>,
}

impl Receiver {
    /// Prepares connections to the receiver, for one signal; nothing is sent.
    ///
    /// # Errors
    /// When the TLS configuration or the token cannot be used.
    pub(crate) fn new(config: &SpansConfig, signal: Signal) -> Result<Self, StartError> {
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
            path: signal.export_path(config.protocol == SpansProtocol::Grpc),
            endpoint: config.endpoint.to_string(),
            token_file: config.token_file.clone(),
            tenant: tenant.and_then(Result::ok),
        };
        receiver.token()?;
        Ok(receiver)
    }

    /// The address in messages.
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Sends a message in protobuf within `timeout`.
    pub(crate) async fn send_message(&self, message: Vec<u8>, timeout: Duration) -> Verdict {
        self.send(Parts::of(message, self.protocol), timeout).await
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
        headers.insert(header::USER_AGENT, HeaderValue::from_static(crate::USER_AGENT));
        let kind = match self.protocol {
            SpansProtocol::Http => "application/x-protobuf",
            SpansProtocol::Grpc => {
                headers.insert(header::TE, HeaderValue::from_static("trailers"));
                "application/grpc"
            }
        };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        *request.uri_mut() = Uri::from_static(self.path);
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
            match grpc::status(response.trailers.as_ref(), &response.headers) {
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
        let message = match self.protocol {
            SpansProtocol::Http => Ok((response.body.clone(), false)),
            SpansProtocol::Grpc => grpc::unframe(response.body.clone()),
        };
        // A receiver that responds with another message has stored the batch all the same.
        let left_out = message.ok().and_then(|(message, _)| left_out(&message).ok());
        Verdict::Accepted { rejected: left_out.map_or(0, |(rejected, _)| rejected) }
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

fn verdict_on_grpc(code: u16, message: &str) -> Verdict {
    let why = format!("the receiver responds gRPC status {code}: {message}");
    match code {
        // CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS.
        1 | 4 | 10 | 11 | 14 | 15 => Verdict::RetryLater { why, after: None },
        _ => Verdict::Rejected { why },
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientResponse, Verdict, verdict_on_status};
    use bytes::Bytes;
    use curtail_units::Duration;
    use http::{HeaderMap, HeaderValue, StatusCode, header};

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

//! One health check: its request, and the meaning of the response.
//!
//! **Source**: `grpc/health/v1/health.proto` and "gRPC Health Checking Protocol", in the repository of gRPC.

use super::ReplicaHealth;
use crate::USER_AGENT;
use crate::config::{HealthCheckConfig, HealthCheckKind};
use bytes::Bytes;
use curtail_http::client::ClientResponse;
use curtail_http::clock::Clock;
use curtail_http::connect::Offer;
use curtail_http::grpc;
use curtail_protobuf::{Fields, Value, bytes_field};
use curtail_units::Duration;
use http::{HeaderValue, Method, Request, header};
use http_body_util::Full;

const GRPC_PATH: &str = "/grpc.health.v1.Health/Check";

/// `HealthCheckRequest.service`.
const SERVICE: u32 = 1;
/// `HealthCheckResponse.status`.
const STATUS: u64 = 1;
/// The names of `ServingStatus`, from 0.
const STATUS_NAMES: [&str; 4] = ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"];
const SERVING: usize = 1;

/// Maximum length of a replica's message in the log and in `/state`.
const MESSAGE_CHARS_MAX: usize = 200;

/// Checks a replica once.
///
/// # Errors
/// Why the check failed.
pub(super) async fn check(
    health: &ReplicaHealth,
    config: &HealthCheckConfig,
    clock: &Clock,
) -> Result<(), String> {
    let timeout = config.timeout;
    let send = async |request| {
        health.client.send(request, timeout).await.map_err(|error| error.to_string())
    };
    match &config.kind {
        HealthCheckKind::Http { path, host } => {
            check_http_response(&send(http_request(path, host.as_deref())).await?)
        }
        HealthCheckKind::Grpc { service } => {
            check_grpc_response(&send(grpc_request(service)).await?)
        }
        HealthCheckKind::Tcp => connect(health, timeout, clock).await,
    }
}

async fn connect(health: &ReplicaHealth, timeout: Duration, clock: &Clock) -> Result<(), String> {
    let connecting = health.connector.connect(clock, Offer::All);
    match tokio::time::timeout(timeout.into(), connecting).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("{}: no connection within {timeout}", health.connector.server())),
    }
}

fn http_request(path: &str, host: Option<&str>) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    *request.uri_mut() = path.parse().expect("the configuration has checked it");
    let headers = request.headers_mut();
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    headers.extend(host.map(|host| {
        (header::HOST, HeaderValue::from_str(host).expect("the configuration has checked it"))
    }));
    request
}

fn grpc_request(service: &str) -> Request<Full<Bytes>> {
    let mut message = Vec::new();
    if !service.is_empty() {
        bytes_field(&mut message, SERVICE, service.as_bytes());
    }
    let mut body = grpc::prefix(message.len()).expect("it is short").to_vec();
    body.extend(message);
    let mut request = Request::new(Full::from(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = http::Uri::from_static(GRPC_PATH);
    let headers = request.headers_mut();
    headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    request
}

fn check_http_response(response: &ClientResponse) -> Result<(), String> {
    match response.status.as_u16() {
        200..=399 => Ok(()),
        status => Err(format!("status {status}: expected 200 to 399")),
    }
}

fn check_grpc_response(response: &ClientResponse) -> Result<(), String> {
    if response.status != http::StatusCode::OK {
        return Err(format!("HTTP status {}: expected 200", response.status.as_u16()));
    }
    match grpc::status(response.trailers.as_ref(), &response.headers) {
        Some((0, _)) => {}
        Some((5, _)) => {
            return Err("the server does not know the service (gRPC status 5)".to_owned());
        }
        Some((12, _)) => {
            return Err("the server has no grpc.health.v1.Health (gRPC status 12)".to_owned());
        }
        Some((code, message)) => {
            let message: String = message.chars().take(MESSAGE_CHARS_MAX).collect();
            return Err(format!("gRPC status {code}: {message}"));
        }
        None => return Err("the response has no grpc-status".to_owned()),
    }
    let (message, is_compressed) = grpc::unframe(response.body.clone())?;
    if is_compressed {
        return Err("the response is compressed, which the request did not ask for".to_owned());
    }
    let status = Fields(&message).filter_map(|field| match field {
        (STATUS, Value::Int(status)) => usize::try_from(status).ok(),
        _ => None,
    });
    // The last value of a field counts; a missing one is 0.
    match status.last().unwrap_or(0) {
        SERVING => Ok(()),
        other => {
            let name = STATUS_NAMES.get(other).copied().unwrap_or("an unknown status");
            Err(format!("{name}: expected SERVING"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, StatusCode};
    use http_body_util::BodyExt as _;

    fn response(
        status: u16,
        grpc_status: Option<&'static str>,
        body: &'static [u8],
    ) -> ClientResponse {
        let trailers = grpc_status.map(|status| {
            HeaderMap::from_iter([(
                http::HeaderName::from_static("grpc-status"),
                HeaderValue::from_static(status),
            )])
        });
        ClientResponse {
            status: StatusCode::from_u16(status).expect("a status"),
            headers: HeaderMap::new(),
            body: Bytes::from_static(body),
            trailers,
        }
    }

    #[test]
    fn a_status_from_200_to_399_passes() {
        for status in [200, 204, 302, 399] {
            assert_eq!(check_http_response(&response(status, None, b"")), Ok(()), "{status}");
        }
        for status in [199, 400, 404, 503] {
            let error = check_http_response(&response(status, None, b"")).expect_err("it fails");
            assert!(error.contains(&status.to_string()), "{error}");
        }
    }

    #[test]
    fn only_serving_passes() {
        let judged =
            |status, grpc_status, body| check_grpc_response(&response(status, grpc_status, body));
        assert_eq!(judged(200, Some("0"), b"\0\0\0\0\x02\x08\x01"), Ok(()));
        for (status, grpc_status, body, says) in [
            (200, Some("0"), &b"\0\0\0\0\x02\x08\x02"[..], "NOT_SERVING"),
            (200, Some("0"), b"\0\0\0\0\x04\x08\x01\x08\x03", "SERVICE_UNKNOWN"),
            (200, Some("0"), b"\0\0\0\0\0", "UNKNOWN"),
            (200, Some("0"), b"\0\0\0\0\x02\x08\x63", "an unknown status"),
            (200, Some("0"), b"", "5 bytes"),
            (200, Some("0"), b"\x01\0\0\0\x02\x08\x01", "compressed"),
            (200, Some("5"), b"", "does not know the service"),
            (200, Some("12"), b"", "has no grpc.health.v1.Health"),
            (200, Some("14"), b"", "gRPC status 14"),
            (200, None, b"\0\0\0\0\x02\x08\x01", "no grpc-status"),
            (503, Some("0"), b"\0\0\0\0\x02\x08\x01", "HTTP status 503"),
        ] {
            let error = judged(status, grpc_status, body).expect_err("it fails");
            assert!(error.contains(says), "{error}: expected {says}");
        }
    }

    #[test]
    fn the_request_names_the_service() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let body = |service| {
            let collected = runtime.block_on(grpc_request(service).into_body().collect());
            collected.expect("it is in memory").to_bytes()
        };
        assert_eq!(body(""), &b"\0\0\0\0\0"[..]);
        assert_eq!(body("ab"), &b"\0\0\0\0\x04\x0a\x02ab"[..]);
    }
}

//! Responses, in the format of their requests.

use crate::encoding::Encoding;
use crate::rejection::{RETRY_AFTER_S, Rejection};
use crate::request::WireFormat;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use curtail_http::grpc;
use curtail_otlp::{Refused, Signal, json_response, status};
use http::header::{ACCEPT_ENCODING, ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::combinators::WithTrailers;
use http_body_util::{BodyExt as _, Either, Full};
use std::convert::Infallible;
use std::future::{Ready, ready};

/// A short body, then trailers if it acknowledges over gRPC.
pub(crate) type ResponseBody =
    Either<Full<Bytes>, WithTrailers<Full<Bytes>, Ready<Option<Result<HeaderMap, Infallible>>>>>;

/// Acknowledges a durable batch, without its `refused` rows.
pub(crate) fn acknowledge(
    form: WireFormat,
    signal: Signal,
    refused: Refused,
) -> Response<ResponseBody> {
    match form {
        WireFormat::Json => {
            plain(StatusCode::OK, form, json_response(signal, refused).into_bytes())
        }
        WireFormat::Protobuf => plain(StatusCode::OK, form, curtail_otlp::response(refused)),
        WireFormat::Grpc => {
            let message = curtail_otlp::response(refused);
            let prefix = grpc::prefix(message.len()).expect("it is short");
            let mut trailers = HeaderMap::new();
            grpc::set_status(&mut trailers, 0, "");
            let message = Full::from([&prefix, &*message].concat());
            let body = Either::Right(message.with_trailers(ready(Some(Ok(trailers)))));
            plain(StatusCode::OK, form, Vec::new()).map(|_| body)
        }
    }
}

/// Rejects a request.
pub(crate) fn reject(form: WireFormat, rejection: &Rejection) -> Response<ResponseBody> {
    let (reason, message) = (rejection.reason, &*rejection.message);
    let wait_s = reason.is_retryable().then_some(RETRY_AFTER_S);
    let mut response = match form {
        WireFormat::Json => {
            let error = serde_json::json!({"code": reason.grpc(), "message": message});
            plain(reason.status(), form, error.to_string().into_bytes())
        }
        WireFormat::Protobuf => {
            plain(reason.status(), form, status(reason.grpc(), message, wait_s))
        }
        // gRPC has its errors in headers; the status of HTTP is always 200.
        WireFormat::Grpc => plain(StatusCode::OK, form, Vec::new()),
    };
    let headers = response.headers_mut();
    if form == WireFormat::Grpc {
        grpc::set_status(headers, reason.grpc(), message);
        headers.insert("grpc-accept-encoding", HeaderValue::from_static(Encoding::ALL));
        let details = STANDARD_NO_PAD.encode(status(reason.grpc(), message, wait_s));
        let details = HeaderValue::try_from(details).expect("base64 is text");
        headers.insert("grpc-status-details-bin", details);
        return response;
    }
    match reason.status() {
        StatusCode::UNAUTHORIZED => {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            headers.insert(ALLOW, HeaderValue::from_static("POST"));
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(Encoding::ALL));
        }
        _ => {}
    }
    if let Some(wait_s) = wait_s {
        headers.insert(RETRY_AFTER, HeaderValue::from(wait_s));
    }
    response
}

fn plain(status: StatusCode, form: WireFormat, data: Vec<u8>) -> Response<ResponseBody> {
    let content_type = match form {
        WireFormat::Json => "application/json",
        WireFormat::Protobuf => "application/x-protobuf",
        WireFormat::Grpc => "application/grpc",
    };
    let mut response = Response::new(Either::Left(Full::from(data)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

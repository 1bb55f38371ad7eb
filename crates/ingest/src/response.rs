//! Responses, in the format of their requests.

use crate::encoding::Encoding;
use crate::rejection::{RETRY_AFTER_S, Rejection};
use crate::request::WireFormat;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use curtail_otlp::{Refused, Signal, json_response, status};
use http::header::{ACCEPT_ENCODING, ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A short body, then trailers if there are any.
#[derive(Debug, Default)]
pub(crate) struct ResponseBody {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.data.take().map(Frame::data);
        Poll::Ready(data.or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.trailers.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, |data| data.len() as u64))
    }
}

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
            let len = u32::try_from(message.len()).expect("it is short");
            let framed = [&[0], &len.to_be_bytes()[..], &message].concat();
            let mut response = plain(StatusCode::OK, form, framed);
            let ok = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
            response.body_mut().trailers = Some(ok);
            response
        }
    }
}

const GRPC_STATUS: http::HeaderName = http::HeaderName::from_static("grpc-status");

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
        headers.insert(GRPC_STATUS, HeaderValue::from(u16::from(reason.grpc())));
        headers.insert("grpc-message", percent_encoded(message));
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
    let data = (!data.is_empty()).then(|| Bytes::from(data));
    let mut response = Response::new(ResponseBody { data, trailers: None });
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Encodes text for a gRPC header: the percent sign, and all bytes except printable ASCII, become hexadecimal digits.
fn percent_encoded(text: &str) -> HeaderValue {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if matches!(byte, b' '..=b'~') && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    HeaderValue::try_from(encoded).expect("it is printable ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_in_a_field_is_printable() {
        assert_eq!(percent_encoded("100 %: größer\n~"), "100 %25: gr%C3%B6%C3%9Fer%0A~");
    }
}

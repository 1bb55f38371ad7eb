//! What a sender is answered, in the form in which it asked.

use crate::encoding::Encoding;
use crate::refusal::{RETRY_AFTER_S, Refusal};
use crate::request::Form;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use curtail_otlp::{Refused, Signal, json_response, response, status};
use http::header::{ACCEPT_ENCODING, ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A few bytes, then trailers if there are any.
#[derive(Debug, Default)]
pub(crate) struct AnswerBody {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl Body for AnswerBody {
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

/// The batch is durable, but for rows that were left out.
pub(crate) fn taken(form: Form, signal: Signal, refused: Refused) -> Response<AnswerBody> {
    match form {
        Form::Json => plain(StatusCode::OK, form, json_response(signal, refused).into_bytes()),
        Form::Protobuf => plain(StatusCode::OK, form, response(refused)),
        Form::Grpc => {
            let message = response(refused);
            let len = u32::try_from(message.len()).expect("it is short");
            let framed = [&[0], &len.to_be_bytes()[..], &message].concat();
            let mut answer = plain(StatusCode::OK, form, framed);
            let ok = HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static("0"))]);
            answer.body_mut().trailers = Some(ok);
            answer
        }
    }
}

const GRPC_STATUS: http::HeaderName = http::HeaderName::from_static("grpc-status");

/// The batch is not taken.
pub(crate) fn refused(form: Form, refusal: &Refusal) -> Response<AnswerBody> {
    let (kind, message) = (refusal.kind, &*refusal.message);
    let wait_s = kind.comes_again().then_some(RETRY_AFTER_S);
    let mut answer = match form {
        Form::Json => {
            let said = serde_json::json!({"code": kind.grpc(), "message": message});
            plain(kind.status(), form, said.to_string().into_bytes())
        }
        Form::Protobuf => plain(kind.status(), form, status(kind.grpc(), message, wait_s)),
        // gRPC's own errors are in fields, beside a status of HTTP that means nothing.
        Form::Grpc => plain(StatusCode::OK, form, Vec::new()),
    };
    let headers = answer.headers_mut();
    if form == Form::Grpc {
        headers.insert(GRPC_STATUS, HeaderValue::from(u16::from(kind.grpc())));
        headers.insert("grpc-message", percent_encoded(message));
        headers.insert("grpc-accept-encoding", HeaderValue::from_static(Encoding::ALL));
        let details = STANDARD_NO_PAD.encode(status(kind.grpc(), message, wait_s));
        let details = HeaderValue::try_from(details).expect("base64 is text");
        headers.insert("grpc-status-details-bin", details);
        return answer;
    }
    match kind.status() {
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
    answer
}

fn plain(status: StatusCode, form: Form, data: Vec<u8>) -> Response<AnswerBody> {
    let content_type = match form {
        Form::Json => "application/json",
        Form::Protobuf => "application/x-protobuf",
        Form::Grpc => "application/grpc",
    };
    let data = (!data.is_empty()).then(|| Bytes::from(data));
    let mut answer = Response::new(AnswerBody { data, trailers: None });
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// As gRPC has text in a field: what is not printable ASCII, and the percent sign, as hexadecimal digits.
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

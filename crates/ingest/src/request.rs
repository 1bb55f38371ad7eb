//! What a request is of, and how it is written.

use crate::encoding::Encoding;
use crate::refusal::{Kind, Refusal};
use curtail_http::access::{Access, AccessError};
use curtail_otlp::Signal;
use curtail_store::NOBODY;
use http::{HeaderMap, Method, header, request};

/// What the head of a request says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) signal: Signal,
    pub(crate) form: Form,
    pub(crate) encoding: Encoding,
    pub(crate) tenant: String,
}

/// How a batch is written, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Protobuf,
    Json,
    /// Protobuf, in gRPC's frame.
    Grpc,
}

impl Form {
    /// That of a request; what cannot be told is answered as protobuf.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
        let media_type = value.split(';').next().unwrap_or_default().trim();
        match media_type.to_ascii_lowercase().as_str() {
            "application/x-protobuf" | "application/protobuf" => Some(Self::Protobuf),
            "application/json" => Some(Self::Json),
            "application/grpc" | "application/grpc+proto" => Some(Self::Grpc),
            _ => None,
        }
    }
}

/// Reads the head of a request.
pub(crate) fn asked(head: &request::Parts, access: &Access) -> Result<Asked, Refusal> {
    let tenant = access.check(&head.headers)?.unwrap_or_else(|| NOBODY.to_owned());
    let path = head.uri.path();
    let Some((signal, is_grpc)) = signal(path) else {
        let message =
            format!("nothing is received at {path}: expected /v1/traces, /v1/logs or /v1/metrics");
        return Err(Kind::NotFound.refuse(message));
    };
    if head.method != Method::POST {
        return Err(Kind::Method.refuse(format!("{} at {path}: expected POST", head.method)));
    }
    let form = Form::of(&head.headers).filter(|form| (*form == Form::Grpc) == is_grpc);
    let Some(form) = form else {
        let expected =
            if is_grpc { "application/grpc" } else { "application/x-protobuf or application/json" };
        let found = text(&head.headers, header::CONTENT_TYPE.as_str()).unwrap_or("none");
        return Err(
            Kind::Unsupported.refuse(format!("content-type is {found}: expected {expected}"))
        );
    };
    let name = if is_grpc { "grpc-encoding" } else { header::CONTENT_ENCODING.as_str() };
    let encoding =
        Encoding::named(text(&head.headers, name).unwrap_or("identity")).ok_or_else(|| {
            Kind::Unsupported.refuse(format!("{name} is not one of {}", Encoding::ALL))
        })?;
    Ok(Asked { signal, form, encoding, tenant })
}

/// What a path is of, and whether it is one of gRPC.
fn signal(path: &str) -> Option<(Signal, bool)> {
    Some(match path {
        "/v1/traces" => (Signal::Traces, false),
        "/v1/logs" => (Signal::Logs, false),
        "/v1/metrics" => (Signal::Metrics, false),
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export" => (Signal::Traces, true),
        "/opentelemetry.proto.collector.logs.v1.LogsService/Export" => (Signal::Logs, true),
        "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export" => {
            (Signal::Metrics, true)
        }
        _ => return None,
    })
}

impl From<AccessError> for Refusal {
    fn from(error: AccessError) -> Self {
        let kind = match error {
            AccessError::NoToken | AccessError::UnknownToken => Kind::Unauthenticated,
            AccessError::OtherTenant(_) => Kind::Forbidden,
            AccessError::BadTenant => Kind::Malformed,
        };
        kind.refuse(error.to_string())
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests;

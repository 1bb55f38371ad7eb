//! The head of an export request: signal, format, compression and tenant.

use crate::encoding::Encoding;
use crate::rejection::{RejectReason, Rejection};
use curtail_http::access::{Access, AccessError};
use curtail_otlp::Signal;
use curtail_store::DEFAULT_TENANT;
use http::{HeaderMap, Method, header, request};

/// An export request without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExportRequest {
    pub(crate) signal: Signal,
    pub(crate) form: WireFormat,
    pub(crate) encoding: Encoding,
    pub(crate) tenant: String,
}

/// The format of a request and of its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireFormat {
    Protobuf,
    Json,
    /// Protobuf in a gRPC frame.
    Grpc,
}

impl WireFormat {
    /// The format that `content-type` names.
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
pub(crate) fn parse(head: &request::Parts, access: &Access) -> Result<ExportRequest, Rejection> {
    let tenant = access.check(&head.headers)?.unwrap_or_else(|| DEFAULT_TENANT.to_owned());
    let path = head.uri.path();
    let Some((signal, is_grpc)) = Signal::of_export_path(path) else {
        let message =
            format!("nothing is received at {path}: expected /v1/traces, /v1/logs or /v1/metrics");
        return Err(RejectReason::NotFound.reject(message));
    };
    if head.method != Method::POST {
        return Err(
            RejectReason::Method.reject(format!("{} at {path}: expected POST", head.method))
        );
    }
    let form = WireFormat::of(&head.headers).filter(|form| (*form == WireFormat::Grpc) == is_grpc);
    let Some(form) = form else {
        let expected =
            if is_grpc { "application/grpc" } else { "application/x-protobuf or application/json" };
        let found = text(&head.headers, header::CONTENT_TYPE.as_str()).unwrap_or("none");
        return Err(RejectReason::Unsupported
            .reject(format!("content-type is {found}: expected {expected}")));
    };
    let name = if is_grpc { "grpc-encoding" } else { header::CONTENT_ENCODING.as_str() };
    let encoding =
        Encoding::named(text(&head.headers, name).unwrap_or("identity")).ok_or_else(|| {
            RejectReason::Unsupported.reject(format!("{name} is not one of {}", Encoding::ALL))
        })?;
    Ok(ExportRequest { signal, form, encoding, tenant })
}

impl From<AccessError> for Rejection {
    fn from(error: AccessError) -> Self {
        let reason = match error {
            AccessError::NoToken | AccessError::UnknownToken => RejectReason::Unauthenticated,
            AccessError::OtherTenant(_) | AccessError::BoundToTenant => RejectReason::Forbidden,
            AccessError::BadTenant | AccessError::Repeated(_) => RejectReason::Malformed,
        };
        reason.reject(error.to_string())
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests;

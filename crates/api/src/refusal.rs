//! Why a question is not answered, in the terms of HTTP.

use crate::answer::Answer;
use crate::v1;
use curtail_http::access::AccessError;
use curtail_store::query::AggregateError;
use curtail_traceql::{Fault, QueryError};
use http::StatusCode;
use serde_json::json;
use std::time::Duration;

/// Why a question is not answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

/// How a refusal is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalForm {
    Text,
    /// As our own paths.
    V1,
    /// As the first version of Jaeger's API.
    Jaeger,
    /// As its third version.
    JaegerThird,
}

impl RefusalForm {
    /// The form that clients of a path read.
    pub(crate) fn of(path: &str) -> Self {
        match path {
            _ if path.starts_with("/jaeger/api/v3/") => Self::JaegerThird,
            _ if path.starts_with("/jaeger/") => Self::Jaeger,
            _ if path.starts_with(v1::PREFIX) => Self::V1,
            _ => Self::Text,
        }
    }
}

impl Refusal {
    pub(crate) fn written(&self, form: RefusalForm) -> Answer {
        let (code, message) = (self.status.as_u16(), &*self.message);
        Answer::json(&match form {
            RefusalForm::Text => return Answer::text(message),
            RefusalForm::V1 => json!({ "error": { "status": code, "message": message } }),
            RefusalForm::Jaeger => json!({
                "data": null, "total": 0, "limit": 0, "offset": 0,
                "errors": [{ "code": code, "msg": message }],
            }),
            RefusalForm::JaegerThird => {
                json!({ "error": { "httpCode": code, "message": message } })
            }
        })
    }

    /// What was asked is wrong.
    pub(crate) fn wrong(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: message.into() }
    }

    /// What was asked is right, and not answered here.
    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_IMPLEMENTED, message: message.into() }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, message: message.into() }
    }

    pub(crate) fn method(expected: &str) -> Self {
        let message = format!("expected {expected}");
        Self { status: StatusCode::METHOD_NOT_ALLOWED, message }
    }

    /// The response would exceed the limits.
    pub(crate) fn large(message: &str) -> Self {
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, message: message.to_owned() }
    }

    /// Too many large responses are being sent.
    pub(crate) fn busy() -> Self {
        let message = "too many large responses are being sent; retry later".to_owned();
        Self { status: StatusCode::SERVICE_UNAVAILABLE, message }
    }

    /// The server is stopping.
    pub(crate) fn draining() -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, message: "draining".to_owned() }
    }

    /// It takes too long.
    pub(crate) fn late(patience: Duration) -> Self {
        let message = format!("it was not answered within {patience:?}: ask for a shorter time");
        Self { status: StatusCode::GATEWAY_TIMEOUT, message }
    }

    /// Whoever looked for the answer has failed.
    pub(crate) fn failed() -> Self {
        let message = "the server failed at this: its log says why".to_owned();
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, message }
    }

    /// What was kept cannot be written as it was sent.
    pub(crate) fn damaged() -> Self {
        let message = "the trace is damaged".to_owned();
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, message }
    }
}

impl From<AccessError> for Refusal {
    fn from(error: AccessError) -> Self {
        let status = match error {
            AccessError::NoToken | AccessError::UnknownToken => StatusCode::UNAUTHORIZED,
            AccessError::OtherTenant(_) => StatusCode::FORBIDDEN,
            AccessError::BadTenant => StatusCode::BAD_REQUEST,
        };
        Self { status, message: error.to_string() }
    }
}

impl From<QueryError> for Refusal {
    fn from(not: QueryError) -> Self {
        let message = format!("q: {not}");
        match not.fault {
            Fault::Unsupported(_) => Self::unsupported(message),
            Fault::Expected { .. } | Fault::Too(_) => Self::wrong(message),
        }
    }
}

impl From<AggregateError> for Refusal {
    fn from(not: AggregateError) -> Self {
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, message: not.to_string() }
    }
}

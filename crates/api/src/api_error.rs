//! Errors of the API: a status and a message.

use crate::metrics::QueryKind;
use crate::query_service::ApiResponse;
use crate::v1;
use curtail_http::access::AccessError;
use curtail_store::query::AggregateError;
use curtail_traceql::{Fault, QueryError};
use http::StatusCode;
use serde_json::json;
use std::time::Duration;

/// An error for a client.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
}

/// The format of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorFormat {
    Text,
    /// The format of the paths below `/api/v1`.
    V1,
    /// The format of version 1 of Jaeger's API.
    Jaeger,
    /// The format of version 3 of Jaeger's API.
    JaegerThird,
}

impl ErrorFormat {
    /// Returns the format that clients of a path expect.
    pub(crate) fn of(path: &str) -> Self {
        match path {
            _ if path.starts_with("/jaeger/api/v3/") => Self::JaegerThird,
            _ if path.starts_with("/jaeger/") => Self::Jaeger,
            _ if path.starts_with(v1::PREFIX) => Self::V1,
            _ => Self::Text,
        }
    }
}

impl ApiError {
    pub(crate) fn to_response(&self, form: ErrorFormat) -> ApiResponse {
        let (code, message) = (self.status.as_u16(), &*self.message);
        ApiResponse::json(&match form {
            ErrorFormat::Text => return ApiResponse::text(message),
            ErrorFormat::V1 => json!({ "error": { "status": code, "message": message } }),
            ErrorFormat::Jaeger => json!({
                "data": null, "total": 0, "limit": 0, "offset": 0,
                "errors": [{ "code": code, "msg": message }],
            }),
            ErrorFormat::JaegerThird => {
                json!({ "error": { "httpCode": code, "message": message } })
            }
        })
    }

    /// The request is invalid.
    pub(crate) fn wrong(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: message.into() }
    }

    /// The request is valid, but not supported.
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

    /// Too many large responses are in flight.
    pub(crate) fn busy() -> Self {
        let message = "too many large responses are being sent; retry later".to_owned();
        Self { status: StatusCode::SERVICE_UNAVAILABLE, message }
    }

    /// The server is stopping.
    pub(crate) fn draining() -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, message: "draining".to_owned() }
    }

    /// The query of this path exceeded its time limit.
    pub(crate) fn late(path: &str, patience: Duration) -> Self {
        let remedy = match QueryKind::of_path(path) {
            QueryKind::Trace | QueryKind::Logs | QueryKind::Other => {
                "the server is busy or its storage is slow; retry later"
            }
            QueryKind::Search
            | QueryKind::Tags
            | QueryKind::Metrics
            | QueryKind::Sql
            | QueryKind::Explain
            | QueryKind::Predict => "query a shorter time range",
        };
        let message = format!("the query took longer than {patience:?}: {remedy}");
        Self { status: StatusCode::GATEWAY_TIMEOUT, message }
    }

    /// The query failed.
    pub(crate) fn failed() -> Self {
        let message = "the server failed: see its log for the error".to_owned();
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, message }
    }

    /// The stored rows cannot be written as OTLP.
    pub(crate) fn damaged() -> Self {
        let message = "the trace is damaged".to_owned();
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, message }
    }
}

impl From<AccessError> for ApiError {
    fn from(error: AccessError) -> Self {
        let status = match error {
            AccessError::NoToken | AccessError::UnknownToken => StatusCode::UNAUTHORIZED,
            AccessError::OtherTenant(_) | AccessError::BoundToTenant => StatusCode::FORBIDDEN,
            AccessError::BadTenant | AccessError::Repeated(_) => StatusCode::BAD_REQUEST,
        };
        Self { status, message: error.to_string() }
    }
}

impl From<QueryError> for ApiError {
    fn from(not: QueryError) -> Self {
        let message = format!("q: {not}");
        match not.fault {
            Fault::Unsupported(_) => Self::unsupported(message),
            Fault::Expected { .. } | Fault::Too(_) => Self::wrong(message),
        }
    }
}

impl From<AggregateError> for ApiError {
    fn from(not: AggregateError) -> Self {
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, message: not.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::ApiError;
    use std::time::Duration;

    #[test]
    fn a_late_query_without_a_time_range_is_to_be_retried() {
        for (path, remedy) in [
            ("/api/search", "query a shorter time range"),
            ("/api/metrics/query_range", "query a shorter time range"),
            ("/api/v2/traces/1", "retry later"),
            ("/jaeger/api/traces/1", "retry later"),
            ("/api/v1/traces/1/logs", "retry later"),
        ] {
            let error = ApiError::late(path, Duration::from_secs(60));
            assert!(error.message.ends_with(remedy), "{path}: {}", error.message);
        }
    }
}

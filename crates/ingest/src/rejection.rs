//! Reasons of rejected requests, as statuses of HTTP and codes of gRPC.

use http::StatusCode;

/// The delay before a retry.
pub(crate) const RETRY_AFTER_S: u64 = 1;

/// A rejected request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: RejectReason,
    /// The input that was wrong, and what was expected.
    pub(crate) message: String,
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectReason {
    /// The body is not a valid batch.
    Malformed,
    /// The batch is too large.
    TooLong,
    /// The body did not arrive in time.
    Slow,
    /// The token is missing or unknown.
    Unauthenticated,
    /// The origin, or the tenant of the token, is not allowed.
    Forbidden,
    /// The path is unknown.
    NotFound,
    /// The method is not `POST`.
    Method,
    /// The format or the compression is unknown.
    Unsupported,
    /// Too many bytes are in progress; retry later.
    Exhausted,
    /// The log cannot write now; retry later.
    Unavailable,
}

impl RejectReason {
    /// The names in metrics, in the order of the variants.
    pub(crate) const NAMES: &[&str] = &[
        "malformed",
        "too_long",
        "slow",
        "unauthenticated",
        "forbidden",
        "not_found",
        "method",
        "unsupported",
        "exhausted",
        "unavailable",
    ];

    pub(crate) fn reject(self, message: impl Into<String>) -> Rejection {
        Rejection { reason: self, message: message.into() }
    }

    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::TooLong => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Unsupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Exhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// The code of gRPC. Senders retry after 8 and 14 only.
    pub(crate) const fn grpc(self) -> u8 {
        match self {
            Self::Malformed | Self::TooLong | Self::Slow => 3,
            Self::NotFound | Self::Method | Self::Unsupported => 12,
            Self::Forbidden => 7,
            Self::Exhausted => 8,
            Self::Unavailable => 14,
            Self::Unauthenticated => 16,
        }
    }

    /// Whether the same request may succeed later.
    pub(crate) const fn is_retryable(self) -> bool {
        matches!(self, Self::Exhausted | Self::Unavailable)
    }
}

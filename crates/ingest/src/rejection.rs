//! Reasons for rejected requests, with their HTTP statuses and gRPC codes.

use http::StatusCode;

/// The delay before a retry.
pub(crate) const RETRY_AFTER_S: u64 = 1;

/// A rejected request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: RejectReason,
    /// The invalid input, and the expected input.
    pub(crate) message: String,
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
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

curtail_units::labels!(RejectReason {
    Malformed => "malformed",
    TooLong => "too_long",
    Slow => "slow",
    Unauthenticated => "unauthenticated",
    Forbidden => "forbidden",
    NotFound => "not_found",
    Method => "method",
    Unsupported => "unsupported",
    Exhausted => "exhausted",
    Unavailable => "unavailable",
});

impl RejectReason {
    pub(crate) fn reject(self, message: impl Into<String>) -> Rejection {
        Rejection { reason: self, message: message.into() }
    }

    /// The status over HTTP and the code over gRPC. Senders retry after 429, 502, 503 and 504, and after the codes 1, 4,
    /// 10, 11, 14, 15, and 8 with a delay (OTLP specification 1.5, "Failures").
    const fn codes(self) -> (StatusCode, u8) {
        match self {
            Self::Malformed => (StatusCode::BAD_REQUEST, 3),
            Self::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, 3),
            Self::Slow => (StatusCode::SERVICE_UNAVAILABLE, 4),
            Self::Unauthenticated => (StatusCode::UNAUTHORIZED, 16),
            Self::Forbidden => (StatusCode::FORBIDDEN, 7),
            Self::NotFound => (StatusCode::NOT_FOUND, 12),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, 12),
            Self::Unsupported => (StatusCode::UNSUPPORTED_MEDIA_TYPE, 12),
            Self::Exhausted => (StatusCode::TOO_MANY_REQUESTS, 8),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, 14),
        }
    }

    pub(crate) const fn status(self) -> StatusCode {
        self.codes().0
    }

    pub(crate) const fn grpc(self) -> u8 {
        self.codes().1
    }

    /// Whether the same request may succeed later.
    pub(crate) const fn is_retryable(self) -> bool {
        matches!(self, Self::Slow | Self::Exhausted | Self::Unavailable)
    }
}

//! Why a request is not taken, in the words of HTTP and of gRPC.

use http::StatusCode;

/// The delay before a retry.
pub(crate) const RETRY_AFTER_S: u64 = 1;

/// A request that is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) kind: Kind,
    /// For people: what was wrong, and what was expected.
    pub(crate) message: String,
}

/// Whose fault it is, and what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The batch is none.
    Malformed,
    /// It is too long.
    TooLong,
    /// It did not come in time.
    Slow,
    /// No token that is known.
    Unauthenticated,
    /// The origin, or the tenant of the token, is not allowed.
    Forbidden,
    /// Nothing is received there.
    NotFound,
    /// It must be a `POST`.
    Method,
    /// It is written, or compressed, in a way that is not understood.
    Unsupported,
    /// Too much is being received; retry later.
    Exhausted,
    /// It cannot be made durable now; retry later.
    Unavailable,
}

impl Kind {
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

    pub(crate) fn refuse(self, message: impl Into<String>) -> Refusal {
        Refusal { kind: self, message: message.into() }
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

    /// The code of gRPC. Senders of OTLP retry after some of them: not after those of their own faults.
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

    /// Whether the same request may be taken later.
    pub(crate) const fn comes_again(self) -> bool {
        matches!(self, Self::Exhausted | Self::Unavailable)
    }
}

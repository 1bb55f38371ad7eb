//! Why a request is refused before it goes anywhere.

use http::StatusCode;

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    /// The constant name of what is wrong.
    pub(crate) error: &'static str,
    /// What exactly.
    pub(crate) why: &'static str,
}

impl Fault {
    /// The client did not send its headers in time.
    pub(crate) const SLOW: Self = Self {
        status: StatusCode::REQUEST_TIMEOUT,
        error: "client_slow",
        why: "its head did not come in time",
    };

    pub(crate) const HEAD_TOO_LONG: Self = Self {
        status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        error: "head_too_long",
        why: "its head is longer than `limits.headers`, or has more than 128 fields",
    };

    pub(crate) const TARGET_TOO_LONG: Self = Self {
        status: StatusCode::URI_TOO_LONG,
        error: "target_too_long",
        why: "its target is longer than 65534 bytes, or than `limits.headers`",
    };

    pub(crate) const CONNECT: Self =
        Self { status: StatusCode::NOT_IMPLEMENTED, error: "connect_unsupported", why: "" };

    /// RFC 9112, section 6.1: a coding that is not understood cannot be passed on under its own name.
    pub(crate) const TRANSFER_CODING: Self = Self {
        status: StatusCode::NOT_IMPLEMENTED,
        error: "bad_transfer_encoding",
        why: "it has a transfer coding other than one `chunked`",
    };

    pub(crate) const NO_ROUTE: Self =
        Self { status: StatusCode::NOT_FOUND, error: "no_route", why: "" };

    pub(crate) const AMBIGUOUS_PATH: Self = Self {
        status: StatusCode::BAD_REQUEST,
        error: "ambiguous_path",
        why: "servers read its path in different ways, which lead to different routes",
    };

    /// What came is not a valid request.
    pub(crate) const fn bad(why: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error: "bad_request", why }
    }

    /// It does not name exactly one valid host.
    pub(crate) const fn bad_host(why: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error: "bad_host", why }
    }
}

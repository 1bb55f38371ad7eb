//! The reasons to reject a request before it reaches an upstream.

use http::StatusCode;

/// The reason to reject a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: StatusCode,
    /// The stable name of the error.
    pub(crate) error: &'static str,
    /// The detail, for people.
    pub(crate) why: &'static str,
}

impl Fault {
    /// The client did not send its headers in time.
    pub(crate) const SLOW: Self = Self {
        status: StatusCode::REQUEST_TIMEOUT,
        error: "client_slow",
        why: "the request headers did not arrive in time",
    };

    pub(crate) const HEAD_TOO_LONG: Self = Self {
        status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        error: "head_too_long",
        why: "the request headers are larger than `limits.headers`, or there are more than 128",
    };

    pub(crate) const TARGET_TOO_LONG: Self = Self {
        status: StatusCode::URI_TOO_LONG,
        error: "target_too_long",
        why: "the request target is longer than 65534 bytes, or than `limits.headers`",
    };

    pub(crate) const CONNECT: Self =
        Self { status: StatusCode::NOT_IMPLEMENTED, error: "connect_unsupported", why: "" };

    /// RFC 9112, section 6.1: a proxy cannot forward a transfer coding that it does not understand.
    pub(crate) const TRANSFER_CODING: Self = Self {
        status: StatusCode::NOT_IMPLEMENTED,
        error: "bad_transfer_encoding",
        why: "the request has a transfer coding other than one `chunked`",
    };

    pub(crate) const NO_ROUTE: Self =
        Self { status: StatusCode::NOT_FOUND, error: "no_route", why: "" };

    pub(crate) const AMBIGUOUS_PATH: Self = Self {
        status: StatusCode::BAD_REQUEST,
        error: "ambiguous_path",
        why: "servers may interpret the request path in different ways, which match different routes",
    };

    /// The request is malformed.
    pub(crate) const fn bad(why: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error: "bad_request", why }
    }

    /// The request does not name exactly one valid host.
    pub(crate) const fn bad_host(why: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error: "bad_host", why }
    }
}

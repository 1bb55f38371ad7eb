//! The reasons for rejecting a request because of its head.

use http::StatusCode;

/// The reason for rejecting a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The status of the response.
    pub status: StatusCode,
    /// The stable name of the error.
    pub error: &'static str,
    /// The detail, for people.
    pub why: &'static str,
}

impl Fault {
    /// The client did not send its headers in time.
    pub const SLOW: Self = Self {
        status: StatusCode::REQUEST_TIMEOUT,
        error: "client_slow",
        why: "the request headers did not arrive in time",
    };

    /// The headers are too large or too many.
    pub const HEAD_TOO_LONG: Self = Self {
        status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        error: "head_too_long",
        why: "the request headers are larger than `limits.headers`, or there are more than 128",
    };

    /// The request target is too long.
    pub const TARGET_TOO_LONG: Self = Self {
        status: StatusCode::URI_TOO_LONG,
        error: "target_too_long",
        why: "the request target is longer than 65534 bytes, or than `limits.headers`",
    };

    /// `CONNECT` is not supported.
    pub const CONNECT: Self =
        Self { status: StatusCode::NOT_IMPLEMENTED, error: "connect_unsupported", why: "" };

    /// Extended `CONNECT` (RFC 8441) is supported for WebSockets only; the status is that of RFC 9220, section 3.
    pub const CONNECT_PROTOCOL: Self =
        Self { why: "`:protocol` is not `websocket`", ..Self::CONNECT };

    /// A WebSocket handshake over HTTP/2 for a response that is made of several.
    pub const CONNECT_FAN_OUT: Self = Self { why: "the route is a fan-out", ..Self::CONNECT };

    /// Over HTTP/2, any status 2xx would tell the client that its WebSocket is open.
    pub const UPGRADE_DECLINED: Self = Self {
        status: StatusCode::BAD_GATEWAY,
        error: "upgrade_declined",
        why: "the replica responded with success, but opened no WebSocket",
    };

    /// RFC 9112, section 6.1: a proxy cannot forward a transfer coding that it does not understand.
    pub const TRANSFER_CODING: Self = Self {
        status: StatusCode::NOT_IMPLEMENTED,
        error: "bad_transfer_encoding",
        why: "the request has a transfer coding other than one `chunked`",
    };

    /// A header that servers may read as a framing header.
    pub const FRAMING_ALIAS: Self = Self::bad(
        "some servers read `content_length` or `transfer_encoding` as the header with `-`",
    );

    /// The scheme of a request over HTTP/2.
    pub const SCHEME: Self = Self::bad("the scheme is not http or https");

    /// The request is malformed.
    #[must_use]
    pub const fn bad(why: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error: "bad_request", why }
    }

    /// The request does not name exactly one valid host.
    #[must_use]
    pub const fn bad_host(why: &'static str) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error: "bad_host", why }
    }
}

//! The fields that a proxy reads.

/// A field that a proxy reads, or any other field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[expect(missing_docs, reason = "the other variants are named after their fields")]
pub enum Known {
    /// Any other field.
    Other,
    Connection,
    ContentLength,
    Cookie,
    /// The class of a request or an attempt: a client may set it, a root sets it for its leaves.
    CurtailClass,
    /// The constant name of the error, in every response of the proxy itself.
    CurtailError,
    /// Whether a request is in the holdout of the root that drew it: `1`, or `0`.
    CurtailHoldout,
    /// The leaf's report of an attempt that it did not execute: `refused` or `twin-started`.
    CurtailLeaf,
    /// The load of a server, in a leaf's response to a probe.
    CurtailLoad,
    /// The tie of an attempt: `<id, 16 hex digits>;<first|second>;<authority of the twin's leaf>`.
    CurtailTie,
    Date,
    Expect,
    GrpcStatus,
    Host,
    KeepAlive,
    /// The number of proxies that may still forward the request.
    MaxForwards,
    ProxyAuthenticate,
    ProxyConnection,
    SecWebsocketAccept,
    SecWebsocketKey,
    Te,
    /// The trace and the parent span of the request.
    Traceparent,
    /// The vendor fields of tracing systems.
    Tracestate,
    TransferEncoding,
    Upgrade,
    Forwarded,
    ForwardedFor,
    ForwardedProto,
    /// Any other field that names the client of a forwarded request, or whose name some servers read as such a field's
    /// name.
    ForwardedOther,
    /// `content_length`, `transfer_encoding`: some servers read `_` in names as `-`, and would read another framing.
    FramingAlias,
}

impl Known {
    #[cfg(test)]
    const ALL: [Self; 27] = [
        Self::Connection,
        Self::ContentLength,
        Self::Cookie,
        Self::CurtailClass,
        Self::CurtailError,
        Self::CurtailHoldout,
        Self::CurtailLeaf,
        Self::CurtailLoad,
        Self::CurtailTie,
        Self::Date,
        Self::Expect,
        Self::GrpcStatus,
        Self::Host,
        Self::KeepAlive,
        Self::MaxForwards,
        Self::ProxyAuthenticate,
        Self::ProxyConnection,
        Self::SecWebsocketAccept,
        Self::SecWebsocketKey,
        Self::Te,
        Self::Traceparent,
        Self::Tracestate,
        Self::TransferEncoding,
        Self::Upgrade,
        Self::Forwarded,
        Self::ForwardedFor,
        Self::ForwardedProto,
    ];

    /// Returns the name in lower case.
    #[must_use]
    #[inline]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Other | Self::ForwardedOther | Self::FramingAlias => "",
            Self::Connection => "connection",
            Self::ContentLength => "content-length",
            Self::Cookie => "cookie",
            Self::CurtailClass => "curtail-class",
            Self::CurtailError => "curtail-error",
            Self::CurtailHoldout => "curtail-holdout",
            Self::CurtailLeaf => "curtail-leaf",
            Self::CurtailLoad => "curtail-load",
            Self::CurtailTie => "curtail-tie",
            Self::Date => "date",
            Self::Expect => "expect",
            Self::GrpcStatus => "grpc-status",
            Self::Host => "host",
            Self::KeepAlive => "keep-alive",
            Self::MaxForwards => "max-forwards",
            Self::ProxyAuthenticate => "proxy-authenticate",
            Self::ProxyConnection => "proxy-connection",
            Self::SecWebsocketAccept => "sec-websocket-accept",
            Self::SecWebsocketKey => "sec-websocket-key",
            Self::Te => "te",
            Self::Traceparent => "traceparent",
            Self::Tracestate => "tracestate",
            Self::TransferEncoding => "transfer-encoding",
            Self::Upgrade => "upgrade",
            Self::Forwarded => "forwarded",
            Self::ForwardedFor => "x-forwarded-for",
            Self::ForwardedProto => "x-forwarded-proto",
        }
    }

    /// The bits of all fields that name the client of a forwarded request.
    pub const FORWARDED: u32 = Self::Forwarded.bit()
        | Self::ForwardedFor.bit()
        | Self::ForwardedProto.bit()
        | Self::ForwardedOther.bit();

    /// Returns the field with this name, which is in lower case.
    #[must_use]
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        // The first letter and the length tell nearly all names apart; what is left is one comparison.
        let shape = (name.first().copied().unwrap_or_default(), name.len());
        let known = match shape {
            (b'c', 10) => Self::Connection,
            (b'c', 14) => Self::ContentLength,
            (b'c', 6) => Self::Cookie,
            (b'c', 13) if name.ends_with(b"class") => Self::CurtailClass,
            (b'c', 13) => Self::CurtailError,
            (b'c', 15) => Self::CurtailHoldout,
            (b'c', 12) if name.ends_with(b"leaf") => Self::CurtailLeaf,
            (b'c', 12) => Self::CurtailLoad,
            (b'c', 11) => Self::CurtailTie,
            (b'd', 4) => Self::Date,
            (b'e', 6) => Self::Expect,
            (b'g', 11) => Self::GrpcStatus,
            (b'h', 4) => Self::Host,
            (b'k', 10) => Self::KeepAlive,
            (b'm', 12) => Self::MaxForwards,
            (b'p', 18) => Self::ProxyAuthenticate,
            (b'p', 16) => Self::ProxyConnection,
            (b's', 20) => Self::SecWebsocketAccept,
            (b's', 17) => Self::SecWebsocketKey,
            (b't', 2) => Self::Te,
            (b't', 11) => Self::Traceparent,
            (b't', 10) => Self::Tracestate,
            (b't', 17) => Self::TransferEncoding,
            (b'u', 7) => Self::Upgrade,
            (b'f', 9) => Self::Forwarded,
            (b'x', 15) => Self::ForwardedFor,
            (b'x', 17) => Self::ForwardedProto,
            (b'x', _) => Self::ForwardedOther,
            _ => return Self::Other,
        };
        if known.name().as_bytes() == name {
            known
        } else if shape.0 == b'x' && is_forwarded(name) {
            Self::ForwardedOther
        } else if matches!(known, Self::ContentLength | Self::TransferEncoding)
            && begins_with(name, known.name().as_bytes())
        {
            Self::FramingAlias
        } else {
            Self::Other
        }
    }

    /// Returns the bit of the field; each field has its own bit.
    #[must_use]
    #[inline]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Whether a name is `x-real-ip` or begins with `x-forwarded-`.
fn is_forwarded(name: &[u8]) -> bool {
    let real_ip = b"x-real-ip";
    begins_with(name, b"x-forwarded-")
        || (name.len() == real_ip.len() && begins_with(name, real_ip))
}

/// Whether a name begins with `start` for a server that maps fields to variables (CGI, WSGI) and reads `_` as `-`.
fn begins_with(name: &[u8], start: &[u8]) -> bool {
    let is_same = |(byte, wanted): (&u8, &u8)| byte == wanted || (*byte == b'_' && *wanted == b'-');
    name.len() >= start.len() && name.iter().zip(start).all(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_known_by_its_name_alone() {
        let mut bits = Known::Other.bit();
        for known in Known::ALL {
            let name = known.name();
            assert_eq!(Known::of(name.as_bytes()), known);
            assert_eq!(bits & known.bit(), 0, "{name}");
            bits |= known.bit();
            let changed = |at: usize| [&name[..at], "~", &name[at + 1..]].concat();
            for other in (0..name.len()).map(changed).chain([format!("{name}x"), String::new()]) {
                let is_forwarded = other.starts_with("x-forwarded-");
                let want = if is_forwarded { Known::ForwardedOther } else { Known::Other };
                assert_eq!(Known::of(other.as_bytes()), want, "{other}");
            }
        }
    }

    #[test]
    fn names_that_a_server_may_read_as_another_field_are_known() {
        for name in
            ["x-forwarded-host", "x-forwarded-", "x_forwarded-for", "x_real_ip", "x-real-ip"]
        {
            assert_eq!(Known::of(name.as_bytes()), Known::ForwardedOther, "{name}");
        }
        for name in ["content_length", "transfer_encoding"] {
            assert_eq!(Known::of(name.as_bytes()), Known::FramingAlias, "{name}");
        }
        for name in [
            "x-forwarded",
            "x-real-ipx",
            "x-request-id",
            "x",
            "forwarded-for",
            "x--real-ip",
            "content_lengths",
        ] {
            assert_eq!(Known::of(name.as_bytes()), Known::Other, "{name}");
        }
    }
}

//! The client of a request: its connection, and its address and scheme behind trusted proxies.
//!
//! All parts of the proxy that name the client of a request or its scheme ask here: the access log, limits by client,
//! changes of headers, redirects and spans.
//!
//! A [head](RequestHead) has its forwarding headers as the replicas get them: those of other clients than trusted proxies
//! have been replaced.

use crate::config::{ClientRange, Scheme};
use crate::leaf::Leaf;
use crate::metrics::{ClientTimeout, ListenerMetrics};
use curtail_http::head::{Known, RequestHead};
use curtail_http::proxy_protocol::ConnectionAddresses;
use curtail_policy::Reason;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The error of a request whose client was too slow to send it, or to read the response.
pub(crate) const CLIENT_SLOW: &str = "client_slow";

/// The client's side of a request's connection.
#[derive(Debug)]
pub(crate) struct Client {
    /// The two ends of the client's connection, by its PROXY header if there is one; absent on a Unix socket.
    pub(crate) addresses: Option<ConnectionAddresses>,
    /// The canonical address of the other end; absent on a Unix socket.
    pub(crate) address: Option<IpAddr>,
    /// The address of the other end, as `x-forwarded-for` has it; `unix:` on a Unix socket.
    pub(crate) address_text: String,
    /// Whether the other end is a trusted proxy, whose forwarded fields are kept.
    pub(crate) is_trusted: bool,
    /// The trusted proxies (`trusted_proxies`).
    pub(crate) trusted: Arc<[ClientRange]>,
    pub(crate) tls: bool,
    /// The leaf of the listener; [`None`] on a listener of the root.
    pub(crate) leaf: Option<Arc<Leaf>>,
    /// The name of the listener.
    pub(crate) listener: String,
    pub(crate) metrics: Arc<ListenerMetrics>,
    /// Whether the connection of HTTP/2 was closed because the client did not read for `limits.write_timeout`.
    pub(crate) has_write_timeout: AtomicBool,
}

impl Client {
    /// Counts that the connection of HTTP/2 is closed because the client does not read.
    pub(crate) fn count_write_timeout(&self) {
        self.metrics.timed_out.add(&ClientTimeout::Write, 1);
        self.has_write_timeout.store(true, Relaxed);
    }

    /// The error of a request that ends with its connection or stream.
    pub(crate) fn end_error(&self) -> &'static str {
        if self.has_write_timeout.load(Relaxed) { CLIENT_SLOW } else { Reason::ClientGone.name() }
    }

    /// The address of the client of a request: that of the connection or, behind trusted proxies, the last one of
    /// `x-forwarded-for` that is no trusted proxy. Clients on Unix sockets without such a field have none.
    pub(crate) fn origin(&self, head: &RequestHead) -> Option<IpAddr> {
        let mut address = self.address;
        if !self.is_trusted {
            return address;
        }
        let list = head.fields.get(Known::ForwardedFor).unwrap_or_default();
        for text in list.rsplit(|byte| *byte == b',') {
            let Some(before) = parse_address(text) else { break };
            address = Some(before);
            if !self.trusted.iter().any(|range| range.contains(address)) {
                break;
            }
        }
        address
    }

    /// [`Self::origin`] as text.
    pub(crate) fn origin_text(&self, head: &RequestHead) -> Cow<'_, str> {
        let origin = self.origin(head);
        match origin.filter(|_| origin != self.address) {
            Some(other) => other.to_string().into(),
            None => Cow::Borrowed(&self.address_text),
        }
    }

    /// The scheme with which the client of a request sent it, or with which a trusted proxy in front received it.
    pub(crate) fn scheme(&self, head: &RequestHead) -> Scheme {
        let own = if self.tls { Scheme::Https } else { Scheme::Http };
        // Without a trusted proxy, the field has no other value. Not looking for it saves time for each span.
        if self.is_trusted { forwarded_scheme(head).unwrap_or(own) } else { own }
    }
}

/// The scheme in `x-forwarded-proto`, which all requests to replicas have.
pub(crate) fn forwarded_scheme(head: &RequestHead) -> Option<Scheme> {
    let first = head.fields.words(Known::ForwardedProto).next()?;
    let is_https = first.eq_ignore_ascii_case(b"https");
    Some(if is_https { Scheme::Https } else { Scheme::Http })
}

/// An element of `x-forwarded-for`; some proxies add the port.
fn parse_address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let address = text.parse().ok().or_else(|| text.parse().ok().map(|with: SocketAddr| with.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::{Client, Scheme};
    use crate::config::{ClientRange, Network};
    use crate::spans::sample;
    use curtail_http::head::RequestHead;
    use http::Request;

    fn head(fields: &[(&str, &str)]) -> RequestHead {
        let request = fields
            .iter()
            .fold(Request::get("/"), |request, (name, value)| request.header(*name, *value));
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        RequestHead::try_from(parts).expect("a valid request")
    }

    #[test]
    fn the_client_is_the_last_address_that_is_no_trusted_proxy() {
        let trusted = ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"]
            .map(|text| ClientRange::Network(Network::parse(text).expect("a range")));
        for (is_trusted, list, expected) in [
            (false, "203.0.113.9, 192.0.2.7", "192.0.2.7"),
            (true, "192.0.2.7", "192.0.2.7"),
            (true, "203.0.113.9, 192.0.2.7", "203.0.113.9"),
            (true, "203.0.113.9,10.1.2.3 ,192.0.2.7", "203.0.113.9"),
            // The client itself may have sent the first one.
            (true, "198.51.100.1, 203.0.113.9, 10.1.2.3, 192.0.2.7", "203.0.113.9"),
            (true, "10.9.9.9, 10.1.2.3, 192.0.2.7", "10.9.9.9"),
            (true, "203.0.113.9, unknown, 10.1.2.3, 192.0.2.7", "10.1.2.3"),
            (true, "203.0.113.9:4711, 192.0.2.7", "203.0.113.9"),
            (true, "[2001:db9::1]:80, 2001:db8::5, 192.0.2.7", "2001:db9::1"),
            (true, "::ffff:203.0.113.9, 192.0.2.7", "203.0.113.9"),
            (true, ",, 192.0.2.7", "192.0.2.7"),
        ] {
            let client = Client { is_trusted, trusted: trusted.into(), ..sample::client() };
            let head = head(&[("x-forwarded-for", list)]);
            let origin = client.origin(&head).expect("an address").to_string();
            assert_eq!((&*origin, &*client.origin_text(&head)), (expected, expected), "{list}");
        }
    }

    #[test]
    fn the_scheme_is_that_of_the_first_trusted_proxy() {
        let client = |is_trusted, tls| Client { is_trusted, tls, ..sample::client() };
        for is_trusted in [false, true] {
            assert_eq!(client(is_trusted, false).scheme(&head(&[])), Scheme::Http);
            assert_eq!(client(is_trusted, true).scheme(&head(&[])), Scheme::Https);
        }
        let forwarded = head(&[("x-forwarded-proto", "HTTPS, http")]);
        assert_eq!(client(true, false).scheme(&forwarded), Scheme::Https);
        assert_eq!(client(false, false).scheme(&forwarded), Scheme::Http, "anybody can send it");
    }
}

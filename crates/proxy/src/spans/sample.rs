//! Trails as tests make them.

use super::prepared::{PreparedReplica, PreparedRoute};
use crate::client::Client;
use crate::config::ReplicaUrl;
use crate::trace_context::TraceContext;
use crate::trail::{AttemptEnd, AttemptTrail, Destination, RequestEnd, Trail};
use curtail_http::head::RequestHead;
use curtail_http::proxy_protocol::ConnectionAddresses;
use curtail_policy::{AttemptId, Choice, Class, Reason};
use curtail_units::Instant;
use http::{Request, StatusCode};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(crate) const CONTEXT: TraceContext = TraceContext {
    trace_id: [0xab; 16],
    span_id: [0xcd; 8],
    parent: Some([0xef; 8]),
    sampled: true,
    random: false,
};

/// The instant this number of milliseconds after the proxy's start.
pub(crate) const fn ms(ms: u64) -> Instant {
    Instant::from_ns(ms * 1_000_000)
}

/// A client in clear text.
pub(crate) fn client() -> Client {
    let address = Ipv4Addr::new(192, 0, 2, 7);
    let end = SocketAddr::from((address, 1));
    Client {
        addresses: Some(ConnectionAddresses { client: end, server: end }),
        address: Some(address.into()),
        address_text: address.to_string(),
        is_trusted: false,
        trusted: [].into(),
        tls: false,
        leaf: None,
        listener: "in".to_owned(),
        metrics: Arc::default(),
        has_write_timeout: AtomicBool::new(false),
    }
}

/// The trail of a request that arrived at 10 ms.
pub(crate) fn trail(request: Request<()>) -> Trail {
    let (parts, ()) = request.into_parts();
    let mut trail = Trail::new(
        CONTEXT,
        ms(10),
        Arc::new(RequestHead::try_from(parts).expect("a valid request")),
        Arc::new(client()),
    );
    let route = Arc::new(PreparedRoute::new("/api", Some("accounts")));
    trail.destination = Some(Destination { route, class: Class::Interactive });
    trail
}

pub(crate) fn get(uri: &str) -> Request<()> {
    Request::get(uri).header("host", "api.example:81").body(()).expect("a request")
}

/// An attempt to the `replica`-th replica, sent at `sent` for `reason`; its span id repeats `id`.
pub(crate) fn attempt(id: u8, replica: usize, sent: Instant, reason: Reason) -> AttemptTrail {
    let url = ReplicaUrl::parse(["http://10.0.0.7:8080", "https://[::1]"][replica]);
    let replica = PreparedReplica::new("accounts", &url.expect("an address"));
    let to = (Arc::new(replica), Choice::Turn);
    AttemptTrail::new([id; 8], sent, to, (Class::Interactive, None), reason)
}

/// The usual request: one attempt, successful.
pub(crate) fn usual() -> Trail {
    let mut trail = trail(get("/api/users/7?token=secret"));
    let (first, choice) = (AttemptId(0), Choice::FewerInFlight { in_flight: 2, other: 5 });
    trail.sent(AttemptTrail { choice, ..attempt(1, 0, ms(11), Reason::First) });
    trail.responded(first, ms(13), StatusCode::OK);
    trail.won(first);
    trail.attempt_ended(first, ms(14), AttemptEnd::Responded);
    trail.end = Some(RequestEnd {
        at: ms(15),
        status: Some(StatusCode::OK),
        error: None,
        reason: Some(Reason::FirstAccepted),
    });
    trail
}

//! One request of a client: routed, classified, admitted, sent, answered.

use crate::answer::{Answer, AnswerBody, HeldBody};
use crate::body::{ClientBody, ClientFault, Replay};
use crate::driver::Upstream;
use crate::leaf::{Admission, Leaf, Place, TWIN_STARTED_PATH};
use crate::metrics::ListenerMetrics;
use crate::root::{self, NoAnswer, Outgoing};
use crate::site::Site;
use crate::trail::{Destination, RequestEnd, Trail};
use crate::tunnel::Tunnel;
use crate::worker::Worker;
use crate::{headers, probe};
use bytes::Bytes;
use curtail_policy::{Class, Failure, TieId, Unanswered};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header, request};
use std::sync::Arc;

/// What leaves answer by themselves.
const LEAF_PATHS: &str = "/.curtail/";

/// What is known of the connection that a request came on.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its address, as it is written in `x-forwarded-for`.
    pub(crate) address: HeaderValue,
    pub(crate) tls: bool,
    /// The leaf that listens there; [`None`] on a listener of the root.
    pub(crate) leaf: Option<Arc<Leaf>>,
    pub(crate) metrics: Arc<ListenerMetrics>,
}

/// Answers a request; an error of ours is an answer too.
pub(crate) async fn answer(
    worker: Arc<Worker>,
    client: Arc<Client>,
    request: Request<Option<ClientBody>>,
) -> Response<AnswerBody> {
    let site = worker.shared.site.load_full();
    let leaf = client.leaf.as_ref();
    if let Some(response) = leaf.and_then(|leaf| answer_for_leaf(&worker, leaf, &request)) {
        return response;
    }
    let started = worker.shared.lasting.clock.now();
    let context = worker.trace_context(request.headers());
    let upgrade = headers::upgrade(request.headers());
    let (mut parts, body) = request.into_parts();
    let mut trail = Box::new(Trail::new(context, started, &parts, client.tls));
    if let Some((status, error)) = unacceptable(&parts) {
        return refuse(&worker, *trail, status, error);
    }
    let Some((upstream, idempotent)) = destination(&site, &client, &parts, &mut trail) else {
        client.metrics.unrouted();
        return refuse(&worker, *trail, StatusCode::NOT_FOUND, "no_route");
    };
    let class = trail.destination.as_ref().map_or_else(Class::default, |d| d.class);
    let place = match &client.leaf {
        None => None,
        Some(leaf) => match leaf.admit(&worker, class, parts.headers.get(headers::TIE)).await {
            Admission::Started(place) => Some(place),
            Admission::TwinStarted => return leaf_says("twin-started"),
            Admission::Refused => return leaf_says("refused"),
        },
    };
    if site.config.spans.is_some() {
        trail.context.clean(&mut parts.headers);
    }
    let outgoing = outgoing(&site, &client, (parts, body), (class, idempotent), upgrade);
    let body = outgoing.body.clone();
    match root::exchange(&worker, Arc::clone(&upstream), outgoing, trail).await {
        Ok(answer) => give(&worker, &client, answer, place),
        Err((no_answer, trail)) => {
            drop((place, body));
            no_answer_response(&worker, &upstream, no_answer, *trail)
        }
    }
}

/// Why a request that could be read goes nowhere all the same: what it says could be read in two ways, by
/// us and by a server behind us, and then one of us is deceived.
fn unacceptable(parts: &request::Parts) -> Option<(StatusCode, &'static str)> {
    if parts.method == Method::CONNECT {
        return Some((StatusCode::NOT_IMPLEMENTED, "connect_unsupported"));
    }
    if parts.version == Version::HTTP_2 {
        return None;
    }
    // RFC 9112, section 3.2.
    let hosts = parts.headers.get_all(header::HOST).iter().count();
    if hosts > 1 || (hosts == 0 && parts.version == Version::HTTP_11) {
        return Some((StatusCode::BAD_REQUEST, "bad_host"));
    }
    // RFC 9112, section 6.1: a coding that is not understood cannot be passed on under its own name.
    let mut codings = parts.headers.get_all(header::TRANSFER_ENCODING).iter();
    let coded =
        codings.next().is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if coded || codings.next().is_some() {
        return Some((StatusCode::NOT_IMPLEMENTED, "bad_transfer_encoding"));
    }
    None
}

/// The upstream of a request, and whether its route declares it idempotent.
fn destination(
    site: &Site,
    client: &Client,
    parts: &request::Parts,
    trail: &mut Trail,
) -> Option<(Arc<Upstream>, bool)> {
    let class = parts.headers.get(headers::CLASS).and_then(|class| class.to_str().ok());
    let class = class.and_then(Class::from_name).unwrap_or_default();
    let (route, upstream, idempotent) = match &client.leaf {
        Some(leaf) => (&leaf.prepared, &leaf.server, false),
        None => {
            // What roots and leaves say to each other is nobody else's business.
            if parts.uri.path().starts_with(LEAF_PATHS) {
                return None;
            }
            let route = site.routes.find(trail.asked.host(), parts.uri.path())?;
            (&route.prepared, &route.upstream, route.idempotent)
        }
    };
    trail.destination = Some(Destination { route: Arc::clone(route), class });
    Some((Arc::clone(upstream), idempotent))
}

/// The request as the attempts repeat it.
fn outgoing(
    site: &Site,
    client: &Client,
    (parts, body): (request::Parts, Option<ClientBody>),
    (class, idempotent): (Class, bool),
    upgrade: Option<HeaderValue>,
) -> Outgoing {
    let limits = &site.config.limits;
    let body =
        body.map(|body| Replay::new(body, limits.replay.as_len(), limits.body_timeout.into()));
    // RFC 9110, section 9.2.1: the safe methods, but for TRACE, which asks about the path itself.
    let is_read = matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let repeatable = (is_read || idempotent) && upgrade.is_none();
    let mut head = root::outgoing_head(parts);
    headers::add_forwarded(&mut head.headers, &client.address, client.tls);
    // A tie is a word between one root and its leaves. A client's would have a leaf send messages to
    // whomever it names.
    head.headers.remove(headers::TIE);
    Outgoing {
        head: Arc::new(head),
        body,
        request: curtail_policy::Request { class, repeatable },
        upgrade,
        is_traced: site.config.spans.is_some(),
        answer_held_bytes: limits.answer_held.get(),
    }
}

/// Passes the answer on to the client.
fn give(
    worker: &Worker,
    client: &Client,
    answer: Answer,
    place: Option<Place>,
) -> Response<AnswerBody> {
    let Answer { held, mut ending } = answer;
    ending.spans_to(worker.shared.lasting.spans.clone());
    let mut head = held.head;
    if client.leaf.is_none() {
        // What our leaves tell us is not for clients: another root would take it for its own leaf's word.
        head.headers.remove(headers::LEAF);
    }
    if head.status == StatusCode::SWITCHING_PROTOCOLS
        && let Some(protocol) = headers::upgrade(&head.headers)
        && let HeldBody::Open(body) = held.body
    {
        headers::remove_hop_by_hop(&mut head.headers);
        headers::ask_upgrade(&mut head.headers, protocol);
        let body = match body.into_upgrade() {
            Some(replica) => AnswerBody::Tunnel(Box::new(Tunnel::new(replica, ending, place))),
            None => AnswerBody::Whole(Bytes::new()),
        };
        return Response::from_parts(head, body);
    }
    headers::remove_hop_by_hop(&mut head.headers);
    Response::from_parts(head, AnswerBody::new(held.body, ending, place))
}

/// What a leaf answers by itself: its load, and the news of started twins.
fn answer_for_leaf(
    worker: &Arc<Worker>,
    leaf: &Arc<Leaf>,
    request: &Request<Option<ClientBody>>,
) -> Option<Response<AnswerBody>> {
    let path = request.uri().path();
    if path == probe::PATH {
        let mut response = empty(StatusCode::NO_CONTENT);
        if let Some(load) = headers::write_load(leaf.load()) {
            response.headers_mut().insert(headers::LOAD, load);
        }
        return Some(response);
    }
    let tie = path.strip_prefix(TWIN_STARTED_PATH)?;
    let Ok(tie) = u64::from_str_radix(tie, 16) else {
        return Some(own(StatusCode::BAD_REQUEST, "bad_tie", ""));
    };
    leaf.twin_started(worker, TieId(tie));
    Some(empty(StatusCode::NO_CONTENT))
}

fn leaf_says(what: &'static str) -> Response<AnswerBody> {
    let error = if what == "refused" { "queue_full" } else { "twin_started" };
    let mut response = own(StatusCode::SERVICE_UNAVAILABLE, error, "");
    response.headers_mut().insert(headers::LEAF, HeaderValue::from_static(what));
    response
}

/// An answer of our own to a request that went nowhere.
fn refuse(
    worker: &Worker,
    mut trail: Trail,
    status: StatusCode,
    error: &'static str,
) -> Response<AnswerBody> {
    let clock = &worker.shared.lasting.clock;
    trail.end = Some(RequestEnd {
        at: clock.now(),
        status: Some(status),
        error: Some(error),
        reason: None,
    });
    if let Some(sink) = &worker.shared.lasting.spans {
        sink.record(&trail, clock);
    }
    own(status, error, "")
}

fn no_answer_response(
    worker: &Worker,
    upstream: &Upstream,
    why: NoAnswer,
    trail: Trail,
) -> Response<AnswerBody> {
    let (status, error) = match why {
        NoAnswer::Client(ClientFault::Slow) => (StatusCode::REQUEST_TIMEOUT, "client_slow"),
        NoAnswer::Client(ClientFault::Broken) => (StatusCode::BAD_REQUEST, "client_broken"),
        NoAnswer::Unanswered(why) => {
            let status = match why {
                Unanswered::NoReplica | Unanswered::Failed(Failure::NotSent | Failure::Refused) => {
                    StatusCode::SERVICE_UNAVAILABLE
                }
                Unanswered::TimedOut | Unanswered::Failed(Failure::TimedOut) => {
                    StatusCode::GATEWAY_TIMEOUT
                }
                Unanswered::Failed(Failure::Broken | Failure::BadAnswer | Failure::TwinLost) => {
                    StatusCode::BAD_GATEWAY
                }
            };
            (status, root::name(why))
        }
    };
    upstream.metrics.ended(Some(status), upstream.clock.now().since(trail.started));
    refuse(worker, trail, status, error)
}

/// An answer that the proxy makes itself: a line of text, and the error's constant name in a header.
pub(crate) fn own(
    status: StatusCode,
    error: &'static str,
    why: &'static str,
) -> Response<AnswerBody> {
    let separator = if why.is_empty() { "" } else { ": " };
    let text = format!("curtail: {error}{separator}{why}\n");
    let mut response = Response::new(AnswerBody::Whole(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(headers::ERROR, HeaderValue::from_static(error));
    response
}

fn empty(status: StatusCode) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::Whole(Bytes::new()));
    *response.status_mut() = status;
    response
}

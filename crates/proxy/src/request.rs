//! One request of a client: routed, classified, admitted, sent, answered.

use crate::answer::{Answer, AnswerBody, HeldBody};
use crate::body::{ClientBody, ClientFault, Replay};
use crate::driver::Upstream;
use crate::head::{AnswerHead, Known, RequestHead};
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
use http::{Method, StatusCode, Uri, Version};
use std::sync::Arc;

/// What leaves answer by themselves.
const LEAF_PATHS: &str = "/.curtail/";

/// What a client is given.
type Given = (AnswerHead, AnswerBody);

/// What is known of the connection that a request came on.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its address, as it is written in `x-forwarded-for`.
    pub(crate) address: String,
    pub(crate) tls: bool,
    /// The leaf that listens there; [`None`] on a listener of the root.
    pub(crate) leaf: Option<Arc<Leaf>>,
    pub(crate) metrics: Arc<ListenerMetrics>,
}

/// Answers a request; an error of ours is an answer too.
pub(crate) async fn answer(
    worker: Arc<Worker>,
    client: Arc<Client>,
    mut head: RequestHead,
    body: Option<ClientBody>,
) -> Given {
    let site = worker.shared.site.load_full();
    if let Some(leaf) = &client.leaf
        && let Some(given) = answer_for_leaf(&worker, leaf, head.uri.path())
    {
        return given;
    }
    let started = worker.shared.lasting.clock.now();
    let context = worker.trace_context(&head.fields);
    let upgrade = headers::upgrade(&head.fields);
    let fault = unacceptable(&head);
    // A tie is a word between one root and its leaves. A client's would have a leaf send messages to
    // whomever it names.
    let tie = head.fields.get_text(Known::CurtailTie).map(str::to_owned);
    prepare(&mut head, &client);
    if site.config.spans.is_some() {
        context.clean(&mut head.fields);
    }
    let head = Arc::new(head);
    let mut trail = Box::new(Trail::new(context, started, Arc::clone(&head), client.tls));
    if let Some((status, error)) = fault {
        return refuse(&worker, *trail, status, error);
    }
    let Some((upstream, idempotent)) = destination(&site, &client, &mut trail) else {
        client.metrics.unrouted();
        return refuse(&worker, *trail, StatusCode::NOT_FOUND, "no_route");
    };
    let class = trail.destination.as_ref().map_or_else(Class::default, |d| d.class);
    let place = match &client.leaf {
        None => None,
        Some(leaf) => match leaf.admit(&worker, class, tie.as_deref()).await {
            Admission::Started(place) => Some(place),
            Admission::TwinStarted => return leaf_says("twin-started"),
            Admission::Refused => return leaf_says("refused"),
        },
    };
    let outgoing = outgoing(&site, (head, body), (class, idempotent), upgrade);
    let body = outgoing.body.clone();
    match root::exchange(&worker, Arc::clone(&upstream), outgoing, trail).await {
        Ok(answer) => give(&worker, &client, answer, place),
        Err((no_answer, trail)) => {
            drop((place, body));
            no_answer_given(&worker, &upstream, no_answer, *trail)
        }
    }
}

/// Why a request that could be read goes nowhere all the same: what it says could be read in two ways, by us
/// and by a server behind us, and then one of us is deceived.
fn unacceptable(head: &RequestHead) -> Option<(StatusCode, &'static str)> {
    if head.method == Method::CONNECT {
        return Some((StatusCode::NOT_IMPLEMENTED, "connect_unsupported"));
    }
    if head.version == Version::HTTP_2 {
        return None;
    }
    // RFC 9112, section 3.2.
    let hosts = head.fields.all(Known::Host).count();
    if hosts > 1 || (hosts == 0 && head.version == Version::HTTP_11) {
        return Some((StatusCode::BAD_REQUEST, "bad_host"));
    }
    // RFC 9112, section 6.1: a coding that is not understood cannot be passed on under its own name.
    let mut codings = head.fields.words(Known::TransferEncoding);
    let is_coded = codings.next().is_some_and(|coding| !coding.eq_ignore_ascii_case(b"chunked"));
    if is_coded || codings.next().is_some() {
        return Some((StatusCode::NOT_IMPLEMENTED, "bad_transfer_encoding"));
    }
    None
}

/// Makes the head that attempts repeat: without what concerns the client's connection alone.
fn prepare(head: &mut RequestHead, client: &Client) {
    headers::ensure_host(head);
    headers::remove_hop_by_hop(&mut head.fields);
    // Who is to go on has been told, as soon as the body is read.
    head.fields.remove(Known::Expect.bit() | Known::CurtailTie.bit());
    headers::add_forwarded(&mut head.fields, &client.address, client.tls);
    head.uri = match head.uri.path_and_query() {
        Some(_) if head.uri.authority().is_none() => return,
        Some(path) => Uri::from(path.clone()),
        None if head.method == Method::OPTIONS => Uri::from_static("*"),
        None => Uri::from_static("/"),
    };
}

/// The upstream of a request, and whether its route declares it idempotent.
fn destination(site: &Site, client: &Client, trail: &mut Trail) -> Option<(Arc<Upstream>, bool)> {
    let class = trail.asked.fields.get_text(Known::CurtailClass);
    let class = class.and_then(Class::from_name).unwrap_or_default();
    let (route, upstream, idempotent) = match &client.leaf {
        Some(leaf) => (&leaf.prepared, &leaf.server, false),
        None => {
            let path = trail.asked.uri.path();
            // What roots and leaves say to each other is nobody else's business.
            if path.starts_with(LEAF_PATHS) {
                return None;
            }
            let route = site.routes.find(trail.asked.host(), path)?;
            (&route.prepared, &route.upstream, route.idempotent)
        }
    };
    trail.destination = Some(Destination { route: Arc::clone(route), class });
    Some((Arc::clone(upstream), idempotent))
}

/// The request as the attempts repeat it.
fn outgoing(
    site: &Site,
    (head, body): (Arc<RequestHead>, Option<ClientBody>),
    (class, idempotent): (Class, bool),
    upgrade: Option<Box<[u8]>>,
) -> Outgoing {
    let limits = &site.config.limits;
    let body =
        body.map(|body| Replay::new(body, limits.replay.as_len(), limits.body_timeout.into()));
    // RFC 9110, section 9.2.1: the safe methods, but for TRACE, which asks about the path itself.
    let is_read = matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let repeatable = (is_read || idempotent) && upgrade.is_none();
    Outgoing {
        head,
        body,
        request: curtail_policy::Request { class, repeatable },
        upgrade,
        is_traced: site.config.spans.is_some(),
        answer_held_bytes: limits.answer_held.get(),
    }
}

/// Passes the answer on to the client.
fn give(worker: &Worker, client: &Client, answer: Answer, place: Option<Place>) -> Given {
    let Answer { held, mut ending } = answer;
    ending.spans_to(worker.shared.lasting.spans.clone());
    let mut head = held.head;
    if client.leaf.is_none() {
        // What our leaves tell us is not for clients: another root would take it for its own leaf's word.
        head.fields.remove(Known::CurtailLeaf.bit());
    }
    if head.status == StatusCode::SWITCHING_PROTOCOLS
        && let Some(protocol) = headers::upgrade(&head.fields)
        && let HeldBody::Open(body) = held.body
    {
        headers::remove_hop_by_hop(&mut head.fields);
        headers::ask_upgrade(&mut head.fields, &protocol);
        let body = match body.into_upgrade() {
            Some(replica) => AnswerBody::Tunnel(Box::new(Tunnel::new(replica, ending, place))),
            None => AnswerBody::Whole(Bytes::new()),
        };
        return (head, body);
    }
    headers::remove_hop_by_hop(&mut head.fields);
    (head, AnswerBody::new(held.body, ending, place))
}

/// What a leaf answers by itself: its load, and the news of started twins.
fn answer_for_leaf(worker: &Arc<Worker>, leaf: &Arc<Leaf>, path: &str) -> Option<Given> {
    if path == probe::PATH {
        let (mut head, body) = empty(StatusCode::NO_CONTENT);
        head.fields.push(Known::CurtailLoad, headers::write_load(leaf.load()).as_bytes());
        return Some((head, body));
    }
    let tie = path.strip_prefix(TWIN_STARTED_PATH)?;
    let Ok(tie) = u64::from_str_radix(tie, 16) else {
        return Some(own(StatusCode::BAD_REQUEST, "bad_tie", ""));
    };
    leaf.twin_started(worker, TieId(tie));
    Some(empty(StatusCode::NO_CONTENT))
}

fn leaf_says(what: &'static str) -> Given {
    let error = if what == "refused" { "queue_full" } else { "twin_started" };
    let (mut head, body) = own(StatusCode::SERVICE_UNAVAILABLE, error, "");
    head.fields.push(Known::CurtailLeaf, what.as_bytes());
    (head, body)
}

/// An answer of our own to a request that went nowhere.
fn refuse(worker: &Worker, mut trail: Trail, status: StatusCode, error: &'static str) -> Given {
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

fn no_answer_given(worker: &Worker, upstream: &Upstream, why: NoAnswer, trail: Trail) -> Given {
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
pub(crate) fn own(status: StatusCode, error: &'static str, why: &'static str) -> Given {
    let separator = if why.is_empty() { "" } else { ": " };
    let text = format!("curtail: {error}{separator}{why}\n");
    let mut head = AnswerHead::new(status);
    head.fields.push(Known::CurtailError, error.as_bytes());
    (head, AnswerBody::Whole(Bytes::from(text)))
}

fn empty(status: StatusCode) -> Given {
    (AnswerHead::new(status), AnswerBody::Whole(Bytes::new()))
}

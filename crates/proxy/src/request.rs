//! One request of a client: its route, class, admission, upstream and response.

mod last_hop;
mod own_response;

use crate::client::Client;
use crate::driver::Upstream;
use crate::fan_out::{self, FanOut};
use crate::grpc_call::{self, GrpcStatus};
use crate::holdout::{self, Draw};
use crate::leaf::{Admission, Leaf, LeafPermit, TWIN_STARTED_PATH};
use crate::leaf_headers::{LEAF_NOT_SENT, LEAF_REFUSED, LEAF_TWIN_STARTED, QUEUE_FULL};
use crate::metrics::{ClientTimeout, ResponseClass};
use crate::response::{Completion, IdleTimeout, RelayedBody};
use crate::root::{self, NoResponse, Outgoing};
use crate::route::changes::{MessageChanges, RequestFacts};
use crate::route::redirect::Redirect;
use crate::route::{Route, RouteRequests, Target};
use crate::route_limits::{LimitPermit, LimitedRequest};
use crate::snapshot::ConfigSnapshot;
use crate::trail::{Destination, RequestEnd, Trail};
use crate::worker::Worker;
use crate::{leaf_headers, probe};
use curtail_http::forwarding;
use curtail_http::head::{self, Fault, Known, RequestHead, ResponseHead};
use curtail_http::progress::ProgressTimer;
use curtail_http::replay::{ClientBody, ClientFault, Replay};
use curtail_http::service::InterimSink;
use curtail_policy::{Class, Failure, RequestFailure, TieId};
use curtail_units::{Duration, Instant};
use http::{Method, StatusCode, Version};
use http_body::Body as _;
use last_hop::{is_last_hop, respond_as_last_hop};
pub(crate) use own_response::own;
use own_response::{empty, translate_own};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

pub(crate) type ProxyResponse = (ResponseHead, RelayedBody);

/// Responds to a request, with the replica's response or with an error of the proxy.
pub(crate) async fn respond(
    worker: Arc<Worker>,
    client: Arc<Client>,
    mut head: RequestHead,
    (body, interim): (Option<ClientBody>, Option<InterimSink>),
) -> ProxyResponse {
    let snapshot = worker.shared.snapshot.load_full();
    if let Some(leaf) = &client.leaf
        && let Some(response) = respond_as_leaf(&worker, leaf, head.target.path())
    {
        return response;
    }
    let started = worker.shared.process_state.clock.now();
    let context = worker.trace_context(&head.fields);
    // RFC 9110, section 7.8: HTTP/1.0 has no upgrade.
    let upgrade = forwarding::upgrade(&head.fields).filter(|_| head.version != Version::HTTP_10);
    let settled = head.settle_host();
    let is_last_hop = settled.is_ok() && is_last_hop(&mut head);
    // Only a root and its leaves exchange ties. The tie of a client could make a leaf send messages to any address.
    let tie = head.fields.get_text(Known::CurtailTie).map(str::to_owned);
    prepare(&mut head, &client);
    if snapshot.config.spans.is_some() {
        context.clean(&mut head.fields);
    }
    let found = settled
        .inspect_err(|_| client.metrics.malformed.add(1))
        .map_err(UnsentRequest::from)
        .and_then(|()| find_route(&worker, &snapshot, &client, &head))
        .map(|routed| {
            // A body that is known to be too long to be kept is executed at most once.
            let kept_max = snapshot.config.limits.replay.get();
            let is_long = body.as_ref().is_some_and(|body| body.size_hint().lower() > kept_max);
            let is_sent_once = upgrade.is_some() || is_long;
            describe_request(&worker, &client, &mut head, routed, (started, is_sent_once))
        });
    let head = Arc::new(head);
    let mut trail = Box::new(Trail::new(context, started, Arc::clone(&head), Arc::clone(&client)));
    trail.is_at_leaf = client.leaf.is_some();
    let (routed, draw, request) = match found {
        Ok(found) => found,
        Err(unsent) => return respond_itself(&worker, trail, unsent),
    };
    let RoutedRequest { destination, target, requests, changes, rewritten, limit_permit } = routed;
    (trail.destination, trail.draw) = (Some(destination), draw);
    (trail.is_repeatable, trail.limit_permit) = (request.repeatable, limit_permit);
    if is_last_hop {
        return respond_as_last_hop(&worker, &target, trail);
    }
    if let Some(changes) = changes {
        change_request(changes, &mut trail, rewritten);
    }
    let outgoing_head = Arc::clone(&trail.request_head);
    let facts = RequestFacts { client: &client, head: &head, trace_id: &context.trace_id };
    let upstream = match target {
        Target::Upstream(upstream) => upstream,
        Target::FanOut(fan_out) => {
            let mut outgoing = outgoing(&snapshot, (outgoing_head, body), request, upgrade);
            outgoing.failed_statuses = requests.failed_statuses;
            let response = respond_from_shards(&worker, &client, fan_out, (outgoing, trail));
            return with_changed_headers(changes, facts, response.await);
        }
    };
    let mut permit = None;
    if let Some(leaf) = &client.leaf {
        match admit(&worker, leaf, (request.class, tie.as_deref()), trail).await {
            Ok((admitted, started)) => (trail, permit) = (admitted, Some(started)),
            Err(response) => return response,
        }
    }
    let mut outgoing = outgoing(&snapshot, (outgoing_head, body), request, upgrade);
    outgoing.interim = interim;
    outgoing.failed_statuses = requests.failed_statuses;
    let timeout = requests.stream_idle_timeout.or(snapshot.config.limits.stream_idle_timeout);
    let response =
        respond_from_upstream(&worker, &client, upstream, (outgoing, trail), (permit, timeout));
    with_changed_headers(changes, facts, response.await)
}

/// Draws the side of a request that goes to replicas, and describes the request for the policies.
fn describe_request<'s>(
    worker: &Worker,
    client: &Client,
    head: &mut RequestHead,
    routed: RoutedRequest<'s>,
    (started, is_sent_once): (Instant, bool),
) -> (RoutedRequest<'s>, Option<Draw>, curtail_policy::Request) {
    // The safe methods (RFC 9110, section 9.2.1) except TRACE, which asks about the path of the request itself.
    let is_read = matches!(head.method, Method::GET | Method::HEAD | Method::OPTIONS);
    let RouteRequests { idempotent, timeout, retries_max, .. } = routed.requests;
    let repeatable = (is_read || idempotent) && !is_sent_once;
    let sides = (routed.target.is_switched_off(started), routed.target.holdout_ratio());
    let draw = if repeatable { holdout::draw(worker, client, head, sides) } else { None };
    let is_holdout = draw.is_some_and(|draw| draw.is_holdout);
    let class = routed.destination.class;
    let has_deadline = routed.requests.has_grpc_deadline;
    let deadline = has_deadline.then(|| grpc_call::deadline(head)).flatten();
    let request =
        curtail_policy::Request { class, repeatable, is_holdout, timeout, deadline, retries_max };
    (routed, draw, request)
}

/// Waits until the leaf starts the request.
///
/// # Errors
/// The response, if the leaf does not start it.
async fn admit(
    worker: &Arc<Worker>,
    leaf: &Arc<Leaf>,
    (class, tie): (Class, Option<&str>),
    trail: Box<Trail>,
) -> Result<(Box<Trail>, LeafPermit), ProxyResponse> {
    let mut queued = QueuedRequest { worker, trail: Some(trail) };
    let permit = match leaf.admit(worker, class, tie).await {
        Admission::Started(permit) => permit,
        Admission::TwinStarted => return Err(queued.reject(LEAF_TWIN_STARTED, "twin_started")),
        Admission::Refused => return Err(queued.reject(LEAF_REFUSED, QUEUE_FULL)),
    };
    let mut trail = queued.trail.take().expect("it was not rejected");
    trail.leaf_wait = Some(worker.shared.process_state.clock.now().since(trail.started));
    Ok((trail, permit))
}

/// The response with the headers that the route changes.
fn with_changed_headers(
    changes: Option<&MessageChanges>,
    facts: RequestFacts<'_>,
    mut response: ProxyResponse,
) -> ProxyResponse {
    if let Some(changes) = changes {
        changes.change_response(&mut response.0.fields, facts);
    }
    response
}

/// A request that goes to replicas.
struct RoutedRequest<'s> {
    destination: Destination,
    target: Target,
    requests: RouteRequests,
    changes: Option<&'s MessageChanges>,
    /// The path and query for replicas, if the route rewrites them.
    rewritten: Option<head::Target>,
    limit_permit: Option<Arc<LimitPermit>>,
}

/// A request that no replica gets.
struct UnsentRequest<'s> {
    response: OwnResponse<'s>,
    /// The changes of its route; absent: it matches no route, or the route changes nothing.
    changes: Option<&'s MessageChanges>,
}

/// A response of the proxy itself, before the request is sent to a replica.
enum OwnResponse<'s> {
    Fault(Fault),
    Limited(Destination, LimitedRequest),
    Redirect(&'s Redirect, String),
}

impl From<Fault> for OwnResponse<'_> {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Fault> for UnsentRequest<'_> {
    fn from(fault: Fault) -> Self {
        Self { response: fault.into(), changes: None }
    }
}

/// Changes the head for replicas as the route wants it.
fn change_request(changes: &MessageChanges, trail: &mut Trail, rewritten: Option<head::Target>) {
    let facts = RequestFacts {
        client: &trail.client,
        head: &trail.request_head,
        trace_id: &trail.context.trace_id,
    };
    if let Some(changed) = changes.change_request(facts, rewritten) {
        let unchanged = std::mem::replace(&mut trail.request_head, Arc::new(changed));
        trail.unchanged_head = Some(unchanged);
    }
}

async fn respond_from_shards(
    worker: &Arc<Worker>,
    client: &Client,
    fan_out: Arc<FanOut>,
    (mut outgoing, trail): (Outgoing, Box<Trail>),
) -> ProxyResponse {
    if outgoing.is_connect() {
        return respond_itself(worker, trail, Fault::CONNECT_FAN_OUT.into());
    }
    // A client of HTTP/1.1 knows by the status that it was not upgraded.
    outgoing.upgrade = None;
    let body = outgoing.body.clone();
    let mut response = Box::pin(fan_out::respond(worker, fan_out, outgoing, trail));
    let response = poll_fn(|cx| {
        let fault = body.as_ref().and_then(|body| body.fault());
        // The client's connection notices that the client has gone, too, and drops this future.
        let is_gone = fault == Some(ClientFault::Gone);
        if is_gone { Poll::Pending } else { response.as_mut().poll(cx) }
    })
    .await;
    if body.and_then(|body| body.fault()) == Some(ClientFault::Slow) {
        client.metrics.timed_out.add(&ClientTimeout::Body, 1);
    }
    response
}

async fn respond_from_upstream(
    worker: &Arc<Worker>,
    client: &Arc<Client>,
    upstream: Arc<Upstream>,
    (outgoing, trail): (Outgoing, Box<Trail>),
    (permit, timeout): (Option<LeafPermit>, Option<Duration>),
) -> ProxyResponse {
    let body = outgoing.body.clone();
    let has_deadline = outgoing.request.deadline.is_some();
    let is_connect = outgoing.is_connect();
    match root::exchange(worker, Arc::clone(&upstream), outgoing, trail).await {
        Ok(response) => {
            if let Some(body) = &body {
                body.response_begun();
            }
            let idle = timeout.map(|timeout| IdleTimeout {
                timer: ProgressTimer::new(&worker.timers, upstream.clock, timeout),
                body,
                metrics: Arc::clone(&client.metrics),
            });
            if is_connect && response.response.head.status.is_success() {
                LeafPermit::finish(permit);
                return decline_upgrade(response.completion);
            }
            let request = response.request_of_leaf_error();
            let forwarded = response.forward(client.leaf.is_some(), (permit, idle));
            match request.filter(|_| client.leaf.is_none()) {
                Some(request) => grpc_call::translate(&request, forwarded, None),
                None => forwarded,
            }
        }
        Err((no_response, trail)) => {
            if let NoResponse::RequestFailure(RequestFailure::Failed(failure)) = no_response
                && !failure.is_unexecuted()
            {
                LeafPermit::finish(permit);
            }
            drop(body);
            if no_response == NoResponse::Client(ClientFault::Gone) {
                return end_without_client(worker, &upstream, trail).await;
            }
            if no_response == NoResponse::Client(ClientFault::Slow) {
                client.metrics.timed_out.add(&ClientTimeout::Body, 1);
            }
            respond_without_replica(worker, &upstream, (no_response, has_deadline), trail)
        }
    }
}

/// Ends a request whose client has gone before the end of its body. The client's connection notices that, too, and drops
/// this future.
async fn end_without_client(
    worker: &Worker,
    upstream: &Upstream,
    trail: Box<Trail>,
) -> ProxyResponse {
    let error = trail.client.end_error();
    record_own(worker, Some(upstream), trail, (None, Some(error)));
    std::future::pending().await
}

/// Prepares the head that attempts repeat: removes the fields that concern only the client's connection.
fn prepare(head: &mut RequestHead, client: &Client) {
    forwarding::remove_hop_by_hop(&mut head.fields);
    // The proxy itself sends 100 (Continue), as soon as the body is read.
    head.fields.remove(Known::Expect.bit() | Known::CurtailTie.bit());
    if !client.is_trusted {
        // A client may claim any address.
        head.fields.remove(Known::FORWARDED);
    }
    forwarding::add_forwarded(&mut head.fields, client.address, &client.address_text, client.tls);
}

/// Finds the route of a request, and what the route makes of the request.
///
/// # Errors
/// When the request does not go to a replica.
fn find_route<'s>(
    worker: &Worker,
    snapshot: &'s ConfigSnapshot,
    client: &'s Client,
    head: &RequestHead,
) -> Result<RoutedRequest<'s>, UnsentRequest<'s>> {
    let class = head.fields.get_text(Known::CurtailClass);
    let class = class.and_then(Class::from_name).unwrap_or_default();
    let Some(leaf) = &client.leaf else {
        let unrouted = |_: &Fault| client.metrics.unrouted.add(1);
        let route = snapshot.routes.find(head.host(), head.target.path()).inspect_err(unrouted)?;
        return under_route(worker, (client, route), head, class).map_err(|response| {
            match response {
                OwnResponse::Fault(_) => client.metrics.unrouted.add(1),
                OwnResponse::Redirect(..) => client.metrics.redirected.add(1),
                OwnResponse::Limited(..) => {}
            }
            UnsentRequest { response, changes: route.changes.as_deref() }
        });
    };
    Ok(RoutedRequest {
        destination: Destination { route: Arc::clone(&leaf.prepared), class },
        target: Target::Upstream(Arc::clone(&leaf.server)),
        requests: RouteRequests::default(),
        changes: None,
        rewritten: None,
        limit_permit: None,
    })
}

/// A request that the route redirects does not count against its limits.
fn under_route<'s>(
    worker: &Worker,
    (client, route): (&Client, &'s Route),
    head: &RequestHead,
    class: Class,
) -> Result<RoutedRequest<'s>, OwnResponse<'s>> {
    let changes = route.changes.as_deref();
    if let Some(redirect) = route.redirect.as_deref()
        && let Some(location) = redirect.location(head)?
    {
        return Err(OwnResponse::Redirect(redirect, location));
    }
    let rewritten = changes.map(|changes| changes.rewrite(&head.target)).transpose()?.flatten();
    let target = route.target()?.clone();
    let destination = Destination { route: Arc::clone(&route.prepared), class };
    let limit_permit = match &route.limits {
        Some(limits) => {
            let clock = &worker.shared.process_state.clock;
            match limits.admit(clock, head, client) {
                Ok(permit) => permit,
                Err(limited) => return Err(OwnResponse::Limited(destination, limited)),
            }
        }
        None => None,
    };
    let requests = route.requests.clone();
    Ok(RoutedRequest { destination, target, requests, changes, rewritten, limit_permit })
}

fn outgoing(
    snapshot: &ConfigSnapshot,
    (head, body): (Arc<RequestHead>, Option<ClientBody>),
    request: curtail_policy::Request,
    upgrade: Option<Box<[u8]>>,
) -> Outgoing {
    let limits = &snapshot.config.limits;
    let body =
        body.map(|body| Replay::new(body, limits.replay.as_len(), limits.body_timeout.into()));
    Outgoing {
        head,
        body,
        request,
        failed_statuses: None,
        eligible: None,
        upgrade,
        is_traced: snapshot.config.spans.is_some(),
        response_buffer_bytes: limits.response_buffer.get(),
        interim: None,
    }
}

/// Responds to the WebSocket handshake of an HTTP/2 client in place of a replica that responded as to any other request.
fn decline_upgrade(mut completion: Completion) -> ProxyResponse {
    let Fault { status, error, why } = Fault::UPGRADE_DECLINED;
    completion.replace(status, error);
    own(status, error, why)
}

/// Responds to messages for the leaf itself: probes and started twins.
fn respond_as_leaf(worker: &Arc<Worker>, leaf: &Arc<Leaf>, path: &str) -> Option<ProxyResponse> {
    if path == probe::PATH {
        let (mut head, body) = empty(StatusCode::NO_CONTENT);
        head.fields.push(Known::CurtailLoad, leaf_headers::write_load(leaf.load()).as_bytes());
        return Some((head, body));
    }
    let tie = path.strip_prefix(TWIN_STARTED_PATH)?;
    let Ok(tie) = u64::from_str_radix(tie, 16) else {
        return Some(own(StatusCode::BAD_REQUEST, "bad_tie", ""));
    };
    leaf.twin_started(worker, TieId(tie));
    Some(empty(StatusCode::NO_CONTENT))
}

/// A request in the queue of a leaf. When it is dropped with its trail, the root has cancelled it.
struct QueuedRequest<'w> {
    worker: &'w Worker,
    trail: Option<Box<Trail>>,
}

impl QueuedRequest<'_> {
    /// Responds that the leaf does not send the request to its server.
    fn reject(mut self, leaf_header: &'static [u8], error: &'static str) -> ProxyResponse {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        self.end(Some(status), error);
        let (mut head, body) = own(status, error, "");
        head.fields.push(Known::CurtailLeaf, leaf_header);
        (head, body)
    }

    fn end(&mut self, status: Option<StatusCode>, error: &'static str) {
        let Some(mut trail) = self.trail.take() else { return };
        let at = self.worker.shared.process_state.clock.now();
        trail.leaf_wait = Some(at.since(trail.started));
        trail.end = Some(RequestEnd { at, status, error: Some(error), reason: None });
        self.worker.record(trail);
    }
}

impl Drop for QueuedRequest<'_> {
    fn drop(&mut self) {
        if let Some(trail) = &self.trail {
            self.end(None, trail.client.end_error());
        }
    }
}

/// Responds in place of a replica.
fn respond_itself(
    worker: &Worker,
    mut trail: Box<Trail>,
    UnsentRequest { response, changes }: UnsentRequest<'_>,
) -> ProxyResponse {
    let (client, head) = (Arc::clone(&trail.client), Arc::clone(&trail.request_head));
    let trace_id = trail.context.trace_id;
    let facts = RequestFacts { client: &client, head: &head, trace_id: &trace_id };
    let response = match response {
        OwnResponse::Fault(Fault { status, error, why }) => {
            trail.error_detail = (!why.is_empty()).then(|| why.into());
            let response = translate_own(&trail, own(status, error, why), None);
            record_own(worker, None, trail, (Some(status), Some(error)));
            response
        }
        OwnResponse::Limited(destination, limited) => {
            trail.destination = Some(destination);
            let (status, error) = (limited.reason.status(), limited.reason.name());
            let (mut head, body) = translate_own(&trail, own(status, error, ""), None);
            record_own(worker, None, trail, (Some(status), Some(error)));
            if let Some(seconds) = limited.retry_after_seconds() {
                head.fields.append(b"retry-after", seconds.to_string().as_bytes());
            }
            (head, body)
        }
        OwnResponse::Redirect(redirect, location) => {
            let (mut head, body) = empty(redirect.status);
            head.fields.append(b"location", location.as_bytes());
            let route = Arc::clone(&redirect.prepared);
            trail.destination = Some(Destination { route, class: Class::default() });
            record_own(worker, None, trail, (Some(redirect.status), None));
            (head, body)
        }
    };
    with_changed_headers(changes, facts, response)
}

/// Records the end of a request with a response of the proxy itself, in its span and in the metrics of `upstream`.
pub(crate) fn record_own(
    worker: &Worker,
    upstream: Option<&Upstream>,
    mut trail: Box<Trail>,
    (status, error): (Option<StatusCode>, Option<&'static str>),
) {
    let at = worker.shared.process_state.clock.now();
    if let Some(upstream) = upstream {
        let response = status.map_or(ResponseClass::None, ResponseClass::Status);
        upstream.record_end(&trail, response, at);
    }
    let reason = trail.end.and_then(|end| end.reason);
    trail.end = Some(RequestEnd { at, status, error, reason });
    worker.record(trail);
}

/// A client of gRPC gets a status of gRPC, but logs and metrics have that of HTTP.
fn respond_without_replica(
    worker: &Worker,
    upstream: &Upstream,
    (why, has_deadline): (NoResponse, bool),
    trail: Box<Trail>,
) -> ProxyResponse {
    let (status, error) = status_without_replica(why);
    let is_full = why == NoResponse::UpstreamFull;
    let leaf_header = if trail.is_at_leaf { leaf_header(why) } else { None };
    // The upstream does not count a rejected request.
    let upstream = Some(upstream).filter(|_| !is_full);
    let is_call_deadline = why == NoResponse::CallDeadline;
    let is_late = has_deadline && status == StatusCode::GATEWAY_TIMEOUT || is_call_deadline;
    let grpc_status = is_late.then_some(GrpcStatus::DeadlineExceeded);
    let response = own(status, error, "");
    let (mut head, body) = if is_call_deadline {
        // A leaf, too, responds as its server should have: its root would take the 504 for a failure.
        grpc_call::translate(trail.received_head(), response, grpc_status)
    } else {
        translate_own(&trail, response, grpc_status)
    };
    record_own(worker, upstream, trail, (Some(status), Some(error)));
    let limit = RequestFailure::Failed(Failure::ConnectionLimit);
    if is_full || why == NoResponse::RequestFailure(limit) {
        // The smallest time: a request in flight may end at any moment.
        head.fields.append(b"retry-after", b"1");
    }
    if let Some(value) = leaf_header {
        head.fields.push(Known::CurtailLeaf, value);
    }
    (head, body)
}

/// The value of `curtail-leaf` if the server of the leaf has not executed the request.
const fn leaf_header(why: NoResponse) -> Option<&'static [u8]> {
    match why {
        NoResponse::RequestFailure(RequestFailure::Failed(Failure::NotSent)) => Some(LEAF_NOT_SENT),
        // The root does not count a refusal against the replica.
        NoResponse::RequestFailure(RequestFailure::Failed(
            Failure::ConnectionLimit | Failure::Unprocessed,
        )) => Some(LEAF_REFUSED),
        NoResponse::RequestFailure(_)
        | NoResponse::UpstreamFull
        | NoResponse::Client(_)
        | NoResponse::CallDeadline => None,
    }
}

/// The status and the error of a request without a response from a replica.
pub(crate) const fn status_without_replica(why: NoResponse) -> (StatusCode, &'static str) {
    match why {
        NoResponse::Client(fault @ ClientFault::Slow) => {
            (StatusCode::REQUEST_TIMEOUT, root::fault_name(fault))
        }
        NoResponse::Client(fault @ (ClientFault::Gone | ClientFault::Broken)) => {
            (StatusCode::BAD_REQUEST, root::fault_name(fault))
        }
        NoResponse::UpstreamFull => (StatusCode::SERVICE_UNAVAILABLE, "upstream_in_flight_limit"),
        NoResponse::CallDeadline => (StatusCode::GATEWAY_TIMEOUT, root::TIMED_OUT),
        NoResponse::RequestFailure(why) => {
            let status = match why {
                RequestFailure::NoReplica => StatusCode::SERVICE_UNAVAILABLE,
                RequestFailure::Failed(failure) if failure.is_unexecuted() => {
                    StatusCode::SERVICE_UNAVAILABLE
                }
                RequestFailure::Failed(_) => StatusCode::BAD_GATEWAY,
                RequestFailure::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            };
            (status, root::name(why))
        }
    }
}

//! An API server of Kubernetes with nothing but `EndpointSlices`, which fails on command.
//!
//! Lists have pages, and watches begin at any version whose later events are still there (else 410). Lists and events
//! have the fields that the reference of the API documents.

use crate::body::{self, Body};
use crate::replica::{Replica, Speaks};
use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The way in which an API server fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Responses have this status, and a message of the server.
    Status(u16),
    /// Responses are no JSON.
    Nonsense,
    /// Bodies have no end, and events no line end.
    Endless,
}

/// A server that runs until it is dropped.
pub(super) struct ApiServer {
    replica: Replica,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Notified of each change of the state.
    changed: watch::Sender<()>,
    /// Bytes of endless bodies that were sent.
    endless_bytes: AtomicUsize,
}

#[derive(Default)]
struct State {
    version: u64,
    slices: BTreeMap<String, Value>,
    /// Events with their versions, the oldest first.
    events: Vec<(u64, String)>,
    /// Watches must begin here or later.
    oldest: u64,
    /// How often all watches were ended.
    ends: usize,
    token: Option<String>,
    fault: Option<Fault>,
    requests: Vec<String>,
}

/// An endpoint: its address, and whether it is ready.
pub(super) type Endpoint = (IpAddr, bool);

impl ApiServer {
    pub(super) async fn start() -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), Speaks::Http1).await
    }

    /// Starts a server without slices.
    pub(super) async fn start_at(address: SocketAddr, speaks: Speaks) -> Self {
        let (changed, _) = watch::channel(());
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed,
            endless_bytes: AtomicUsize::new(0),
        });
        let serving = Arc::clone(&shared);
        let replica = Replica::start_at(address, speaks, move |request| {
            std::future::ready(respond(&serving, &request))
        });
        Self { replica: replica.await, shared }
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.replica.address()
    }

    /// Adds or replaces a slice.
    pub(super) fn set(&self, name: &str, port: u16, endpoints: &[Endpoint]) {
        self.shared.change(|state| {
            let kind = if state.slices.contains_key(name) { "MODIFIED" } else { "ADDED" };
            let slice = slice(name, state.version, port, endpoints);
            state.slices.insert(name.to_owned(), slice.clone());
            state.add_event(kind, &slice);
        });
    }

    pub(super) fn delete(&self, name: &str) {
        self.shared.change(|state| {
            let mut slice = state.slices.remove(name).expect("the slice is there");
            slice["metadata"]["resourceVersion"] = state.version.to_string().into();
            state.add_event("DELETED", &slice);
        });
    }

    /// Sends a bookmark to all watches; returns its version.
    pub(super) fn bookmark(&self) -> u64 {
        self.shared.change(|state| {
            let metadata = json!({ "resourceVersion": state.version.to_string() });
            state.add_event("BOOKMARK", &json!({ "kind": "EndpointSlice", "metadata": metadata }));
        });
        self.shared.lock().version
    }

    /// Sends an event that does not concern a slice to all watches.
    pub(super) fn send(&self, kind: &str, object: &Value) {
        self.shared.change(|state| state.add_event(kind, object));
    }

    /// Ends all watches, as when their time is over.
    pub(super) fn end_watches(&self) {
        self.shared.change(|state| state.ends += 1);
    }

    /// Forgets all events so far.
    pub(super) fn forget_events(&self) {
        self.shared.change(|state| {
            state.events.clear();
            state.oldest = state.version;
        });
    }

    pub(super) fn set_fault(&self, fault: Option<Fault>) {
        self.shared.change(|state| state.fault = fault);
    }

    /// Requests need this token from now on.
    pub(super) fn require_token(&self, token: &str) {
        self.shared.change(|state| state.token = Some(token.to_owned()));
    }

    /// The path and query of each request so far that contains `what`.
    pub(super) fn requests(&self, what: &str) -> Vec<String> {
        let state = self.shared.lock();
        state.requests.iter().filter(|request| request.contains(what)).cloned().collect()
    }

    /// Waits until there are at least `count` such requests.
    pub(super) async fn until_requests(&self, what: &str, count: usize) {
        let mut changed = self.shared.changed.subscribe();
        let has = |(): &()| self.requests(what).len() >= count;
        changed.wait_for(has).await.expect("the server runs");
    }

    /// The number of bytes of endless bodies that were sent.
    pub(super) fn endless_bytes(&self) -> usize {
        self.shared.endless_bytes.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        state.version += 1;
        change(&mut state);
        drop(state);
        self.changed.send_replace(());
    }
}

impl State {
    fn add_event(&mut self, kind: &str, object: &Value) {
        let event = json!({ "type": kind, "object": object });
        self.events.push((self.version, format!("{event}\n")));
    }
}

/// An `EndpointSlice` as the API has it.
fn slice(name: &str, version: u64, port: u16, endpoints: &[Endpoint]) -> Value {
    let endpoint = |(address, is_ready): &Endpoint| {
        json!({
            "addresses": [address],
            "conditions": { "ready": is_ready, "serving": is_ready, "terminating": false },
            "targetRef": { "kind": "Pod", "namespace": "default", "name": format!("pod-{address}") },
        })
    };
    json!({
        "kind": "EndpointSlice",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": {
            "name": name,
            "namespace": "default",
            "resourceVersion": version.to_string(),
            "labels": { "kubernetes.io/service-name": "search" },
        },
        "addressType": "IPv4",
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{ "name": "http", "protocol": "TCP", "port": port }],
    })
}

fn respond(shared: &Arc<Shared>, request: &Request<Incoming>) -> Response<Body> {
    let target = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let mut state = shared.lock();
    state.requests.push(target.clone());
    // From now on the request is seen, so its watch ends if all watches are ended.
    let (fault, token, ends) = (state.fault, state.token.clone(), state.ends);
    drop(state);
    shared.changed.send_replace(());
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    assert_eq!(request.uri().path(), path);
    let sent = request.headers().get(header::AUTHORIZATION).and_then(|token| token.to_str().ok());
    if token.is_some_and(|token| sent != Some(&format!("Bearer {token}"))) {
        return failed(401, "Unauthorized");
    }
    match fault {
        Some(Fault::Status(status)) => return failed(status, "this server fails"),
        Some(Fault::Nonsense) => return Response::new(body::whole("<html>\n")),
        Some(Fault::Endless) => return endless(shared),
        None => {}
    }
    let query = request.uri().query().unwrap_or_default();
    let key = |wanted: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == wanted).map(|(_, value)| value.to_owned())
    };
    assert_eq!(key("labelSelector").as_deref(), Some("kubernetes.io%2Fservice-name%3Dsearch"));
    let number = |wanted: &str| key(wanted).and_then(|value| value.parse::<u64>().ok());
    if key("watch").is_none() {
        return list(shared, number("limit"), number("continue"));
    }
    let since = number("resourceVersion").expect("a watch has a version");
    assert!(number("timeoutSeconds").is_some_and(|seconds| seconds >= 240), "{query}");
    assert_eq!(key("allowWatchBookmarks").as_deref(), Some("true"));
    if since < shared.lock().oldest {
        return failed(410, "too old resource version");
    }
    let (sender, body) = body::channel();
    tokio::spawn(watch(Arc::clone(shared), (since, ends), sender));
    Response::new(body)
}

/// One page of the list: its token is the number of slices before the next page.
fn list(shared: &Shared, limit: Option<u64>, first: Option<u64>) -> Response<Body> {
    let state = shared.lock();
    let limit = usize::try_from(limit.expect("lists have a limit")).expect("small");
    let first = usize::try_from(first.unwrap_or(0)).expect("small");
    let items: Vec<&Value> = state.slices.values().skip(first).take(limit).collect();
    let end = first + items.len();
    let next = if end < state.slices.len() { end.to_string() } else { String::new() };
    let list = json!({
        "kind": "EndpointSliceList",
        "apiVersion": "discovery.k8s.io/v1",
        "metadata": { "resourceVersion": state.version.to_string(), "continue": next },
        "items": items,
    });
    Response::new(body::whole(list.to_string()))
}

/// Sends the events after a version until the number of ends changes. Each event comes in two pieces.
async fn watch(shared: Arc<Shared>, (mut sent, ends): (u64, usize), sender: body::Sender) {
    let mut changed = shared.changed.subscribe();
    loop {
        changed.mark_unchanged();
        let (fault, is_ended, new) = {
            let state = shared.lock();
            let new = state.events.iter().filter(|(version, _)| *version > sent);
            (state.fault, state.ends != ends, new.cloned().collect::<Vec<(u64, String)>>())
        };
        for (version, event) in new {
            let (start, rest) = event.split_at(event.len() / 2);
            if !sender.data(start.to_owned()).await || !sender.data(rest.to_owned()).await {
                return;
            }
            sent = version;
        }
        if fault == Some(Fault::Endless) {
            return send_endless(&shared, sender).await;
        }
        if is_ended || changed.changed().await.is_err() {
            return;
        }
    }
}

fn endless(shared: &Arc<Shared>) -> Response<Body> {
    let (sender, body) = body::channel();
    let shared = Arc::clone(shared);
    tokio::spawn(async move { send_endless(&shared, sender).await });
    Response::new(body)
}

async fn send_endless(shared: &Shared, sender: body::Sender) {
    while sender.data(vec![b' '; 64 << 10]).await {
        shared.endless_bytes.fetch_add(64 << 10, Ordering::SeqCst);
    }
}

fn failed(status: u16, message: &str) -> Response<Body> {
    let body = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "code": status,
    });
    let mut response = Response::new(body::whole(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    response
}

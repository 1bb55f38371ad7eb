//! Kubernetes as a source of endpoints: a list of a service's `EndpointSlices`, and a watch for their changes.
//!
//! A session lists the slices by the label of their service, then watches from the version of the list. A watch ends
//! after some minutes, and the next one goes on at the version of its last event. If the server no longer has the
//! events since that version (410), the slices are listed again. Any other end of a watch ends the session, and the
//! next session lists them, too.
//! **Source**: Kubernetes documentation, "Kubernetes API Concepts", sections "Efficient detection of changes", "Watch
//! bookmarks" and "Retrieving large results sets in chunks".
//! **Limits**: [`PAGE_BYTES_MAX`] and [`PAGES_MAX`] of a list, [`EVENT_BYTES_MAX`] of an event, and
//! [`super::feed::ENDPOINTS_MAX`].

mod slices;

use super::control_plane::{FileReader, client, cut, headers};
use super::feed::Feed;
use crate::config::{ControlPlaneAccess, KubernetesSource, Protocol, ReplicaUrl};
use bytes::{Buf as _, Bytes, BytesMut};
use curtail_http::client::{Client, StreamedBody};
use curtail_http::small_file::read_small_text;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use slices::{Change, Slices};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// The files of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Number of slices in a page of a list. The largest slice has 1,000 endpoints, about half a megabyte.
const PAGE_SLICES: usize = 25;
/// Maximum size of a page.
const PAGE_BYTES_MAX: usize = 16 << 20;
/// Maximum number of pages of a list.
const PAGES_MAX: usize = 1_000;
/// Maximum size of an event. An object in etcd has at most 1.5 MiB, in a shorter form.
const EVENT_BYTES_MAX: usize = 8 << 20;
/// Maximum size of an error message.
const STATUS_BYTES_MAX: usize = 64 << 10;

/// Maximum time of a page, and of the beginning of a watch.
const RESPONSE_MAX: Duration = Duration::from_secs(30);
/// The server ends a watch after this time, and up to [`WATCH_JITTER`] more.
const WATCH: Duration = Duration::from_secs(240);
const WATCH_JITTER: Duration = Duration::from_secs(60);
/// A server that does not end a watch after this further time does not respond any more.
const WATCH_GRACE: Duration = Duration::from_secs(30);
/// Minimum time between two lists, and of a watch without an event.
const ROUND_MIN: Duration = Duration::from_secs(1);

/// The API server, and the path of the slices of one service.
#[derive(Debug)]
struct Api {
    client: Arc<Client<Empty<Bytes>>>,
    files: FileReader,
    access: ControlPlaneAccess,
    /// Path and query up to the selector.
    path: String,
}

/// Why a watch has ended without a failure.
#[derive(Debug, PartialEq, Eq)]
enum WatchEnd {
    /// Its time is over; the next watch goes on.
    Finished,
    /// The server no longer has the events since the version.
    Expired,
}

/// A session with the API server; returns why it has ended.
pub(super) async fn run(source: &KubernetesSource, feed: &mut Feed) -> Result<Infallible, String> {
    let api = Api::new(source, feed.files()).await?;
    loop {
        let began = Instant::now();
        let mut slices = Slices::new(source.port.clone());
        let mut version = feed.wait_for(api.list(&mut slices)).await?;
        feed.set(slices.parts(), slices.summary());
        while api.watch(&mut version, &mut slices, feed).await? == WatchEnd::Finished {}
        // A server that always says so is not asked in a loop.
        let next = began + ROUND_MIN.mul_f64(1.0 + feed.jitter());
        feed.wait_for(sleep_until(next)).await;
    }
}

impl Api {
    async fn new(source: &KubernetesSource, files: FileReader) -> Result<Self, String> {
        let mut access = source.access.clone();
        let server = match &source.server {
            Some(server) => server.clone(),
            None => {
                let file = |name| Some(Path::new(SERVICE_ACCOUNT).join(name));
                access.ca_file = access.ca_file.or_else(|| file("ca.crt"));
                access.token_file = access.token_file.or_else(|| file("token"));
                server_of_cluster(|name| std::env::var(name).ok())?
            }
        };
        let namespace = match (&source.namespace, &source.server) {
            (Some(namespace), _) => namespace.clone(),
            (None, Some(_)) => "default".to_owned(),
            (None, None) => {
                let file = Path::new(SERVICE_ACCOUNT).join("namespace");
                let read = move || {
                    read_small_text(&file).map_err(|error| {
                        format!("{}: {error}: expected the key namespace", file.display())
                    })
                };
                files.read(read).await?.trim().to_owned()
            }
        };
        let path = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{}",
            source.service
        );
        let limits = (Protocol::Http1, PAGE_BYTES_MAX);
        let client = client(&files, &server, &access, limits).await?;
        Ok(Self { client, files, access, path })
    }

    async fn request(&self, query: &str) -> Result<Request<Empty<Bytes>>, String> {
        let uri = format!("{}{query}", self.path);
        let uri = uri.parse().map_err(|_| format!("{uri:?} is no path: check namespace"))?;
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = uri;
        *request.headers_mut() = headers(&self.files, self.access.token_file.as_deref()).await?;
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        Ok(request)
    }

    /// Lists all slices, page by page; returns the version of the list.
    async fn list(&self, slices: &mut Slices) -> Result<String, String> {
        let mut next = String::new();
        for _ in 0..PAGES_MAX {
            let request = self.request(&format!("&limit={PAGE_SLICES}{next}")).await?;
            let sent = self.client.send(request, RESPONSE_MAX.into()).await;
            let response = sent.map_err(|error| format!("list: {error}"))?;
            if response.status != StatusCode::OK {
                return Err(status_error("list", response.status, &response.body));
            }
            let page = slices.add_page(&response.body).map_err(|error| format!("list: {error}"))?;
            match page.next {
                None => return Ok(page.version),
                Some(token) => next = format!("&continue={}", encoded(&token)),
            }
        }
        Err(format!("list: expected at most {PAGES_MAX} pages of {PAGE_SLICES} EndpointSlices"))
    }

    /// Watches until the server ends the watch. `version` is that of the last event.
    async fn watch(
        &self,
        version: &mut String,
        slices: &mut Slices,
        feed: &mut Feed,
    ) -> Result<WatchEnd, String> {
        let time = WATCH + WATCH_JITTER.mul_f64(feed.jitter());
        let query = format!(
            "&watch=true&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            time.as_secs(),
            encoded(version)
        );
        let request = feed.wait_for(self.request(&query)).await?;
        let began = Instant::now();
        let deadline = began + time + WATCH_GRACE;
        let sending = self.client.send_streaming(request, RESPONSE_MAX.into());
        let response = feed.wait_for(sending).await.map_err(|error| format!("watch: {error}"))?;
        let status = response.status();
        let mut lines = Lines::new(response.into_body());
        if status == StatusCode::GONE {
            return Ok(WatchEnd::Expired);
        }
        if status != StatusCode::OK {
            let body = feed.wait_for(lines.error_body()).await;
            return Err(status_error("watch", status, &body));
        }
        let mut has_events = false;
        loop {
            let next = feed.wait_for(timeout_at(deadline, lines.next())).await;
            let line = next.map_err(|_| {
                let seconds = (time + WATCH_GRACE).as_secs();
                format!("watch: the server did not end it within {seconds} s, so it may hang")
            })?;
            let Some(line) = line.map_err(|error| format!("watch: {error}"))? else { break };
            has_events = true;
            match slices.apply(&line, version).map_err(|error| format!("watch: {error}"))? {
                Change::Endpoints => feed.set(slices.parts(), slices.summary()),
                Change::Version => feed.confirm(),
                Change::Expired => return Ok(WatchEnd::Expired),
            }
        }
        if !has_events && began.elapsed() < ROUND_MIN {
            return Err("watch: the server ended it at once".to_owned());
        }
        feed.confirm();
        // A server that ends each watch early is not asked in a loop.
        feed.wait_for(sleep_until(began + ROUND_MIN)).await;
        Ok(WatchEnd::Finished)
    }
}

/// The API server as Kubernetes names it to each pod.
fn server_of_cluster(variable: impl Fn(&str) -> Option<String>) -> Result<ReplicaUrl, String> {
    let of = |name: &str| {
        let text = format!("the variable {name} is not set: expected a pod, or the key server");
        variable(name).ok_or(text)
    };
    let (host, port) = (of("KUBERNETES_SERVICE_HOST")?, of("KUBERNETES_SERVICE_PORT")?);
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let url = format!("https://{host}:{port}");
    ReplicaUrl::parse(&url).ok_or_else(|| {
        format!("KUBERNETES_SERVICE_HOST and _PORT are {url:?}: expected a host and a port")
    })
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// The error of a response, with the message of the server.
fn status_error(what: &str, status: StatusCode, body: &[u8]) -> String {
    let message = slices::status_message(body).map(|message| cut(&message));
    let advice = match status {
        StatusCode::UNAUTHORIZED => {
            " (check token_file, or in a pod /var/run/secrets/kubernetes.io/serviceaccount/token)"
        }
        StatusCode::FORBIDDEN => {
            " (the proxy needs list and watch of endpointslices in discovery.k8s.io)"
        }
        _ => "",
    };
    let message = message.map(|message| format!(": {message}")).unwrap_or_default();
    format!("{what}: status {}{message}{advice}", status.as_u16())
}

/// The events of a watch, one a line.
struct Lines {
    body: StreamedBody<Empty<Bytes>>,
    buffer: BytesMut,
    /// The length of the buffer's beginning that has no line end.
    searched: usize,
}

impl Lines {
    fn new(body: StreamedBody<Empty<Bytes>>) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0 }
    }

    /// The next line; [`None`] at the end. A line that the end cuts off is dropped: the next watch has its event.
    async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buffer[self.searched..]) {
                let line = self.buffer.split_to(self.searched + at);
                self.buffer.advance(1);
                self.searched = 0;
                return Ok(Some(line.freeze()));
            }
            self.searched = self.buffer.len();
            if self.buffer.len() > EVENT_BYTES_MAX {
                let mib = EVENT_BYTES_MAX >> 20;
                return Err(format!("expected events of at most {mib} MiB, found a longer line"));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(format!("the connection broke: {error}")),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    async fn error_body(&mut self) -> Bytes {
        let body = Limited::new(&mut self.body, STATUS_BYTES_MAX).collect();
        match timeout(RESPONSE_MAX, body).await {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) | Err(_) => Bytes::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_of_the_cluster_is_in_two_variables() {
        let of = |host: Option<&str>, port: Option<&str>| {
            server_of_cluster(|name| match name {
                "KUBERNETES_SERVICE_HOST" => host.map(str::to_owned),
                "KUBERNETES_SERVICE_PORT" => port.map(str::to_owned),
                other => panic!("{other}"),
            })
            .map(|url| url.to_string())
        };
        assert_eq!(of(Some("10.96.0.1"), Some("443")).expect("both"), "https://10.96.0.1:443");
        assert_eq!(of(Some("fd00::1"), Some("6443")).expect("both"), "https://[fd00::1]:6443");
        for (host, port, says) in [
            (None, Some("443"), "KUBERNETES_SERVICE_HOST is not set"),
            (Some("a"), None, "KUBERNETES_SERVICE_PORT is not set"),
            (Some("a b"), Some("443"), "expected a host and a port"),
            (Some("a"), Some("x"), "expected a host and a port"),
        ] {
            let error = of(host, port).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn an_error_has_the_message_of_the_server_and_advice() {
        let body = br#"{"kind":"Status","message":"endpointslices is\nforbidden","code":403}"#;
        let error = status_error("list", StatusCode::FORBIDDEN, body);
        assert!(error.starts_with("list: status 403: endpointslices is forbidden"), "{error}");
        assert!(error.contains("the proxy needs list and watch"), "{error}");
        assert_eq!(status_error("watch", StatusCode::BAD_GATEWAY, b"<html>"), "watch: status 502");
    }
}

//! Request smuggling and HTTP/2 downgrades: requests that a server, or another proxy on the way, could read differently
//! than this proxy.
//!
//! Each case of the tables is a request as bytes or frames, the RFC section that demands the outcome, and the outcome as
//! [`Step`]s. Behind the proxy, a server records exactly what it sees. After each case, the client sends `GET /next` on
//! the same connection: this request gets its own response, or none because the proxy closes the connection.
//!
//! In requests and expectations, `/@` stands for a target that only this case has. Each character up to U+00FF is sent as
//! one byte, and U+0100 as 2,000 letters.

mod http1;
mod http2;
mod server;

use crate::deadline::run;
use crate::proxy::{Proxy, Setup};
use server::{IncompleteRequest, RecordingServer};
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

/// Maximum time of one case on a busy machine.
const CASE_DEADLINE: Duration = Duration::from_secs(60);

/// The request that follows on the same connection, as the server sees it.
const NEXT_REQUEST: &str = "GET /next | host: next";

/// An observable step of the outcome of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The server sees exactly this request, and the client gets the response to it. The fields that the proxy adds to
    /// each request are left out; body and trailers follow after `||`.
    Sees(&'static str),
    /// The proxy rejects a request with this status and this `curtail-error`. The server sees nothing of it.
    Rejects(u16, &'static str),
    /// The proxy rejects a malformed body with 400. The server sees at most an incomplete request with the beginning of
    /// this body.
    RejectsBody(&'static str),
    /// The client stops sending before the request is complete, over HTTP/1.1, and the proxy closes the connection without a
    /// response. The server sees at most an incomplete request with the beginning of this body.
    BreaksOff(&'static str),
    /// The proxy resets the stream of the request (HTTP/2). The server sees at most an incomplete request with the
    /// beginning of this body.
    Resets(&'static str),
    /// The proxy resets the stream, whose body is longer than announced (HTTP/2). The server may have this request, with the
    /// announced body, because the rest can come later.
    ResetsSurplus(&'static str),
    /// The next request on the connection gets its own response.
    Next,
    /// The proxy closes the connection, and the next request is not served.
    Closes,
}

use Step::{BreaksOff, Closes, Next, Rejects, RejectsBody, Resets, ResetsSurplus, Sees};

const BAD_REQUEST: &[Step] = &[Rejects(400, "bad_request"), Closes];

impl Step {
    /// The step as the outcome of the case with this number has it.
    fn text(self, number: usize) -> String {
        match self {
            Sees(request) => format!("sees {}", with_number(request, number)),
            Rejects(status, error) => format!("rejects {status} {error}"),
            RejectsBody(_) => "rejects 400 client_broken".to_owned(),
            Resets(_) | ResetsSurplus(_) => "resets".to_owned(),
            Next => "next".to_owned(),
            BreaksOff(_) | Closes => "closes".to_owned(),
        }
    }

    /// The body whose beginning the server may see, in an incomplete request.
    fn incomplete_body(self) -> Option<&'static str> {
        match self {
            RejectsBody(body) | BreaksOff(body) | Resets(body) => Some(body),
            ResetsSurplus(request) => Some(request.split_once("|| ").map_or("", |(_, body)| body)),
            Sees(_) | Rejects(..) | Next | Closes => None,
        }
    }
}

/// The common part of the cases over HTTP/1.1 and HTTP/2.
struct Case {
    name: &'static str,
    rfc: &'static str,
    /// The request, for messages.
    sent: String,
    expected: &'static [Step],
}

/// The proxy, the server behind it, and the failed cases.
struct Bench {
    proxy: Proxy,
    server: RecordingServer,
    cases: Vec<Case>,
    /// Requests that the server may see, at any time ([`ResetsSurplus`]).
    possible: Vec<String>,
    failures: Vec<String>,
}

impl Bench {
    async fn start() -> Self {
        let server = RecordingServer::start().await;
        let proxy = Setup::before(&[server.address()])
            .workers(1)
            .upstream("hedge: false\nretry: false")
            .start();
        Self { proxy, server, cases: Vec::new(), possible: Vec::new(), failures: Vec::new() }
    }

    fn address(&self) -> SocketAddr {
        self.proxy.address()
    }

    /// Runs a case. `exchange` sends its requests, and returns the responses in order.
    async fn run(&mut self, case: Case, exchange: impl Future<Output = Vec<Received>>) {
        let number = self.cases.len();
        let possible = case.expected.iter().filter_map(|step| {
            if let ResetsSurplus(request) = step {
                Some(with_number(request, number))
            } else {
                None
            }
        });
        self.possible.extend(possible);
        let before = self.server.requests().len();
        let received = tokio::time::timeout(CASE_DEADLINE, exchange).await;
        let requests = without(self.server.requests().split_off(before), &self.possible);
        let outcome = match received {
            Ok(received) => outcome(received, requests),
            Err(_) => vec![format!("no outcome after {CASE_DEADLINE:?}, sees {requests:?}")],
        };
        let expected: Vec<_> = case.expected.iter().map(|step| step.text(number)).collect();
        if outcome != expected {
            self.failures.push(case.failure(&expected.join("; "), &outcome.join("; ")));
        }
        self.cases.push(case);
    }

    /// Stops the proxy, checks the rest of what the server saw, and fails with all failures.
    async fn finish(mut self) {
        let count = self.server.requests().len();
        self.proxy.stop(Duration::from_secs(10)).await.expect("the proxy stops");
        let late = without(self.server.requests().split_off(count), &self.possible);
        if !late.is_empty() {
            self.failures.push(format!("requests after the last case: {late:?}"));
        }
        for request in self.server.into_incomplete().await {
            if let Some(failure) = incomplete_failure(&self.cases, &request) {
                self.failures.push(failure);
            }
        }
        let (failed, all) = (self.failures.len(), self.cases.len());
        println!("{all} cases");
        assert!(failed == 0, "{failed} failures in {all} cases:\n{}", self.failures.join("\n"));
    }
}

impl Case {
    fn failure(&self, expected: &str, seen: &str) -> String {
        let Self { name, rfc, sent, .. } = self;
        format!(
            "{name} (RFC {rfc})\n      sent: {sent}\n  expected: {expected}\n      seen: {seen}"
        )
    }
}

/// Whether the server may see this incomplete request; returns the failure if not.
fn incomplete_failure(cases: &[Case], request: &IncompleteRequest) -> Option<String> {
    let number = request.target.strip_prefix('/').and_then(|number| number.parse::<usize>().ok());
    let Some(case) = number.and_then(|number| cases.get(number)) else {
        return Some(format!("an incomplete request of an unknown case: {request:?}"));
    };
    let body = case.expected.iter().find_map(|step| step.incomplete_body());
    let is_expected = body.is_some_and(|body| body.starts_with(&request.body));
    let expected = format!("{:?}", case.expected);
    (!is_expected).then(|| case.failure(&expected, &format!("{request:?}")))
}

/// What a client receives in place of a response, or as one.
enum Received {
    /// The server's response to the request with this method and target.
    Response(String),
    /// Anything else, in the form of [`Step::text`].
    Other(String),
}

/// Matches the responses with the requests that the server saw.
fn outcome(received: Vec<Received>, requests: Vec<String>) -> Vec<String> {
    let mut requests = requests.into_iter();
    let mut steps: Vec<String> = received
        .into_iter()
        .map(|received| match received {
            Received::Other(text) => text,
            Received::Response(seen) => match requests.next() {
                Some(request) if request == NEXT_REQUEST && seen == "GET /next" => {
                    "next".to_owned()
                }
                Some(request) if is_response_to(&seen, &request) => format!("sees {request}"),
                request => format!("the response to {seen:?} after the request {request:?}"),
            },
        })
        .collect();
    steps.extend(requests.map(|request| format!("sees without a response {request}")));
    steps
}

fn is_response_to(seen: &str, request: &str) -> bool {
    request.strip_prefix(seen).is_some_and(|rest| rest.is_empty() || rest.starts_with(" |"))
}

fn without(mut requests: Vec<String>, possible: &[String]) -> Vec<String> {
    requests.retain(|request| !possible.contains(request));
    requests
}

fn with_number(text: &str, number: usize) -> String {
    text.replace("/@", &format!("/{number}"))
}

/// The bytes of a text in the tables.
fn bytes(text: &str, number: usize) -> Vec<u8> {
    let text = with_number(text, number).replace('\u{100}', &"y".repeat(2_000));
    let byte = |char: char| u8::try_from(u32::from(char)).expect("a character up to U+00FF");
    text.chars().map(byte).collect()
}

#[test]
fn no_http_1_request_is_smuggled() {
    run(async {
        let mut bench = Bench::start().await;
        for &(name, rfc, request, expected) in http1::tables().into_iter().flatten() {
            let bytes = bytes(request, bench.cases.len());
            let sent = bytes.escape_ascii().to_string();
            let waits = expected.iter().any(|step| matches!(step, BreaksOff(_)));
            let exchange = http1::exchange(bench.address(), bytes, waits);
            bench.run(Case { name, rfc, sent, expected }, exchange).await;
        }
        bench.finish().await;
    });
}

#[test]
fn no_http_2_request_is_smuggled() {
    run(async {
        let mut bench = Bench::start().await;
        for case in http2::tables().into_iter().flatten() {
            let number = bench.cases.len();
            let &(name, rfc, fields, body, expected) = case;
            let exchange = http2::exchange(bench.address(), number, fields, body);
            let sent = format!("{fields:?} {body:?}");
            bench.run(Case { name, rfc, sent, expected }, exchange).await;
        }
        bench.finish().await;
    });
}

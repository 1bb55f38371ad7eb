//! Targets and hosts: each form in RFC 9112 (section 3.2) and RFC 9110 (section 7.2), and what the server must get.

use crate::deadline::run;
use crate::frames::{DATA, END_HEADERS, END_STREAM, Frames, HEADERS, RST_STREAM, fields};
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks, ok};
use crate::wire::Wire;

/// The expected outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The server gets this target and this host.
    Sent(&'static str, &'static str),
    /// The client gets 400 with this `curtail-error`.
    Refused(&'static str),
}

use Fate::{Refused, Sent};

const BAD_HOST: Fate = Refused("bad_host");
const BAD_REQUEST: Fate = Refused("bad_request");

/// Request line without the version, headers, and the outcome over HTTP/1.1.
const HTTP1: &[(&str, &str, Fate)] = &[
    // Origin form.
    ("GET /", "host: h", Sent("/", "h")),
    ("GET /p?q=/?&", "host: h:81", Sent("/p?q=/?&", "h:81")),
    ("GET //p", "host: h", Sent("//p", "h")),
    ("GET /http://other/", "host: h", Sent("/http://other/", "h")),
    ("GET /*", "host: h", Sent("/*", "h")),
    // Not valid in a URI, but accepted by servers.
    ("GET /<a>`\"{}|\\^[]?<b>`\"{}|\\^[]", "host: h", Sent("/<a>`\"{}|\\^[]?<b>`\"{}|\\^[]", "h")),
    ("GET /caf\u{e9}?\u{e4}", "host: h", Sent("/caf\u{e9}?\u{e4}", "h")),
    ("GET /%zz%", "host: h", Sent("/%zz%", "h")),
    ("GET /a#b", "host: h", BAD_REQUEST),
    ("GET /<a>#b", "host: h", BAD_REQUEST),
    ("GET /a?b#c", "host: h", BAD_REQUEST),
    // Absolute form: its host takes precedence, and `host` is still required.
    ("GET http://h", "host: other", Sent("/", "h")),
    ("GET http://h/", "host: other", Sent("/", "h")),
    ("GET http://h:81/p?q", "host: other", Sent("/p?q", "h:81")),
    ("GET http://h?x=1", "host: other", Sent("/?x=1", "h")),
    ("GET HTTPS://h/p", "host: other", Sent("/p", "h")),
    ("GET http://[::1]:81/p", "host: other", Sent("/p", "[::1]:81")),
    ("GET http://h/<p>", "host: h", Sent("/<p>", "h")),
    ("GET http://h//p", "host: h", Sent("//p", "h")),
    ("GET http://h/", "x: y", BAD_HOST),
    ("GET http://h/", "host: a b", BAD_HOST),
    ("GET http://h/", "host: h\r\nhost: h", BAD_HOST),
    ("GET http://user@h/", "host: h", BAD_HOST),
    ("GET http://user:word@h/", "host: h", BAD_HOST),
    ("GET http:///p", "host: h", BAD_HOST),
    ("GET http://:81/p", "host: h", BAD_HOST),
    ("GET http://a,b/p", "host: h", BAD_HOST),
    ("GET http://h:x/p", "host: h", BAD_HOST),
    ("GET http://h/a#b", "host: h", BAD_REQUEST),
    ("GET http://h#b", "host: h", BAD_REQUEST),
    ("GET http:h", "host: h", BAD_REQUEST),
    ("GET http:/h", "host: h", BAD_REQUEST),
    ("GET ftp://h/p", "host: h", BAD_REQUEST),
    ("GET ://h/p", "host: h", BAD_REQUEST),
    // Asterisk form: only for OPTIONS; an absolute target without a path means the same.
    ("OPTIONS *", "host: h", Sent("*", "h")),
    ("OPTIONS http://h:81", "host: other", Sent("*", "h:81")),
    ("OPTIONS http://h/", "host: other", Sent("/", "h")),
    ("OPTIONS http://h?x", "host: other", Sent("/?x", "h")),
    ("GET *", "host: h", BAD_REQUEST),
    ("OPTIONS **", "host: h", BAD_REQUEST),
    ("OPTIONS *?x", "host: h", BAD_REQUEST),
    // None of the four forms.
    ("GET foo", "host: h", BAD_REQUEST),
    ("GET foo:80", "host: h", BAD_REQUEST),
    ("GET ?x", "host: h", BAD_REQUEST),
    ("GET h/p", "host: h", BAD_REQUEST),
    ("GET \\p", "host: h", BAD_REQUEST),
    // Hosts.
    ("GET /", "x: y", BAD_HOST),
    ("GET /", "host: h\r\nhost: h", BAD_HOST),
    ("GET /", "host:", BAD_HOST),
    ("GET /", "host: :81", BAD_HOST),
    ("GET /", "host: a b", BAD_HOST),
    ("GET /", "host: a/b", BAD_HOST),
    ("GET /", "host: a, b", BAD_HOST),
    ("GET /", "host: a,b", BAD_HOST),
    ("GET /", "host: a?b", BAD_HOST),
    ("GET /", "host: a#b", BAD_HOST),
    ("GET /", "host: a\\b", BAD_HOST),
    ("GET /", "host: u@h", BAD_HOST),
    ("GET /", "host: h%2fp", BAD_HOST),
    ("GET /", "host: <h>", BAD_HOST),
    ("GET /", "host: caf\u{e9}", BAD_HOST),
    ("GET /", "host: http://h", BAD_HOST),
    ("GET /", "host: h:x", BAD_HOST),
    ("GET /", "host: h:65536", BAD_HOST),
    ("GET /", "host: h:1:2", BAD_HOST),
    ("GET /", "host: [::1", BAD_HOST),
    ("GET /", "host: [::1]x", BAD_HOST),
    ("GET /", "host: [h]", BAD_HOST),
    ("GET /", "host: []", BAD_HOST),
    ("GET /", "host: a_b-c.d~:65535", Sent("/", "a_b-c.d~:65535")),
    ("GET /", "host: H.", Sent("/", "H.")),
    ("GET /", "host: h:", Sent("/", "h:")),
    ("GET /", "host: [2001:db8::1]:81", Sent("/", "[2001:db8::1]:81")),
    ("GET /", "host: 127.0.0.1", Sent("/", "127.0.0.1")),
];

/// Sends a request on a new connection; [`Sent`] has what the replica got last.
async fn fate(proxy: &Proxy, replica: &RawReplica, request: &str) -> (Option<String>, [String; 2]) {
    let before = replica.record().requests().len();
    let mut wire = Wire::connect(proxy.address()).await;
    wire.send(request).await;
    let response = wire.response().await;
    let mut requests = replica.record().requests();
    if requests.len() == before {
        assert_eq!(response.head.status(), 400, "{request:?}: {response:?}");
        let error =
            response.head.get("curtail-error").expect("the name of what is wrong").to_owned();
        let text = String::from_utf8_lossy(&response.body).into_owned();
        assert!(text.starts_with(&format!("curtail: {error}: ")), "{request:?}: no reason: {text}");
        return (Some(error), Default::default());
    }
    assert_eq!(response.head.status(), 200, "{request:?}: {response:?}");
    let seen = requests.pop().expect("it was sent").head;
    let host = seen.get("host").unwrap_or_default().to_owned();
    (None, [seen.request().1.to_owned(), host])
}

#[test]
fn each_target_and_host_reaches_the_server_or_is_rejected() {
    run(async {
        let replica = RawReplica::responding("here").await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut wrong = Vec::new();
        for &(line, fields, want) in HTTP1 {
            let request = format!("{line} HTTP/1.1\r\n{fields}\r\n\r\n");
            let (got_error, sent) = fate(&proxy, &replica, &request).await;
            let is_as_wanted = match want {
                Sent(target, host) => got_error.is_none() && sent == [target, host],
                Refused(error) => got_error.as_deref() == Some(error),
            };
            if !is_as_wanted {
                wrong.push(format!(
                    "{line:?}, {fields:?}: wanted {want:?}, got {got_error:?} {sent:?}"
                ));
            }
        }
        assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), HTTP1.len(), wrong.join("\n"));
    });
}

#[test]
fn every_minor_version_of_http_1_is_accepted() {
    run(async {
        let replica = RawReplica::responding("here").await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut wire = Wire::connect(proxy.address()).await;
        for minor in 1..=9 {
            wire.send(format!("GET /{minor} HTTP/1.{minor}\r\nhost: h\r\n\r\n")).await;
            let response = wire.response().await;
            assert_eq!(response.head.start, "HTTP/1.1 200 OK", "HTTP/1.{minor}");
        }
        let seen = replica.record().requests();
        let lines: Vec<_> = seen.iter().map(|seen| seen.head.start.clone()).collect();
        let want: Vec<_> = (1..=9).map(|minor| format!("GET /{minor} HTTP/1.1")).collect();
        assert_eq!(lines, want);
        for version in ["HTTP/1.10", "HTTP/1.", "HTTP/1.x", "HTTP/2.0", "HTTP/0.9", "HTTP/3"] {
            let request = format!("GET / {version}\r\nhost: h\r\n\r\n");
            let (error, _) = fate(&proxy, &replica, &request).await;
            assert_eq!(error.as_deref(), Some("bad_request"), "{version}");
        }
    });
}

#[test]
fn an_http_1_0_request_may_omit_the_host_but_not_name_a_bad_one() {
    run(async {
        let replica = RawReplica::responding("here").await;
        let proxy = Setup::before(&[replica.address()]).start();
        let own = replica.address().to_string();
        for (request, want) in [
            ("GET /p HTTP/1.0\r\n\r\n", Ok(["/p", &own])),
            ("GET /p HTTP/1.0\r\nhost: h\r\n\r\n", Ok(["/p", "h"])),
            ("GET http://h/p HTTP/1.0\r\n\r\n", Ok(["/p", "h"])),
            ("GET /p HTTP/1.0\r\nhost:\r\n\r\n", Err("bad_host")),
            ("GET /p HTTP/1.0\r\nhost: a\r\nhost: a\r\n\r\n", Err("bad_host")),
        ] {
            let (got_error, sent) = fate(&proxy, &replica, request).await;
            match want {
                Ok(want) => {
                    assert_eq!((got_error, sent), (None, want.map(str::to_owned)), "{request:?}")
                }
                Err(error) => assert_eq!(got_error.as_deref(), Some(error), "{request:?}"),
            }
        }
    });
}

#[test]
fn invalid_uri_bytes_are_percent_encoded_for_an_http_2_replica() {
    run(async {
        let replica = Replica::start(Speaks::Http2, |_| std::future::ready(ok("here"))).await;
        let proxy =
            Setup::before(&[replica.address()]).upstream("connect: {protocol: http2}").start();
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET /<a>`?<b>\" HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert_eq!(wire.response().await.head.status(), 200);
        let seen = replica.record().only();
        // RFC 9113, section 8.3.1: `:path` must be a valid path and query.
        assert_eq!(seen.uri.path_and_query().expect("a path").as_str(), "/%3Ca%3E%60?%3Cb%3E%22");
    });
}

/// The outcome of a request over HTTP/2 with these pseudo-headers and headers.
async fn fate_over_http2(proxy: &Proxy, head: &[(&str, &str)]) -> (u16, String) {
    let mut frames = Frames::connect(proxy.address()).await;
    frames.send(HEADERS, END_HEADERS | END_STREAM, 1, &fields(head)).await;
    let mut block = None;
    while let Some(frame) = frames.read().await {
        match frame.kind {
            HEADERS => block = Some(frame.payload),
            DATA => {
                let status = block.map_or(0, |block| status(&block));
                return (status, String::from_utf8_lossy(&frame.payload).into_owned());
            }
            RST_STREAM => return (0, "reset".to_owned()),
            _ => {}
        }
    }
    (0, "closed".to_owned())
}

/// The status is the first field: an entry of the static table (RFC 7541, appendix A).
fn status(block: &[u8]) -> u16 {
    match block.first() {
        Some(0x88) => 200,
        Some(0x8c) => 400,
        Some(0x8d) => 404,
        other => panic!("unexpected status {other:?}"),
    }
}

#[test]
fn the_same_rules_hold_over_http_2() {
    run(async {
        let replica = RawReplica::responding("here").await;
        let proxy = Setup::before(&[replica.address()]).start();
        let (get, options) = ((":method", "GET"), (":method", "OPTIONS"));
        let (scheme, root) = ((":scheme", "http"), (":path", "/"));
        let authority = |authority| (":authority", authority);
        let host = |host| ("host", host);
        let mut wrong = Vec::new();
        for (head, want) in [
            (vec![get, scheme, authority("h:81"), (":path", "/p?q")], Sent("/p?q", "h:81")),
            (vec![get, scheme, (":path", "/p"), host("h")], Sent("/p", "h")),
            (vec![get, scheme, authority("h"), root, host("h")], Sent("/", "h")),
            (vec![get, scheme, authority("h"), root, host("H")], Sent("/", "h")),
            (vec![get, scheme, authority("h"), root, host("h:80")], Sent("/", "h")),
            (vec![options, scheme, authority("h"), (":path", "*")], Sent("*", "h")),
            // Two hosts, none, or two different ones.
            (vec![get, scheme, root, host("a"), host("b")], BAD_HOST),
            (vec![get, scheme, root, host("a"), host("a")], BAD_HOST),
            (vec![get, scheme, authority("a"), root, host("a"), host("a")], BAD_HOST),
            (vec![get, scheme, root], BAD_HOST),
            (vec![get, scheme, authority("a"), root, host("b")], BAD_HOST),
            (vec![get, scheme, authority("a"), root, host("a:81")], BAD_HOST),
            (vec![get, scheme, root, host("")], BAD_HOST),
            (vec![get, scheme, root, host("a b")], BAD_HOST),
            (vec![get, scheme, root, host("a, b")], BAD_HOST),
            (vec![get, scheme, root, host("a/b")], BAD_HOST),
            (vec![get, scheme, authority("u@h"), root], BAD_HOST),
            (vec![get, scheme, authority("a,b"), root], BAD_HOST),
            (vec![get, scheme, authority("h"), (":path", "*")], BAD_REQUEST),
            (vec![get, scheme, authority("h"), (":path", "?x")], BAD_REQUEST),
            // Only servers of http and https URLs are behind the proxy.
            (vec![get, (":scheme", "https"), authority("h"), root], Sent("/", "h")),
            (vec![get, (":scheme", "ftp"), authority("h"), root], BAD_REQUEST),
            (vec![options, (":scheme", "coap"), authority("h"), (":path", "*")], BAD_REQUEST),
            (vec![get, scheme, authority("h"), (":path", "/a#b")], BAD_REQUEST),
            // RFC 9113, section 8.2.1: whitespace around a value.
            (vec![get, scheme, authority("h"), root, ("x", "a b")], Sent("/", "h")),
            (vec![get, scheme, authority("h"), root, ("x", " a")], BAD_REQUEST),
            (vec![get, scheme, authority("h"), root, ("x", "a\t")], BAD_REQUEST),
            (vec![get, scheme, authority("h"), root, ("x", " ")], BAD_REQUEST),
        ] {
            let before = replica.record().requests().len();
            let (status, text) = fate_over_http2(&proxy, &head).await;
            let requests = replica.record().requests();
            let seen = requests.get(before).map(|request| &request.head);
            let is_as_wanted = match want {
                Sent(target, host) => seen.is_some_and(|seen| {
                    seen.request().1 == target && seen.all("host") == [host] && status == 200
                }),
                Refused(error) => {
                    let text = text.starts_with(&format!("curtail: {error}: "));
                    seen.is_none() && status == 400 && text
                }
            };
            if !is_as_wanted {
                wrong.push(format!("{head:?}: wanted {want:?}, got {status} {text:?} {seen:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

//! The errors of each header, and of its value.

use crate::config::Config;
use std::fmt::Write as _;

/// The errors of a route with these keys, without their positions.
fn errors(keys: &str) -> Vec<String> {
    let text = format!(
        "listeners: [{{address: \"127.0.0.1:0\"}}]\nupstreams: {{s: {{replicas: [\"http://a\"]}}}}\n\
         routes: [{{upstream: s, {keys}}}]\n"
    );
    let errors = Config::from_yaml("f", &text).err().map(|errors| errors.to_string());
    let lines = errors.as_deref().unwrap_or_default().lines();
    lines
        .map(|line| line.split_once("routes[0].").map_or(line, |(_, text)| text).to_owned())
        .collect()
}

/// Whether each key of each side accepts a header.
fn accepted(name: &str) -> String {
    let mut accepted = String::new();
    for side in ["request_headers", "response_headers"] {
        for (key, value) in [
            ("set", format!("{{{name}: v}}")),
            ("add", format!("{{{name}: v}}")),
            ("remove", format!("[\"{name}\"]")),
        ] {
            let is_accepted = errors(&format!("{side}: {{{key}: {value}}}")).is_empty();
            write!(accepted, "{}", u8::from(is_accepted)).expect("a String takes everything");
        }
    }
    accepted
}

#[test]
fn only_the_proxy_writes_the_headers_of_connections_framing_forwarding_and_tracing() {
    for (names, expected) in [
        (
            // RFC 9110, section 7.6.1, and the framing of messages.
            "connection keep-alive proxy-connection proxy-authenticate te trailer transfer-encoding upgrade \
             content-length content_length transfer_encoding curtail-class curtail-error curtail-x",
            "000000",
        ),
        (
            "expect max-forwards traceparent tracestate forwarded x-forwarded-for x-forwarded-proto \
             x_forwarded-for x_real_ip",
            "000111",
        ),
        ("host HOST", "100111"),
        (
            "x-a X-A x-forwarded-host x-forwarded-prefix x-real-ip authorization cookie user-agent location date \
             server vary set-cookie content-type",
            "111111",
        ),
    ] {
        for name in names.split(' ') {
            assert_eq!(accepted(name), expected, "{name}");
        }
    }
    for name in ["\":path\"", "\"a b\"", "é"] {
        let all = errors(&format!("request_headers: {{set: {{{name}: v}}}}"));
        assert!(all.len() == 1 && all[0].contains("is not the name of a header"), "{all:?}");
    }
}

#[test]
fn an_error_names_the_header_and_what_is_expected() {
    for (keys, expected) in [
        (
            "request_headers: {set: {connection: close}}",
            "request_headers.set.connection: only the proxy itself writes connection: expected another header",
        ),
        (
            "request_headers: {remove: [x-a, te]}",
            "request_headers.remove[1]: only the proxy itself writes te: expected another header",
        ),
        (
            "request_headers: {add: {host: a}}",
            "request_headers.add.host: a request has exactly one host: expected `set` for another one",
        ),
        (
            "request_headers: {set: {host: \"a b\"}}",
            "request_headers.set.host: \"a b\" is not a host: expected a name or an address, with or without a port, such as search.example.org",
        ),
        (
            "request_headers: {set: {host: \"{host}\"}}",
            "request_headers.set.host: \"{host}\" is not a host: expected a name or an address, with or without a port, such as search.example.org",
        ),
        (
            "request_headers: {set: {x-a: v}, remove: [X-A]}",
            "request_headers.remove[0]: x-a is here twice: expected each header once in `set`, `add` and `remove`",
        ),
        (
            "response_headers: {set: {x-a: \"{cleint}\"}}",
            "response_headers.set.x-a: \"cleint\" is not a field: did you mean client?",
        ),
        (
            "response_headers: {set: {x-a: \"{\"}}",
            "response_headers.set.x-a: { stands alone: expected a field such as {client}, or {{ for the character",
        ),
        (
            "response_headers: {set: {x-a: \"a\\nb: c\"}}",
            "response_headers.set.x-a: \"a\\nb: c\" is not the value of a header: expected printable ASCII without spaces at its ends",
        ),
        (
            "response_headers: {set: {x-a: \"a \"}}",
            "response_headers.set.x-a: \"a \" is not the value of a header: expected printable ASCII without spaces at its ends",
        ),
        (
            "request_headers: {set: {x-a: [b]}}",
            "request_headers.set.x-a: this is a list: expected text (in quotes if it looks like a number)",
        ),
        (
            "request_headers: {set: x-a}",
            "request_headers.set: x-a is text: expected a section of names, each with text (in quotes if it looks like a number)",
        ),
    ] {
        assert_eq!(errors(keys), [expected], "{keys}");
    }
    for (bytes, expected) in [
        (8_192, &[][..]),
        (8_193, &["response_headers.add.x-a: has 8193 bytes: expected at most 8192"]),
    ] {
        let keys = format!("response_headers: {{add: {{x-a: {}}}}}", "v".repeat(bytes));
        assert_eq!(errors(&keys), expected);
    }
    let many: Vec<String> = (0..65).map(|nth| format!("x-{nth}: v")).collect();
    let all = errors(&format!("request_headers: {{set: {{{}}}}}", many.join(", ")));
    assert_eq!(all, ["request_headers.set: 65 of them: expected at most 64"]);
}

#[test]
fn prefixes_and_redirects_are_checked() {
    for (keys, expected) in [
        ("rewrite_prefix: v2", "rewrite_prefix: \"v2\" does not begin with /"),
        (
            "rewrite_prefix: /a/../b",
            "rewrite_prefix: \"/a/../b\" is not normalized: expected a path without //, . or .. segments, ;, \\ and NUL, in any encoding",
        ),
        (
            "rewrite_prefix: /.curtail/x",
            "rewrite_prefix: \"/.curtail/x\" is reserved for requests of roots to leaves: expected another prefix",
        ),
        (
            "rewrite_prefix: /%2ecurtail",
            "rewrite_prefix: \"/%2ecurtail\" is reserved for requests of roots to leaves: expected another prefix",
        ),
        (
            "rewrite_prefix: /a%4/%zz",
            "rewrite_prefix: \"/a%4/%zz\" has a % without two hexadecimal digits: expected a path such as /search or /a%20b; %25 stands for %",
        ),
        (
            "redirect: {prefix: /a%}",
            "redirect.prefix: \"/a%\" has a % without two hexadecimal digits: expected a path such as /search or /a%20b; %25 stands for %",
        ),
        (
            "path_prefix: /%zz",
            "path_prefix: \"/%zz\" has a % without two hexadecimal digits: expected a path such as /search or /a%20b; %25 stands for %",
        ),
        (
            &format!("rewrite_prefix: /{}", "x".repeat(8_192)),
            "rewrite_prefix: has 8193 bytes: expected at most 8192",
        ),
        (
            "redirect: {prefix: \"/a?b\"}",
            "redirect.prefix: \"/a?b\" contains a character that is not valid in a request path: expected a path such as /search or /a%20b",
        ),
        (
            "redirect: {prefix: /, status: 308}",
            "redirect: redirects every request to itself: expected a scheme, a host or another prefix",
        ),
        (
            "redirect: {scheme: https, status: 304}",
            "redirect.status: 304 is no redirect: expected 301, 302, 303, 307 or 308",
        ),
        (
            "redirect: {host: \"http://a\"}",
            "redirect.host: \"http://a\" is not a host: expected a name or an address, with or without a port, such as www.example.org",
        ),
    ] {
        assert_eq!(errors(keys), [expected], "{keys}");
    }
}

#[test]
fn a_route_without_an_upstream_redirects_and_does_nothing_else() {
    let errors = |keys: &str| {
        let text = format!(
            "listeners: [{{address: \"127.0.0.1:0\"}}]\nroutes: [{{path_prefix: /a, {keys}}}]\n"
        );
        let errors = Config::from_yaml("f", &text).err();
        errors.map_or_else(String::new, |errors| errors.to_string())
    };
    assert_eq!(errors("redirect: {prefix: /b}, response_headers: {remove: [x-a]}"), "");
    assert_eq!(
        errors("idempotent: true"),
        "f:2:10: routes[0].upstream: missing: expected the name of an upstream, or a redirect"
    );
    for keys in ["rewrite_prefix: /c", "request_headers: {remove: [x-a]}", "fan_out: {}"] {
        let all = errors(&format!("redirect: {{prefix: /b}}, {keys}"));
        assert!(
            all.contains("has no effect, because no request goes to a replica"),
            "{keys}: {all}"
        );
    }
}

//! `curtail config`: errors and what is understood, as people see them.

use crate::command::{curtail, curtail_reading, written};
use expect_test::expect;

/// A listener, a route and an upstream; the least that is right.
const SMALL: &str = "\
listeners: [{address: \"127.0.0.1:7300\"}]
routes: [{upstream: search}]
upstreams: {search: {replicas: [\"http://127.0.0.1:8080\", \"http://127.0.0.1:8081\"]}}
";

#[test]
fn five_errors_are_all_named_with_line_key_and_expectation() {
    let file = written(
        "five-errors.yaml",
        "\
listeners:
  - {name: in, address: localhost}
routes:
  - {path_prefix: /search, upstream: search}
upstreams:
  search:
    replicas: [\"http://127.0.0.1:8080\", \"127.0.0.1:8081\"]
    hedge: {quantile: 99}
    budget: {ratio: 2%}
    timout: 5s
",
    );
    let ended = curtail(&["config", "check", &file]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    expect![[r#"
        five-errors.yaml:2:25: listeners[0].address: localhost has no port: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted), or a Unix socket such as unix:/run/curtail.sock
        five-errors.yaml:7:41: upstreams.search.replicas[1]: "127.0.0.1:8081" has no scheme: expected a replica such as http://127.0.0.1:8080, a=http://127.0.0.1:8080 or "http://127.0.0.1:8080 weight=2 zone=a", without a path, or http://unix:/run/app.sock
        five-errors.yaml:8:23: upstreams.search.hedge.quantile: 99 is out of range: expected a quantile from 0 to 1 (0.99, not 99)
        five-errors.yaml:9:21: upstreams.search.budget.ratio: 2% is text: expected a ratio from 0 to 1 (0.02 for 2 %)
        five-errors.yaml:10:5: upstreams.search.timout: unknown key: did you mean timeout?
    "#]]
    .assert_eq(&ended.stderr);
}

#[test]
fn invalid_prefixes_and_address_ranges_are_reported() {
    let file = written(
        "no-boundary.yaml",
        "\
trusted_proxies: [10.0.0.0/8, 10.0.0.1/8, proxy.example.org]
listeners: [{address: \"127.0.0.1:7300\"}]
routes:
  - {path_prefix: /a/../b, upstream: search}
  - {path_prefix: /a//b, upstream: search}
  - {path_prefix: \"/a;b\", upstream: search}
  - {path_prefix: /caf%c3%a9/, upstream: search}
  - {path_prefix: a, upstream: search}
upstreams: {search: {replicas: [\"http://127.0.0.1:8080\"]}}
",
    );
    let ended = curtail(&["config", "check", &file]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    expect![[r#"
        no-boundary.yaml:1:31: trusted_proxies[1]: 10.0.0.1/8 is text: expected a range of addresses such as 10.0.0.0/8, 192.0.2.7 or "2001:db8::/32" (quoted), or "unix:" for the clients of Unix sockets
        no-boundary.yaml:1:43: trusted_proxies[2]: proxy.example.org is text: expected a range of addresses such as 10.0.0.0/8, 192.0.2.7 or "2001:db8::/32" (quoted), or "unix:" for the clients of Unix sockets
        no-boundary.yaml:4:19: routes[0].path_prefix: "/a/../b" is not normalized: expected a path without //, . or .. segments, ;, \ and NUL, in any encoding
        no-boundary.yaml:5:19: routes[1].path_prefix: "/a//b" is not normalized: expected a path without //, . or .. segments, ;, \ and NUL, in any encoding
        no-boundary.yaml:6:19: routes[2].path_prefix: "/a;b" is not normalized: expected a path without //, . or .. segments, ;, \ and NUL, in any encoding
        no-boundary.yaml:8:19: routes[4].path_prefix: "a" does not begin with /
    "#]]
    .assert_eq(&ended.stderr);
}

#[test]
fn upstreams_of_a_group_with_different_shared_keys_are_reported() {
    let file = written(
        "group.yaml",
        "\
listeners: [{address: \"127.0.0.1:7300\"}]
routes: [{upstream: shard-0}]
upstreams:
  shard-0: {replicas: [\"http://127.0.0.1:8080\"], group: bigtable}
  shard-1: {replicas: [\"http://127.0.0.1:8081\"], group: bigtable, hedge: {delay_max: 1s}}
  shard-2: {replicas: [\"http://127.0.0.1:8082\"], group: bigtable, budget: {ratio: 0.1}}
",
    );
    let ended = curtail(&["config", "check", &file]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    expect![[r#"
        group.yaml:6:57: upstreams.shard-2.group: bigtable is also the group of upstreams.shard-0, whose shared keys differ: expected the same budget, hedge.quantile and retry.overdue.quantile
    "#]]
    .assert_eq(&ended.stderr);
}

/// A file that uses every section.
const UNDERSTOOD: &str = "\
listeners:
  - {name: in, address: \"127.0.0.1:7300\"}
  - {name: outside, address: \"0.0.0.0:443\", tls: {certificate_file: understood-c.pem, key_file: understood-k.pem}}
admin: {}
trusted_proxies: [10.0.0.0/8, 192.0.2.7]
spans: {endpoint: \"http://127.0.0.1:4318\"}
routes:
  - {path_prefix: /search/, upstream: search}
  - {path_prefix: /find, upstream: search}
  - {host: orders.example.org, upstream: orders, idempotent: true}
  - {path_prefix: /old, redirect: {prefix: /new, status: 301}}
  - {path_prefix: /v1/, upstream: search, redirect: {scheme: https}, rewrite_prefix: /v2, grpc_timeout: true,
     request_headers: {set: {host: inner.test}, remove: [x-debug]}, retry: {retries_max: 1, statuses: [503]}}
upstreams:
  search:
    replicas: [\"http://10.0.0.1:80\", \"http://10.0.0.2:80\", \"https://search.example.org\"]
    balance: prequal
    tie: {delay: 2ms}
    retry: false
  orders:
    replicas: [\"http://10.0.1.1:80\"]
    balance: {policy: peak_ewma, decay: 5s}
    hedge: {hedges_max: 2}
    retry: {overdue: false}
    budget: {ratio: 0, reserve: 3}
  spare: {replicas: [\"http://10.0.2.1:80\", \"http://10.0.2.2:80\"], discovery: {dns: \"http://spare.test:81\"}, hedge: false, timeout: 500ms}
leaves:
  - {name: near, address: \"10.0.0.9:7310\", server: \"http://127.0.0.1:80\", concurrency: 4}
";

#[test]
fn a_valid_file_is_shown_as_the_proxy_interprets_it() {
    certificate("understood-c.pem", "understood-k.pem");
    let file = written("understood.yaml", UNDERSTOOD);
    let ended = curtail(&["config", "check", &file]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    expect![[r#"
        understood.yaml is correct:

        listener in: 127.0.0.1:7300, clear text
        listener outside: 0.0.0.0:443, TLS
        admin: 127.0.0.1:7301
        limits: 16,384 connections, headers 64KiB in 10s, drain 10s
        spans: to http://127.0.0.1:4318 as curtail-proxy
        leaf near: 10.0.0.9:7310 -> http://127.0.0.1:80, 4 at once, 1024 may wait
        trusted proxies: 10.0.0.0/8, 192.0.2.7/32
        route any host, /search/ -> upstream search
        route any host, /find and /find/... -> upstream search
        route orders.example.org / (any method may be sent twice) -> upstream orders
        route any host, /old and /old/... -> redirect 301 to /new
        route any host, /v1/ (retries_max 1) (failed statuses: 503) (grpc-timeout is a
            deadline) (as /v2) (2 headers changed in each request) -> redirect 307 to
            https://<host><path>, then upstream search

        upstream search: 3 replicas: http://10.0.0.1:80, http://10.0.0.2:80,
            https://search.example.org:443
          balance    prequal: 3 probes a request, hot from quantile 0.6
          hedge      when slower than quantile 0.99 of recent attempts, after 1ms to 1s;
                     at most 1
          tie        the second copy after 2ms
          retry      off
          timeout    1m
          at worst   4 attempts for one request; 2.02 on average over 10s
          note: each replica must be a leaf; else a tie is executed twice

        upstream orders: 1 replica: http://10.0.1.1:80
          balance    peak_ewma: of two at random, lower peak latency × in flight; decay
                     5s
          hedge      when slower than quantile 0.99 of recent attempts, after 1ms to 1s;
                     at most 2
          tie        off
          retry      at most 2, backoff 10ms to 1s
          timeout    1m
          at worst   5 attempts for one request; 1.00 on average over 10s, and 3 retries
                     in 10s
          note: hedges and ties need a second replica

        upstream spare: 2 replicas: http://10.0.2.1:80, http://10.0.2.2:80, and the A
            and AAAA records of http://spare.test:81
          balance    least_request: of two at random, fewer in flight
          hedge      off
          tie        off
          retry      at most 2, backoff 10ms to 1s; overdue when slower than quantile
                     0.995, after 100ms to 5s
          timeout    500ms
          at worst   3 attempts for one request; 1.02 on average over 10s, or 10 retries
                     if 10s has fewer than 500 requests
          note: timeout 500ms is not above retry.overdue.delay_max 5s: no attempt is
              overdue while fewer than 100 latencies are known
          note: no route leads here
          note: requests go to the replicas of the file and to those of discovery;
              remove one of the two keys if they are the same servers
    "#]]
    .assert_eq(&ended.stdout);
}

/// The lines of a summary without their wrapping: a line that is further indented than its key goes on.
fn unwrapped(summary: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in summary.lines() {
        let goes_on = line.starts_with("    ");
        match lines.last_mut().filter(|_| goes_on) {
            Some(last) => *last += &format!(" {}", line.trim()),
            None => lines.push(line.to_owned()),
        }
    }
    lines
}

/// The summary of a correct file.
fn summary(text: &str) -> Vec<String> {
    let ended = curtail_reading(text, &["config", "check", "-"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{text}");
    let widest = ended.stdout.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{}", ended.stdout);
    unwrapped(&ended.stdout)
}

#[test]
fn a_summary_has_zone_modes_and_limits() {
    let lines = summary(
        "\
zone: eu-1a
limits: {drain: 30s, connections_max: 9}
listeners: [{address: \"unix:/run/in.sock\", mode: 0660, proxy_protocol: {from: [\"unix:\"]}}]
tenants: {header: x-tenant}
routes:
  - {upstream: s, limits: {in_flight_max: 9, rate: 3, per_client: {rate: 0.5}, per_tenant: {in_flight_max: 2}}}
upstreams:
  s: {replicas: [\"http://a\", \"http://b\"], in_flight_max: 100, connect: {idle_min: 2}}
",
    );
    for line in [
        "listener in: unix:/run/in.sock, mode 0660, clear text, after a PROXY header",
        "zone: eu-1a",
        "limits: 9 connections, headers 64KiB in 10s, drain 30s",
        "route any host, / (at most 9 in flight, 3 a second, 0.5 a second per client, 2 in flight \
         per tenant) -> upstream s",
        "  in flight  at most 100",
        "  idle       at least 2 connections",
    ] {
        assert!(lines.iter().any(|shown| shown == line), "{line}: {lines:#?}");
    }
}

#[test]
fn notes_name_listeners_and_weights_that_cannot_work() {
    let notes = |listener: &str, rest: &str, weight: &str| {
        let text = format!(
            "listeners: [{{{listener}}}]\n{rest}\nupstreams:\n  \
             s: {{replicas: [\"http://a{weight}\", \"http://b{weight}\"]}}\n"
        );
        let lines = summary(&text);
        let notes = lines.iter().filter_map(|line| line.trim().strip_prefix("note: "));
        notes.map(str::to_owned).collect::<Vec<_>>().join("; ")
    };
    let (tcp, unix) = ("address: \"127.0.0.1:80\"", "address: \"unix:/run/in.sock\"");
    let plain = "routes: [{upstream: s}]";
    let https = "routes: [{upstream: s, redirect: {scheme: https}}]";
    let trusting = |of: &str| format!("{plain}\ntrusted_proxies: [{of}]");
    for (listener, rest, weight, says) in [
        (tcp.to_owned(), plain.to_owned(), "", None),
        (tcp.to_owned(), plain.to_owned(), " weight=0", Some("all weights are 0: no replica gets")),
        (
            format!("{unix}, mode: 432"),
            plain.to_owned(),
            "",
            Some("mode 0432 does not let the owner connect"),
        ),
        (format!("{unix}, mode: 0660"), plain.to_owned(), "", None),
        (
            format!("{unix}, proxy_protocol: {{from: [127.0.0.1]}}"),
            plain.to_owned(),
            "",
            Some("closes all connections; expected \"unix:\""),
        ),
        (
            format!("{tcp}, proxy_protocol: {{from: [\"unix:\"]}}"),
            plain.to_owned(),
            "",
            Some("closes all connections; expected addresses"),
        ),
        (format!("{tcp}, proxy_protocol: {{from: [127.0.0.1]}}"), plain.to_owned(), "", None),
        (
            format!("{tcp}, proxy_protocol: {{from: [127.0.0.1]}}"),
            https.to_owned(),
            "",
            Some("redirects to https forever"),
        ),
        (tcp.to_owned(), https.to_owned(), "", None),
        (unix.to_owned(), trusting("127.0.0.1"), "", Some("only \"unix:\" trusts them")),
        (tcp.to_owned(), trusting("\"unix:\""), "", Some("\"unix:\" has no effect")),
        (unix.to_owned(), trusting("\"unix:\""), "", None),
    ] {
        let notes = notes(&listener, &rest, weight);
        assert!(notes.contains(says.unwrap_or_default()), "{listener} {rest}: {notes}");
        assert_eq!(notes.is_empty(), says.is_none(), "{listener} {rest}: {notes}");
    }
    let leaf = "leaves: [{name: l, address: \"127.0.0.1:1\", server: \"http://127.0.0.1:2\"}]\n";
    let notes = summary(&format!("{leaf}trusted_proxies: [127.0.0.1]\n"));
    let has_note = notes.iter().any(|line| line.contains("note: there is no listener"));
    assert!(has_note, "{notes:#?}");
}

#[test]
fn notes_name_discovery_that_may_surprise_and_a_summary_says_how_to_open_the_admin_port() {
    let text = SMALL.replace("8081\"]", "8081\"], discovery: {file: {path: no-such.json}}");
    let lines = summary(&text);
    for line in [
        "admin: none, so no metrics and no state page; `admin: {}` opens port 7301",
        "  note: requests go to the replicas of the file and to those of discovery; remove one of \
         the two keys if they are the same servers",
        "  note: discovery.file no-such.json: No such file or directory (os error 2): there are no \
         replicas of it before it can be read",
    ] {
        assert!(lines.iter().any(|shown| shown == line), "{line}: {lines:#?}");
    }
}

#[test]
fn errors_of_the_text_and_of_its_files_are_reported_together() {
    let file = written(
        "all-stages.yaml",
        "\
workers: many
listeners:
  - {address: \"127.0.0.1:7300\", tls: {certificate_file: no-c.pem, key_file: no-k.pem}}
  - {address: \"127.0.0.1:7300\", name: b, tls: {certificate_file: [], key_file: no-k.pem}}
routes: [{upstream: t}]
upstreams: {s: {replicas: [\"http://a\"]}}
access_log: 5
",
    );
    let ended = curtail(&["config", "check", &file]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    expect![[r#"
        all-stages.yaml:1:10: workers: many is text: expected a whole number from 1 to 256
        all-stages.yaml:3:57: listeners[0].tls.certificate_file: no-c.pem: No such file or directory (os error 2)
        all-stages.yaml:3:77: listeners[0].tls.key_file: no-k.pem: No such file or directory (os error 2)
        all-stages.yaml:4:15: listeners[1].address: same address as listeners[0]: expected another port
        all-stages.yaml:4:66: listeners[1].tls.certificate_file: this is a list: expected a path such as /path/to/file
        all-stages.yaml:4:80: listeners[1].tls.key_file: no-k.pem: No such file or directory (os error 2)
        all-stages.yaml:5:21: routes[0].upstream: "t" is not defined: did you mean s?
        all-stages.yaml:7:13: access_log: 5 is a number: expected a section of keys
    "#]].assert_eq(&ended.stderr);
}

/// Writes a certificate and its key.
fn certificate(certificate_file: &str, key_file: &str) {
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a name");
    written(certificate_file, issued.cert.pem());
    written(key_file, issued.signing_key.serialize_pem());
}

#[test]
fn all_files_that_would_prevent_a_start_are_reported_at_once() {
    certificate("one-c.pem", "one-k.pem");
    certificate("other-c.pem", "other-k.pem");
    let file = written(
        "files.yaml",
        "\
listeners:
  - {address: \"127.0.0.1:7300\", tls: {certificate_file: none.pem, key_file: one-k.pem}}
  - {name: b, address: \"127.0.0.1:7302\", tls: {certificate_file: one-c.pem, key_file: other-k.pem}}
  - {name: c, address: \"127.0.0.1:7303\", tls: {certificate_file: one-c.pem, key_file: one-c.pem}}
  - {name: d, address: \"127.0.0.1:7304\", tls: {certificate_file: one-c.pem, key_file: one-k.pem}}
routes: [{upstream: s}]
upstreams:
  s:
    replicas: [\"http://a\", \"https://-b\", \"https://-c\"]
    connect: {ca_file: no-ca.pem, client_certificate: {certificate_file: no-c.pem, key_file: one-k.pem}}
access_log: {file: no-such-folder/access.log}
",
    );
    let ended = curtail(&["config", "check", &file]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(3), ""));
    expect![[r#"
        files.yaml:2:57: listeners[0].tls.certificate_file: none.pem: No such file or directory (os error 2)
        files.yaml:3:66: listeners[1].tls.certificate_file: one-c.pem: the key in other-k.pem belongs to another certificate
        files.yaml:4:66: listeners[2].tls.certificate_file: one-c.pem: expected a private key in PEM: found no section of that kind
        files.yaml:9:15: upstreams.s.replicas: https://-b:443: not a name that a certificate can have: invalid dns name
        files.yaml:9:15: upstreams.s.replicas: https://-c:443: not a name that a certificate can have: invalid dns name
        files.yaml:10:24: upstreams.s.connect.ca_file: no-ca.pem: No such file or directory (os error 2)
        files.yaml:10:74: upstreams.s.connect.client_certificate.certificate_file: no-c.pem: No such file or directory (os error 2)
        files.yaml:11:20: access_log.file: no-such-folder/access.log: No such file or directory (os error 2)
    "#]].assert_eq(&ended.stderr);
}

#[test]
fn all_errors_of_a_server_and_of_its_files_are_reported_together() {
    let text = "\
retention: {days: many}
otlp: {tokens_file: no-t, tls: {certificate_file: no-c.pem, key_file: no-k.pem}}
api: {tokens_file: no-t}
";
    for (text, code) in [(text.to_owned(), 2), (text.replace("many", "7"), 3)] {
        let check = ["config", "--kind", "server", "check", "-"];
        let ended = curtail_reading(&text, &check);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{}", ended.stderr);
        let of_files = ended.stderr.lines().skip(usize::from(code == 2));
        expect![[r#"
            <stdin>:2:21: otlp.tokens_file: cannot use no-t: No such file or directory (os error 2)
            <stdin>:2:32: otlp.tls: no-c.pem: No such file or directory (os error 2)
            <stdin>:3:20: api.tokens_file: cannot use no-t: No such file or directory (os error 2)"#]].assert_eq(&of_files.collect::<Vec<_>>().join("\n"));
    }
}

#[test]
fn a_configuration_of_a_server_is_recognized() {
    let ended = curtail_reading("{retention: {days: 7}}", &["config", "check", "-"]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("curtail config --kind server"), "{}", ended.stderr);
    let empty = curtail_reading("{}", &["config", "check", "-"]);
    assert!(empty.stderr.contains("nothing to listen on"), "{}", empty.stderr);
}

#[test]
fn a_dash_is_standard_input() {
    let right = curtail_reading(SMALL, &["config", "check", "-"]);
    assert_eq!((right.code, right.stderr.as_str()), (Some(0), ""));
    assert!(right.stdout.starts_with("<stdin> is correct:"), "{}", right.stdout);
    let wrong = curtail_reading(&SMALL.replace("routes", "rotues"), &["config", "check", "-"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.starts_with("<stdin>:2:1: rotues: "), "{}", wrong.stderr);
    for command in [&["simulate"][..], &["testbed"], &["bench", "suite"]] {
        let ended = curtail_reading("nonsense: 1\n", &[command, &["-"]].concat());
        assert_eq!(ended.code, Some(2), "{command:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("<stdin>:1:1: nonsense: "), "{}", ended.stderr);
    }
}

#[test]
fn values_from_the_command_line_are_checked_with_the_file() {
    let file = written("small.yaml", SMALL);
    let right = curtail(&["config", "check", &file, "--set", "upstreams.search.hedge=false"]);
    assert_eq!(right.code, Some(0));
    assert!(right.stdout.contains("hedge      off\n"), "{}", right.stdout);
    let wrong = curtail(&["config", "check", &file, "--set", "limits.drain=soon"]);
    assert_eq!(wrong.code, Some(2));
    expect![[r#"
        --set limits.drain=soon: soon is text: expected a duration such as 10ms or 1.5s
    "#]]
    .assert_eq(&wrong.stderr);
}

#[test]
fn a_file_that_cannot_be_read_is_the_environment_s_fault() {
    let missing = curtail(&["config", "check", "no-such.yaml"]);
    assert_eq!(missing.code, Some(3));
    assert!(missing.stderr.starts_with("no-such.yaml: "), "{}", missing.stderr);
}

#[test]
fn a_file_that_is_no_text_is_an_error() {
    let binary = written("binary.yaml", b"limits: {}\n# \xff\n");
    let ended = curtail(&["config", "check", &binary]);
    assert_eq!(ended.code, Some(2));
    assert_eq!(ended.stderr, "binary.yaml:2:3: byte 13 is not UTF-8: expected a text file\n");
}

#[test]
fn the_complete_file_is_right() {
    let file = written("complete.yaml", curtail(&["config", "default"]).stdout);
    let ended = curtail(&["config", "check", &file]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert!(ended.stdout.contains("upstream service: 2 replicas"), "{}", ended.stdout);
    assert!(ended.stdout.contains("admin: 127.0.0.1:7301\n"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("note: "), "{}", ended.stdout);
}

#[test]
fn notes_name_budgets_and_timeouts_that_leave_hedges_and_retries_without_effect() {
    let notes = |keys: &str| {
        let text = SMALL.replace("8081\"]", &format!("8081\"], {keys}"));
        let lines = summary(&text);
        let notes = lines.iter().filter_map(|line| line.trim().strip_prefix("note: "));
        notes.map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    let spent = "hedges of ordinary requests (5 %) spend most of the budget (5 %); \
                 raise hedge.quantile or budget.ratio";
    assert_eq!(notes("hedge: {quantile: 0.95}, budget: {ratio: 0.05}"), spent);
    let none = "budget.ratio is 0: no request is hedged";
    assert_eq!(notes("budget: {ratio: 0}"), none);
    let overdue = "timeout 2s is not above retry.overdue.delay_max 5s: \
                   no attempt is overdue while fewer than 100 latencies are known";
    assert_eq!(notes("timeout: 2s"), overdue);
    let hedge = "timeout 1s is not above hedge.delay_max 1s: \
                 no request is hedged while fewer than 100 latencies are known";
    assert_eq!(notes("timeout: 1s, retry: {overdue: {delay_max: 999ms}}"), hedge);
    for without_note in [
        "budget: {ratio: 0.02}",
        "hedge: {quantile: 0.95}, budget: {ratio: 0.1}",
        "hedge: false, budget: {ratio: 0}",
        "timeout: 2s, retry: {overdue: {delay_max: 500ms}}",
        "timeout: 2s, retry: {overdue: false}",
        "timeout: 500ms, hedge: false, retry: false",
    ] {
        assert_eq!(notes(without_note), "", "{without_note}");
    }
}

#[test]
fn durations_are_shown_as_in_the_file() {
    for (keys, line) in [
        ("timeout: 3600s", "  timeout    1h"),
        ("timeout: 90s", "  timeout    90s"),
        ("switchback: 0.5", "of blocks of 30s without hedges and ties; states nothing before 1h"),
        ("switchback: 0.35", "states nothing before 86m"),
        ("balance: {policy: peak_ewma, decay: 120s}", "decay 2m"),
    ] {
        let text = SMALL.replace("8081\"]", &format!("8081\"], {keys}"));
        let lines = summary(&text);
        assert!(lines.iter().any(|shown| shown.ends_with(line)), "{lines:#?}");
    }
}

#[test]
fn usage_is_explained_when_there_is_nothing_to_do() {
    let ended = curtail(&["config"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    assert!(ended.stderr.contains("Usage: curtail config"), "{}", ended.stderr);
}

#[test]
fn a_proxy_without_arguments_names_both_sources_of_its_configuration() {
    let ended = curtail(&["proxy"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    for flag in ["--config <FILE>", "--upstream <URL>"] {
        assert!(ended.stderr.contains(flag), "{}", ended.stderr);
    }
}

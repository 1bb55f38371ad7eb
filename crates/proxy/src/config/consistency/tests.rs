//! Configurations in which every key is valid, but not their combination.

use crate::config::Config;
use expect_test::{Expect, expect};

fn check(text: &str, expect: Expect) {
    let read = Config::from_yaml("f", text);
    expect.assert_eq(&read.err().map_or_else(String::new, |errors| errors.to_string()));
}

#[test]
fn an_unreachable_route_is_an_error() {
    check(
        "\
listeners: [{address: \"127.0.0.1:0\"}]
upstreams: {s: {replicas: [\"http://a\"]}}
routes:
  - {upstream: s, host: b.example.org}
  - {upstream: s}
  - {upstream: s, path_prefix: /b}
  - {upstream: s, path_prefix: /}
  - {upstream: s, path_prefix: /b/}
  - {upstream: s, host: B.Example.org, path_prefix: /}
  - {upstream: s, host: b.example.org.}
  - {upstream: s, path_prefix: /%62}
",
        expect![[r#"
            f:7:5: routes[3]: matches no request: routes[1] matches the same requests
            f:9:5: routes[5]: matches no request: routes[0] matches the same requests
            f:10:5: routes[6]: matches no request: routes[0] matches the same requests
            f:11:5: routes[7]: matches no request: routes[2] matches the same requests"#]],
    );
}

#[test]
fn independent_errors_of_a_section_are_all_reported() {
    check(
        "\
listeners: [{address: \"127.0.0.1:0\"}]
routes:
  - {upstream: s, retry: {retries_max: 9, statuses: [200, x, 700]}}
upstreams:
  s:
    replicas: [\"http://a\"]
    health_check: {http: a, grpc: b, interval: 1ms, host: \"a b\"}
    discovery: {dns: \"http://a_.\", file: {path: /a}, stale_max: 5, tls_server_name: a}
    connect: {idle_min: 9, timeout: 5, proxy_protocol: v1}
  t:
    replicas: [\"http://a\"]
    health_check: {grpc: b, interval: 1ms}
    connect: {timeout: 5}
access_log: {format: \"{nothing}\", headers: [a, a b, a]}
",
        expect![[r#"
            f:3:40: routes[0].retry.retries_max: 9 is out of range: expected a whole number from 0 to 7
            f:3:54: routes[0].retry.statuses[0]: 200 is not an error status: expected 400 to 599
            f:3:59: routes[0].retry.statuses[1]: x is text: expected a whole number from 0 to 65535
            f:3:62: routes[0].retry.statuses[2]: 700 is not an error status: expected 400 to 599
            f:7:26: upstreams.s.health_check.http: "a" is not a path: expected a path such as /healthz
            f:7:26: upstreams.s.health_check.http: a check has one request: expected only one of http, grpc and tcp: true
            f:7:48: upstreams.s.health_check.interval: 1ms is out of range: expected a duration from 100ms to 1h
            f:7:59: upstreams.s.health_check.host: "a b" is not a host: expected a name or an address, such as search.example.org
            f:8:22: upstreams.s.discovery.dns: expected one source: dns, srv, kubernetes, eds, file or http
            f:8:65: upstreams.s.discovery.stale_max: 5 has no unit (ns, us, ms, s, m or h): expected a duration such as 10ms or 1.5s
            f:8:85: upstreams.s.discovery.tls_server_name: the URL of dns or srv has the name: expected no tls_server_name
            f:9:25: upstreams.s.connect.idle_min: no client could use these connections: with `proxy_protocol` each client has connections of its own; expected 0
            f:9:37: upstreams.s.connect.timeout: 5 has no unit (ns, us, ms, s, m or h): expected a duration such as 10ms or 1.5s
            f:12:26: upstreams.t.health_check.grpc: gRPC needs HTTP/2: expected connect.protocol: http2
            f:12:39: upstreams.t.health_check.interval: 1ms is out of range: expected a duration from 100ms to 1h
            f:13:24: upstreams.t.connect.timeout: 5 has no unit (ns, us, ms, s, m or h): expected a duration such as 10ms or 1.5s
            f:14:1: access_log.file: missing: expected a path such as /path/to/file
            f:14:22: access_log.format: "nothing" is not a field: expected one of time, client, listener, method, scheme, host, path, protocol, route, upstream, class, tenant, status, grpc_status, error, error_detail, reason, request_bytes, response_bytes, duration_ms, first_byte_ms, queue_ms, replica, hedges, retries, skipped, holdout, shards, shards_missing, shards_missing_detail, or one of 6 more
            f:14:48: access_log.headers[1]: "a b" is not the name of a header: expected one such as user-agent
            f:14:53: access_log.headers[2]: a is there twice"#]],
    );
}

#[test]
fn a_mistyped_key_is_one_error() {
    check(
        "\
listners: [{address: \"127.0.0.1:0\"}]
routes: [{upstreams: s}]
upstreams:
  s: {replcas: [\"http://a\"], discovery: {flie: {path: /a}}}
  t: {discovry: {file: {path: /a}}, health_check: {grcp: \"\"}}
",
        expect![[r#"
            f:1:1: listners: unknown key: did you mean listeners?
            f:2:11: routes[0].upstreams: unknown key: did you mean upstream?
            f:4:7: upstreams.s.replcas: unknown key: did you mean replicas?
            f:4:42: upstreams.s.discovery.flie: unknown key: did you mean file?
            f:5:7: upstreams.t.discovry: unknown key: did you mean discovery?
            f:5:52: upstreams.t.health_check.grcp: unknown key: did you mean grpc?"#]],
    );
}

#[test]
fn a_value_that_cannot_be_read_hides_no_error_about_other_values() {
    check(
        "\
workers: many
trusted_proxies: [10.0.0.1/8]
listeners:
  - {address: \"127.0.0.1:7300\", mode: 0660}
  - {address: \"127.0.0.1:7300\", name: b, proxy_protocol: {from: []}}
  - {address: localhost, mode: 0660}
routes:
  - {upstream: t, timeout: soon, path_prefix: a}
  - {upstream: s, path_prefix: /b/*, host: \"h:1\", limits: {per_tenant: {rate: 1}, burst: x}}
upstreams:
  s: {replicas: [\"http://a\", a], holdout: 0, remedy: auto, hedge: {delay_min: 2s, quantile: 99}}
",
        expect![[r#"
            f:1:10: workers: many is text: expected a whole number from 1 to 256
            f:2:19: trusted_proxies[0]: 10.0.0.1/8 is text: expected a range of addresses such as 10.0.0.0/8, 192.0.2.7 or "2001:db8::/32" (quoted), or "unix:" for the clients of Unix sockets
            f:4:39: listeners[0].mode: only a Unix socket has a file: expected an address such as unix:/run/curtail.sock
            f:5:15: listeners[1].address: same address as listeners[0]: expected another port
            f:5:65: listeners[1].proxy_protocol.from: expected the addresses of the proxies that send the header, such as [10.0.0.0/8]: anybody else could claim any address
            f:6:5: listeners[2].name: "in", the default, is also the name of listeners[0]: expected a unique name, because it labels the metrics
            f:6:15: listeners[2].address: localhost has no port: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted), or a Unix socket such as unix:/run/curtail.sock
            f:8:16: routes[0].upstream: "t" is not defined: did you mean s?
            f:8:28: routes[0].timeout: soon is text: expected a duration of at least 1ms
            f:8:47: routes[0].path_prefix: "a" does not begin with /
            f:9:32: routes[1].path_prefix: "/b/*" has a wildcard: expected a prefix without one, which matches all paths below it
            f:9:44: routes[1].host: "h:1" matches no request: expected a name or an address without a port, such as search.example.org
            f:9:72: routes[1].limits.per_tenant: no header names the tenant: expected the section tenants, with its header
            f:9:90: routes[1].limits.burst: x is text: expected a whole number from 1 to 1000000
            f:11:30: upstreams.s.replicas[1]: a has no scheme: expected a replica such as http://127.0.0.1:8080, a=http://127.0.0.1:8080 or "http://127.0.0.1:8080 weight=2 zone=a", without a path, or http://unix:/run/app.sock
            f:11:43: upstreams.s.holdout: remedy: auto needs a holdout: expected a ratio above 0, or no key for one request in ten
            f:11:79: upstreams.s.hedge.delay_min: 2 s is above delay_max (1 s): expected at most that
            f:11:93: upstreams.s.hedge.quantile: 99 is out of range: expected a quantile from 0 to 1 (0.99, not 99)"#]],
    );
}

#[test]
fn the_zone_of_the_environment_is_a_name_and_counts_only_if_the_file_has_none() {
    let yaml = "listeners: [{address: \"127.0.0.1:0\"}]\nroutes: [{upstream: s}]\n\
                upstreams: {s: {replicas: [\"http://a\"]}}\n";
    let zone = |file: &str, environment: Option<&str>| {
        let config = Config::from_yaml("f", &format!("{yaml}{file}")).expect("it is good");
        let config = config.or_environment_zone(environment.map(AsRef::as_ref))?;
        assert_eq!(config.upstreams[0].zone, config.zone);
        Ok::<_, String>(config.zone)
    };
    let some = |zone: &str| Ok(Some(zone.to_owned()));
    for (environment, expected) in [(None, Ok(None)), (Some(""), Ok(None)), (Some("b"), some("b"))]
    {
        assert_eq!(zone("", environment), expected);
    }
    let error = "environment variable CURTAIL_ZONE: \"eu 1a\" is not a name: \
                 expected 1 to 64 letters, digits, and -, _ and .";
    assert_eq!(zone("", Some("eu 1a")), Err(error.to_owned()));
    assert_eq!(zone("zone: a", Some("eu 1a")), some("a"));
}

#[test]
fn an_impossible_host_or_path_is_an_error() {
    let hosts = ["a:80", "http://a", "*.a", "", "a b", "[::1]", "::1", "127.0.0.1", "a"];
    let is_rejected = |yaml: String| Config::from_yaml("f", &yaml).is_err();
    let refused_hosts = hosts.map(|host| {
        is_rejected(format!(
            "listeners: [{{address: \"127.0.0.1:0\"}}]\nupstreams: {{s: {{replicas: [\"http://a\"]}}}}\n\
             routes: [{{upstream: s, host: {host:?}}}]\n"
        ))
    });
    assert_eq!(refused_hosts, [true, true, true, true, true, false, true, false, false]);
    let paths = ["a", "/a?b", "/a#b", "/a b", "/é", "/a%20b", "/a/"];
    let refused_paths = paths.map(|path| {
        is_rejected(format!(
            "listeners: [{{address: \"127.0.0.1:0\"}}]\nupstreams: {{s: {{replicas: [\"http://a\"]}}}}\n\
             routes: [{{upstream: s, path_prefix: {path:?}}}]\n"
        ))
    });
    assert_eq!(refused_paths, [true, true, true, true, true, false, false]);
}

#[test]
fn a_duplicate_replica_is_an_error() {
    check(
        "\
listeners: [{address: \"127.0.0.1:0\"}]
upstreams:
  s: {replicas: [\"http://a:80\", \"http://b:80\", \"http://A\"], tie: true}
  t: {replicas: [\"http://[::1]:9\", \"http://[0:0::1]:9\"]}
  u: {replicas: [\"http://a:80\", \"http://a:81\"]}
routes: [{upstream: s}]
",
        expect![[r#"
            f:3:48: upstreams.s.replicas[2]: http://A:80 is a duplicate of replicas[0]: expected each replica once
            f:4:36: upstreams.t.replicas[1]: http://[0:0::1]:9 is a duplicate of replicas[0]: expected each replica once"#]],
    );
}

#[test]
fn ports_have_an_address_and_a_name_of_their_own() {
    check(
        "\
listeners:
  - {address: \"127.0.0.1:80\"}
  - {address: \"0.0.0.0:80\"}
  - {name: two, address: \"127.0.0.2:81\"}
  - {name: three, address: \"127.0.0.3:81\"}
  - {name: four, address: \"127.0.0.1:0\"}
  - {name: five, address: \"127.0.0.1:0\"}
leaves:
  - {name: two, address: \"[::]:81\", server: \"http://a\"}
upstreams: {s: {replicas: [\"http://a\"]}}
routes: [{upstream: s}]
admin: {address: \"[::1]:81\"}
",
        expect![[r#"
            f:3:5: listeners[1].name: "in", the default, is also the name of listeners[0]: expected a unique name, because it labels the metrics
            f:3:15: listeners[1].address: same address as listeners[0]: expected another port
            f:9:12: leaves[0].name: "two" is also the name of listeners[2]: expected a unique name, because it labels the metrics
            f:9:26: leaves[0].address: same address as listeners[2]: expected another port
            f:12:18: admin.address: same address as leaves[0]: expected another port"#]],
    );
}

#[test]
fn an_upstream_that_is_not_defined_is_named_where_it_is_asked_for() {
    let text = |upstreams: &str| {
        format!(
            "listeners: [{{address: \"127.0.0.1:0\"}}]\nupstreams: {upstreams}\n\
             routes:\n  - {{path_prefix: /a, upstream: serch}}\n  - {{upstream: [1]}}\n"
        )
    };
    check(
        &text("{search: {replicas: [\"http://a\"]}}"),
        expect![[r#"
            f:4:33: routes[0].upstream: "serch" is not defined: did you mean search?
            f:5:16: routes[1].upstream: this is a list: expected text (in quotes if it looks like a number)"#]],
    );
    check(
        &text("{}"),
        expect![[r#"
            f:4:33: routes[0].upstream: "serch" is not defined: no upstreams are defined
            f:5:16: routes[1].upstream: this is a list: expected text (in quotes if it looks like a number)"#]],
    );
}

#[test]
fn arguments_are_judged_as_a_file_is_and_sets_change_them() {
    let from = |replicas: &[&str], admin: &str, sets: &[&str]| {
        let replicas: Vec<_> = replicas.iter().map(|url| url.parse().expect("a URL")).collect();
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        let listen = "127.0.0.1:7300".parse().expect("an address");
        let admin = admin.parse().expect("an address");
        Config::from_arguments(listen, &replicas, admin, &sets).map_err(|m| m.to_string())
    };
    let changed = from(
        &["http://a", "http://b"],
        "127.0.0.1:7301",
        &["upstreams.service.hedge=false", "limits.drain=1s"],
    )
    .expect("a valid configuration");
    assert_eq!(changed.upstreams[0].policy.hedge, None);
    let wrong = from(
        &["http://a", "http://a"],
        "127.0.0.1:7300",
        &[
            "upstreams.nonsense.hedge.quantile=0.95",
            "upstreams.servce.retry=false",
            "limts.drain=1s",
            "upstreams.service.hegde=false",
        ],
    );
    expect![[r#"
        admin.address: same address as listeners[0]: expected another port
        upstreams.service.replicas[1]: http://a:80 is a duplicate of replicas[0]: expected each replica once
        --set upstreams.nonsense.hedge.quantile=0.95: upstreams.nonsense: not defined: expected only service
        --set upstreams.servce.retry=false: upstreams.servce: not defined: did you mean service?
        --set limts.drain=1s: limts: unknown key: did you mean limits?
        --set upstreams.service.hegde=false: unknown key: did you mean hedge?"#]]
    .assert_eq(&wrong.expect_err("errors"));
}

#[test]
fn auto_needs_a_holdout() {
    let with = |keys: &str| {
        format!(
            "\
listeners: [{{address: \"127.0.0.1:0\"}}]
routes: [{{upstream: s}}]
upstreams: {{s: {{replicas: [\"http://a\"], {keys}}}}}
"
        )
    };
    check(
        &with("remedy: auto, holdout: 0"),
        expect![[r#"
            f:3:64: upstreams.s.holdout: remedy: auto needs a holdout: expected a ratio above 0, or no key for one request in ten"#]],
    );
    for keys in ["remedy: auto", "remedy: auto, holdout: 0.01", "holdout: 0"] {
        check(&with(keys), expect![""]);
    }
}

use crate::config::{
    AddressFamilies, Config, DiscoveryConfig, DiscoverySource, DnsConfig, DnsRecords, Placement,
};
use curtail_units::Duration;

fn yaml(upstream: &str, top: &str) -> String {
    format!(
        "listeners: [{{address: \"127.0.0.1:80\"}}]\nroutes: [{{upstream: s}}]\n{top}\n\
         upstreams: {{s: {{{upstream}}}}}\n"
    )
}

fn read(upstream: &str) -> Config {
    Config::from_yaml("f", &yaml(upstream, "")).expect(upstream)
}

fn error(upstream: &str, top: &str) -> String {
    Config::from_yaml("f", &yaml(upstream, top)).expect_err(upstream).to_string()
}

#[test]
fn a_name_takes_the_place_of_replicas() {
    let config = read("discovery: {dns: \"https://search.test:8443\", addresses: ipv4}");
    let upstream = &config.upstreams[0];
    assert!(upstream.replicas.is_empty());
    let discovery = upstream.discovery.as_ref().expect("it is there");
    assert_eq!(discovery.to_string(), "A records of https://search.test:8443");
    assert!(
        matches!(&discovery.source, DiscoverySource::Dns(dns) if dns.records == DnsRecords::Addresses)
    );
    assert_eq!(discovery.addresses, AddressFamilies::Ipv4);
    assert_eq!(config.dns, DnsConfig::default());
    let config =
        read("replicas: [\"http://a:1\"], discovery: {srv: \"https://_http._tcp.b.test.\"}");
    let upstream = &config.upstreams[0];
    let discovery = upstream.discovery.as_ref().expect("it is there");
    assert_eq!(discovery.to_string(), "SRV records of https://_http._tcp.b.test.");
    assert_eq!(
        discovery.server_url().to_string(),
        "https://b.test:443",
        "the domain of the service"
    );
    assert_eq!(upstream.urls().len(), 2);
}

#[test]
fn names_that_cannot_be_looked_up_are_errors() {
    let cases = [
        ("discovery: {}", "expected one source: dns, srv, kubernetes, eds, file or http"),
        ("discovery: {dns: \"http://a\", srv: \"http://_a._b.c\"}", "expected either dns or srv"),
        ("discovery: {dns: \"http://10.0.0.1:80\"}", "is an address: expected a name"),
        ("discovery: {dns: \"http://[::1]:80\"}", "is an address: expected a name"),
        ("discovery: {dns: \"http://a..b\"}", "is not a valid domain name"),
        ("discovery: {srv: \"http://search.test\"}", "expected a service"),
        ("discovery: {srv: \"http://_http._tcp.a.test:8080\"}", "the records have the ports"),
        ("discovery: {dns: \"a.test\"}", "has no scheme: expected the name of servers"),
        ("discovery: {dns: \"http://unix:/a.sock\"}", "has no name: expected the name of servers"),
        ("replicas: []", "an upstream needs at least one"),
    ];
    for (upstream, says) in cases {
        let error = error(upstream, "");
        assert!(error.contains(says), "{upstream}: {error}");
    }
}

#[test]
fn the_lookup_has_bounds() {
    let upstream = "discovery: {dns: \"http://a.test\"}";
    let top = "dns: {servers: [\"10.0.0.1:53\"], refresh_min: 2s, refresh_max: 1m, stale_max: 2h}";
    let config = Config::from_yaml("f", &yaml(upstream, top)).expect("a configuration");
    assert_eq!(config.dns.servers, ["10.0.0.1:53".parse().expect("an address")]);
    assert_eq!(config.dns.stale_max, Duration::from_secs(7_200));
    let error = error(upstream, "dns: {refresh_min: 2m, refresh_max: 1m}");
    assert!(error.contains("refresh_m"), "{error}");
}

/// The discovery with these keys.
fn discovery(keys: &str) -> DiscoveryConfig {
    let config = read(&format!("discovery: {{{keys}}}"));
    config.upstreams[0].discovery.clone().expect("it is there")
}

#[test]
fn a_source_without_names_has_replicas_in_clear_text_unless_it_names_them() {
    let address = "10.0.0.1:8080".parse().expect("an address");
    let kubernetes = discovery("kubernetes: {service: search}");
    assert_eq!(kubernetes.to_string(), "EndpointSlices of service search");
    assert_eq!(
        kubernetes.replica_at(address, Placement::default()).url.to_string(),
        "http://10.0.0.1:8080"
    );
    let secure = discovery(
        "kubernetes: {service: search, namespace: shop, port: web, server: \"https://10.0.0.1:6443\"}, tls_server_name: search.test",
    );
    let shown = "EndpointSlices of service search.shop, port web, at https://10.0.0.1:6443";
    assert_eq!(secure.to_string(), shown);
    let replica = secure.replica_at(address, Placement::default());
    assert_eq!(replica.url.to_string(), "https://search.test:443");
    assert_eq!(replica.server().to_string(), "https://10.0.0.1:8080");
    let eds = discovery(
        "eds: {server: \"http://127.0.0.1:18000\", cluster: \"outbound|80||a\"}, addresses: ipv6",
    );
    assert_eq!(
        eds.to_string(),
        "EDS cluster \"outbound|80||a\" at http://127.0.0.1:18000, IPv6 only"
    );
    assert_eq!(discovery("file: {path: /a/b.json}").to_string(), "targets in /a/b.json");
    let http = discovery("http: {url: \"http://127.0.0.1:80/a?b=c\"}");
    assert_eq!(http.to_string(), "targets at http://127.0.0.1:80/a?b=c");
}

#[test]
fn a_control_plane_that_cannot_be_asked_is_an_error() {
    let cases = [
        ("kubernetes: {service: search}, dns: \"http://a.test\"", "expected one source"),
        ("kubernetes: {}", "discovery.kubernetes.service"),
        (
            "kubernetes: {service: \"Search_1\"}",
            "is not a name in Kubernetes: expected 1 to 63 lower-case letters",
        ),
        ("kubernetes: {service: a, namespace: \"a&b\"}", "discovery.kubernetes.namespace"),
        ("kubernetes: {service: a, port: 0}", "expected the name or number of a port"),
        ("kubernetes: {service: a, port: \"a/b\"}", "expected the name or number of a port"),
        ("kubernetes: {service: a, server: \"10.0.0.1:443\"}", "expected the address of a server"),
        ("eds: {cluster: a}", "discovery.eds.server"),
        ("eds: {server: \"http://a:1\"}", "discovery.eds.cluster"),
        ("eds: {server: \"http://a:1\", cluster: \"\"}", "expected a name, found an empty text"),
        ("file: {}", "discovery.file.path"),
        ("http: {url: \"a.test/x\"}", "expected a URL"),
        ("http: {url: \"http://a.test/x\", interval: 1ms}", "discovery.http.interval"),
        ("dns: \"http://a.test\", tls_server_name: b.test", "expected no tls_server_name"),
        ("file: {path: /a}, tls_server_name: \"b.test:443\"", "is not a name"),
    ];
    for (keys, says) in cases {
        let error = error(&format!("discovery: {{{keys}}}"), "");
        assert!(error.contains(says), "{keys}: {error}");
    }
}

use crate::config::{AddressFamilies, Config, DnsConfig, DnsRecords};
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
    assert_eq!(discovery.records, DnsRecords::Addresses);
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
        ("discovery: {}", "expected either dns or srv"),
        ("discovery: {dns: \"http://a\", srv: \"http://_a._b.c\"}", "expected either dns or srv"),
        ("discovery: {dns: \"http://10.0.0.1:80\"}", "is an address: expected a name"),
        ("discovery: {dns: \"http://[::1]:80\"}", "is an address: expected a name"),
        ("discovery: {dns: \"http://a..b\"}", "is not a valid domain name"),
        ("discovery: {srv: \"http://search.test\"}", "expected a service"),
        ("discovery: {srv: \"http://_http._tcp.a.test:8080\"}", "the records have the ports"),
        ("discovery: {dns: \"a.test\"}", "expected the address of a server"),
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

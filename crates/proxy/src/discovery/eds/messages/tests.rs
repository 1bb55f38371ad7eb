use super::*;
use crate::config::ControlPlaneAccess;

/// An endpoint at `address` (`10.0.0.1:80`) with a health status.
fn endpoint(address: &str, health: u64) -> Vec<u8> {
    let (host, port) = address.rsplit_once(':').expect("with a port");
    let port = port.parse().expect("a number");
    lb_endpoint(health, |socket| {
        bytes_field(socket, 2, host.as_bytes());
        varint_field(socket, 3, port);
    })
}

/// An endpoint with this `SocketAddress`.
fn lb_endpoint(health: u64, socket: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    message_field(&mut out, 1, |endpoint| {
        message_field(endpoint, 1, |address| message_field(address, 1, socket));
    });
    varint_field(&mut out, 2, health);
    out
}

fn locality(priority: u64, endpoints: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    endpoints.iter().for_each(|endpoint| bytes_field(&mut out, 2, endpoint));
    varint_field(&mut out, 5, priority);
    out
}

fn assignment(cluster: &str, localities: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    bytes_field(&mut out, 1, cluster.as_bytes());
    localities.iter().for_each(|locality| bytes_field(&mut out, 2, locality));
    out
}

fn response(resources: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    bytes_field(&mut out, 1, b"v1");
    for (url, value) in resources {
        message_field(&mut out, 2, |any| {
            bytes_field(any, 1, url.as_bytes());
            bytes_field(any, 2, value);
        });
    }
    bytes_field(&mut out, 4, TYPE_URL.as_bytes());
    bytes_field(&mut out, 5, b"n1");
    out
}

/// The result of a response with this assignment of the cluster `a`.
fn decoded(localities: &[Vec<u8>]) -> Result<Assignment, String> {
    let message = response(&[(TYPE_URL, assignment("a", localities))]);
    let response = DiscoveryResponse::decode(&message).expect("well-formed");
    assert_eq!((response.version, response.nonce), ("v1", "n1"));
    response.assignment("a").map(|found| found.expect("it is there"))
}

fn addresses(assignment: &Assignment) -> Vec<String> {
    assignment.endpoints.iter().map(|one| format!("{}{}", one.address, one.placement)).collect()
}

#[test]
fn endpoints_are_used_by_health_status() {
    let all: Vec<_> =
        (0..7).map(|status| endpoint(&format!("10.0.0.{status}:80"), status)).collect();
    let assignment = decoded(&[locality(0, &all)]).expect("it can be used");
    // UNKNOWN, HEALTHY, DEGRADED, and a value of a later version.
    let used = ["10.0.0.0:80", "10.0.0.1:80", "10.0.0.5:80", "10.0.0.6:80"];
    assert_eq!(addresses(&assignment), used);
    let (part, summary) = assignment.into_part("v1");
    assert_eq!(part.endpoints.len(), 4);
    assert_eq!(summary, "version \"v1\": 4 endpoints of priority 0, 3 left out by health status");
}

#[test]
fn the_first_priority_with_endpoints_is_used_of_all_localities() {
    let first = locality(0, &[endpoint("10.0.0.1:80", 2)]);
    let second = locality(1, &[endpoint("10.0.0.2:80", 1)]);
    let third = locality(1, &[endpoint("fd00::3:80", 1)]);
    let last = locality(2, &[endpoint("10.0.0.4:80", 1)]);
    let fallen = decoded(&[last.clone(), first, second, third]).expect("it can be used");
    assert_eq!(addresses(&fallen), ["10.0.0.2:80", "[fd00::3]:80"]);
    assert_eq!(fallen.priority, 1);
    let none = decoded(&[]).expect("an empty assignment");
    assert_eq!((addresses(&none).len(), none.unhealthy), (0, 0));
}

fn with_weight(mut message: Vec<u8>, field: u32, weight: u64) -> Vec<u8> {
    message_field(&mut message, field, |value| varint_field(value, 1, weight));
    message
}

#[test]
fn weights_of_endpoints_and_of_localities_count() {
    let at = |nth: u8| endpoint(&format!("10.0.0.{nth}:80"), 0);
    let weighted = |nth, weight| with_weight(at(nth), 4, weight);
    let of = |weight, endpoints: &[Vec<u8>]| with_weight(locality(0, endpoints), 3, weight);
    let down = endpoint("10.0.0.9:80", 2);
    let cases: [(&[Vec<u8>], &[&str]); 6] = [
        (&[locality(0, &[at(1), weighted(2, 3)])], &["1", "3"]),
        // The same requests to both localities: half as many to each endpoint of the larger one.
        (&[of(5, &[at(1), at(2)]), of(5, &[at(3)])], &["0.75", "0.75", "1.5"]),
        (&[of(1, &[weighted(1, 1), weighted(2, 3)]), of(3, &[at(3)])], &["0.313", "0.938", "3.75"]),
        // An endpoint gets no more because its neighbor is down.
        (&[of(1, &[at(1), down]), of(1, &[at(2), at(3)])], &["1", "1", "1"]),
        (&[of(1, &[at(1)]), locality(0, &[at(2)])], &["2", "0"]),
        (
            &[locality(
                0,
                &[weighted(1, u64::from(u32::MAX)), weighted(2, 1 << 31), weighted(3, 1)],
            )],
            &["65535", "32767.5", "0.001"],
        ),
    ];
    for (localities, expected) in cases {
        let assignment = decoded(localities).expect("it can be used");
        let weights: Vec<String> =
            assignment.endpoints.iter().map(|one| one.placement.weight.to_string()).collect();
        assert_eq!(weights, expected);
    }
    let error = decoded(&[of(1 << 32, &[at(1)])]).expect_err("too large");
    assert_eq!(error, "load_balancing_weight: expected 32 bits");
}

#[test]
fn endpoints_are_in_the_zone_of_their_locality() {
    let in_zone = |zone: &[u8], nth: u8| {
        let mut message = locality(0, &[endpoint(&format!("10.0.0.{nth}:80"), 0)]);
        message_field(&mut message, 1, |locality| {
            bytes_field(locality, 1, b"region");
            bytes_field(locality, 2, zone);
            bytes_field(locality, 3, b"sub");
        });
        message
    };
    let bare = locality(0, &[endpoint("10.0.0.3:80", 0)]);
    let decoded_zones =
        decoded(&[in_zone(b"a", 1), in_zone(b"", 2), bare]).expect("it can be used");
    assert_eq!(addresses(&decoded_zones), ["10.0.0.1:80 zone=a", "10.0.0.2:80", "10.0.0.3:80"]);
    let error = decoded(&[in_zone(b"\xff", 1)]).expect_err("not UTF-8");
    assert_eq!(error, "a text is not UTF-8");
}

#[test]
fn drop_overloads_is_named() {
    let mut message = assignment("a", &[]);
    message_field(&mut message, 4, |policy| message_field(policy, 2, |_| {}));
    let decoded = Assignment::decode(&message).expect("it can be used");
    assert!(decoded.into_part("1").1.ends_with(", drop_overloads is ignored"));
}

#[test]
fn what_cannot_be_used_is_rejected_with_its_place() {
    let good = endpoint("10.0.0.1:80", 1);
    let socket = |host: &'static str, port: u64| {
        lb_endpoint(0, move |socket| {
            bytes_field(socket, 2, host.as_bytes());
            varint_field(socket, 3, port);
        })
    };
    let mut pipe = Vec::new();
    message_field(&mut pipe, 1, |endpoint| {
        message_field(endpoint, 1, |address| message_field(address, 2, |_| {}));
    });
    let mut named = Vec::new();
    bytes_field(&mut named, 5, b"shared");
    let udp = lb_endpoint(0, |socket| varint_field(socket, 1, 1));
    let named_port = lb_endpoint(0, |socket| bytes_field(socket, 4, b"http"));
    for (bad, says) in [
        (socket("a.test", 80), "address \"a.test\": expected an IP address"),
        (socket("10.0.0.1", 70_000), "port_value 70000: expected 1 to 65535"),
        (socket("10.0.0.1", 0), "no server can have 10.0.0.1:0"),
        (pipe, "expected a socket_address"),
        (named, "endpoint_name is not supported"),
        (udp, "protocol UDP: expected TCP"),
        (named_port, "named_port \"http\": expected port_value"),
        (Vec::new(), "an endpoint without address"),
        (vec![0x0a], "LbEndpoint is malformed at byte 0"),
    ] {
        let error = decoded(&[locality(0, &[good.clone(), bad])]).expect_err(says);
        assert!(error.starts_with("lb_endpoints[1]: ") && error.contains(says), "{error}");
    }
    let mut leds = Vec::new();
    message_field(&mut leds, 8, |_| {});
    let error = decoded(&[leds]).expect_err("LEDS");
    assert!(error.contains("LEDS is not supported"), "{error}");
    let many = vec![good; ENDPOINTS_MAX + 1];
    let error = decoded(&[locality(0, &many)]).expect_err("too many");
    assert!(error.contains("expected at most"), "{error}");
}

#[test]
fn only_the_assignment_of_the_cluster_counts() {
    let other = assignment("b", &[locality(0, &[vec![0xff]])]);
    let message = response(&[(TYPE_URL, other)]);
    let found = DiscoveryResponse::decode(&message).expect("well-formed").assignment("a");
    assert_eq!(found, Ok(None), "an assignment of another cluster is not looked at");
    let message = response(&[("type.googleapis.com/x.Y", Vec::new())]);
    let error = DiscoveryResponse::decode(&message).expect("well-formed").assignment("a");
    assert!(error.expect_err("another type").contains("\"type.googleapis.com/x.Y\""));
    for malformed in [&b"\x0a"[..], b"\x80", b"\x0a\x05ab", b"\x0b", b"\x0a\x01\xff"] {
        DiscoveryResponse::decode(malformed).expect_err("malformed");
    }
}

#[test]
fn a_request_accepts_or_rejects_the_last_response() {
    let source = EdsSource {
        server: curtail_config::Value::placeholder(),
        cluster: "a".to_owned(),
        node_id: "node".to_owned(),
        node_cluster: String::new(),
        access: ControlPlaneAccess::default(),
    };
    let text = |request: &DiscoveryRequest<'_>, field: u64| {
        let encoded = request.encode();
        let found = inner(&encoded, field, "request").expect("well-formed");
        found.map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    let mut request = DiscoveryRequest::new(&source);
    assert_eq!(text(&request, 1), None, "no version");
    assert!(text(&request, 2).expect("a node").contains("node"));
    assert_eq!(text(&request, 3).as_deref(), Some("a"));
    assert_eq!(text(&request, 4).as_deref(), Some(TYPE_URL));
    assert_eq!((text(&request, 5), text(&request, 6)), (None, None), "no nonce, no error");
    let response = |version: &'static str, nonce: &'static str| DiscoveryResponse {
        version,
        nonce,
        ..DiscoveryResponse::default()
    };
    request.acknowledge(&response("1", "x"), None);
    assert_eq!((text(&request, 1).as_deref(), text(&request, 6)), (Some("1"), None));
    request.acknowledge(&response("2", "y"), Some("bad".to_owned()));
    assert_eq!(text(&request, 1).as_deref(), Some("1"), "the last accepted version");
    assert_eq!(text(&request, 5).as_deref(), Some("y"));
    assert_eq!(text(&request, 6).as_deref(), Some("\x08\x03\x12\x03bad"), "INVALID_ARGUMENT");
    request.acknowledge(&response("3", "z"), None);
    assert_eq!((text(&request, 1).as_deref(), text(&request, 6)), (Some("3"), None));
}

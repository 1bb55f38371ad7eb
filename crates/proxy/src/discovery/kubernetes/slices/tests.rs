use super::{Change, ENDPOINTS_MAX, Slices};
use crate::config::PortSelector;
use serde_json::{Value, json};

/// A slice with a port `web` and these endpoints.
fn slice(name: &str, endpoints: &Value) -> Value {
    json!({
        "metadata": { "name": name, "resourceVersion": "7" },
        "addressType": "IPv4",
        "ports": [{ "name": "web", "protocol": "TCP", "port": 8080 }],
        "endpoints": endpoints,
    })
}

fn endpoint(address: &str, ready: Option<bool>) -> Value {
    json!({ "addresses": [address], "conditions": { "ready": ready } })
}

fn list(items: &[Value]) -> Vec<u8> {
    json!({ "metadata": { "resourceVersion": "9" }, "items": items }).to_string().into_bytes()
}

fn slices(port: Option<PortSelector>, items: &[Value]) -> Slices {
    let mut slices = Slices::new(port);
    slices.add_page(&list(items)).expect("a list");
    slices
}

/// The addresses that are used.
fn used(slices: &Slices) -> Vec<String> {
    let parts = slices.parts().into_iter().filter_map(|(_, part)| part.ok());
    let mut used: Vec<_> = parts
        .flat_map(|part| part.endpoints)
        .map(|at| format!("{}{}", at.address, at.placement))
        .collect();
    used.sort();
    used
}

/// The error of the first slice.
fn error(slices: &Slices) -> String {
    slices.parts().into_iter().find_map(|(_, part)| part.err()).expect("a slice cannot be used")
}

#[test]
fn ready_endpoints_of_all_slices_are_used() {
    let first = json!([
        endpoint("10.0.0.1", Some(true)),
        endpoint("10.0.0.2", None),
        endpoint("10.0.0.3", Some(false)),
        { "addresses": ["10.0.0.4", "10.9.9.9"] },
    ]);
    let mut ipv6 = slice("c", &json!([endpoint("fd00::1", Some(true))]));
    ipv6["addressType"] = "IPv6".into();
    let empty = json!({ "metadata": { "name": "d" }, "addressType": "IPv4", "endpoints": null, "ports": null });
    let items = [slice("a", &first), slice("b", &json!([endpoint("10.0.0.1", None)])), ipv6, empty];
    let slices = slices(None, &items);
    let expected =
        ["10.0.0.1:8080", "10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.4:8080", "[fd00::1]:8080"];
    assert_eq!(used(&slices), expected);
    let summary = "4 slices: 5 endpoints ready, 1 not ready, 0 terminating and serving";
    assert_eq!(slices.summary(), summary);
}

#[test]
fn terminating_endpoints_are_used_only_if_none_is_ready() {
    let conditions = |address: &str, ready: bool, serving: bool| {
        let conditions = json!({ "ready": ready, "serving": serving, "terminating": !ready });
        json!({ "addresses": [address], "conditions": conditions })
    };
    let draining = conditions("10.0.0.1", false, true);
    let dead = conditions("10.0.0.2", false, false);
    let ready = conditions("10.0.0.3", true, true);
    let all = slices(None, &[slice("a", &json!([draining, dead, ready]))]);
    assert_eq!(used(&all), ["10.0.0.3:8080"]);
    let rest = slices(None, &[slice("a", &json!([draining])), slice("b", &json!([dead]))]);
    assert_eq!(used(&rest), ["10.0.0.1:8080"]);
}

#[test]
fn zones_are_those_of_hints_if_all_used_endpoints_have_hints() {
    let at = |address: &str, zone: &str, hints: &[&str]| {
        let hints: Vec<_> = hints.iter().map(|zone| json!({ "name": zone })).collect();
        json!({ "addresses": [address], "zone": zone, "hints": { "forZones": hints } })
    };
    let bare = json!({ "addresses": ["10.0.0.3"], "zone": null, "hints": null });
    let hinted = at("10.0.0.1", "a", &["b", "c"]);
    let no_hints = at("10.0.0.2", "a", &[]);
    let all = slices(None, &[slice("a", &json!([hinted]))]);
    assert_eq!(used(&all), ["10.0.0.1:8080 zone=b,c"]);
    let some = slices(None, &[slice("a", &json!([hinted, bare])), slice("b", &json!([no_hints]))]);
    assert_eq!(used(&some), ["10.0.0.1:8080 zone=a", "10.0.0.2:8080 zone=a", "10.0.0.3:8080"]);
}

#[test]
fn the_port_is_selected_by_name_or_number() {
    let mut both = slice("a", &json!([endpoint("10.0.0.1", None)]));
    both["ports"] = json!([
        { "name": "dns", "protocol": "UDP", "port": 53 },
        { "name": "web", "port": 8080 },
        { "name": "admin", "protocol": "TCP", "port": 9090 },
    ]);
    let name = |name: &str| Some(PortSelector::Name(name.to_owned()));
    for (port, expected) in [
        (name("web"), "10.0.0.1:8080"),
        (name("admin"), "10.0.0.1:9090"),
        (Some(PortSelector::Number(9090)), "10.0.0.1:9090"),
    ] {
        assert_eq!(used(&slices(port, std::slice::from_ref(&both))), [expected]);
    }
    for (port, says) in [
        (None, "expected one with TCP, or the key port"),
        (name("dns"), "expected dns with TCP"),
        (Some(PortSelector::Number(80)), "expected 80 with TCP"),
    ] {
        let error = error(&slices(port, std::slice::from_ref(&both)));
        assert!(error.starts_with("EndpointSlice a: it has the ports"), "{error}");
        assert!(error.contains("\"admin\" 9090/TCP") && error.contains(says), "{error}");
    }
    let mut none = slice("a", &json!([endpoint("10.0.0.1", None)]));
    none["ports"] = json!([{ "name": "web", "protocol": "TCP", "port": null }]);
    assert!(error(&slices(None, &[none])).contains("\"web\" none/TCP"));
}

#[test]
fn a_slice_that_cannot_be_used_does_not_hide_the_others() {
    let good = slice("good", &json!([endpoint("10.0.0.1", None)]));
    let mut fqdn = slice("a", &json!([endpoint("a.test", None)]));
    fqdn["addressType"] = "FQDN".into();
    let of_address = |address: &str| slice("a", &json!([endpoint(address, None)]));
    for (bad, says) in [
        (fqdn, "addressType \"FQDN\" is not supported: expected IPv4 or IPv6"),
        (of_address("a.test"), "endpoints[0]: \"a.test\" is no IPv4 address"),
        (of_address("fd00::1"), "is no IPv4 address"),
        (of_address("0.0.0.0"), "no server can have 0.0.0.0:8080"),
        (slice("a", &json!([{ "addresses": [] }])), "endpoints[0]: \"\" is no IPv4 address"),
    ] {
        let slices = slices(None, &[bad, good.clone()]);
        assert_eq!(used(&slices), ["10.0.0.1:8080"]);
        let error = error(&slices);
        assert!(error.starts_with("EndpointSlice a: ") && error.contains(says), "{error}");
    }
}

#[test]
fn events_change_the_slices_and_the_version() {
    let mut slices = slices(None, &[slice("a", &json!([endpoint("10.0.0.1", None)]))]);
    let mut version = "9".to_owned();
    let mut apply = |kind: &str, object: &Value, expected: Change| {
        let event = json!({ "type": kind, "object": object }).to_string();
        let change = slices.apply(event.as_bytes(), &mut version).expect("an event");
        assert_eq!(change, expected, "{event}");
        (used(&slices), version.clone())
    };
    let other = slice("b", &json!([endpoint("10.0.0.2", None)]));
    let (addresses, version) = apply("ADDED", &other, Change::Endpoints);
    assert_eq!((addresses.len(), &*version), (2, "7"));
    let unready = slice("b", &json!([endpoint("10.0.0.2", Some(false))]));
    assert_eq!(apply("MODIFIED", &unready, Change::Endpoints).0, ["10.0.0.1:8080"]);
    let bookmark = json!({ "metadata": { "resourceVersion": "12746" } });
    assert_eq!(apply("BOOKMARK", &bookmark, Change::Version).1, "12746");
    let first = slice("a", &json!([]));
    assert_eq!(apply("DELETED", &first, Change::Endpoints).0, [""; 0]);
    let gone = json!({ "kind": "Status", "code": 410, "reason": "Expired", "message": "too old" });
    assert_eq!(apply("ERROR", &gone, Change::Expired).1, "7", "the version stays");
}

#[test]
fn nonsense_is_an_error_that_says_what_was_expected() {
    let mut slices = Slices::new(None);
    let mut version = "1".to_owned();
    for (event, says) in [
        (&b"<html>"[..], "expected an event, found \"<html>\""),
        (b"{\"type\":\"ADDED\",\"object\":7}", "expected an event"),
        (b"{\"type\":\"MOVED\",\"object\":{}}", "unknown type \"MOVED\""),
        (b"{\"type\":\"ADDED\",\"object\":{}}", "no metadata.name"),
        (b"{\"type\":\"ERROR\",\"object\":{\"code\":500,\"message\":\"etcd\"}}", "reports: etcd"),
    ] {
        let error = slices.apply(event, &mut version).expect_err(says);
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(version, "1");
    let error = slices.add_page(b"[1]").expect_err("no list");
    assert!(error.contains("expected an EndpointSliceList"), "{error}");
    let deep = "[".repeat(100_000);
    assert!(slices.add_page(deep.as_bytes()).is_err());
}

#[test]
fn the_number_of_endpoints_has_a_limit() {
    let endpoints: Vec<Value> = (0..1_000).map(|_| endpoint("10.0.0.1", None)).collect();
    let mut slices = Slices::new(None);
    let mut results = (0..100).map(|nth| {
        slices.add_page(&list(&[slice(&format!("s{nth}"), &Value::from(endpoints.clone()))]))
    });
    let place = results.position(|result| result.is_err()).expect("too many");
    assert_eq!(place, ENDPOINTS_MAX / 1_001);
}

#[test]
fn a_page_names_the_next_one() {
    let mut slices = Slices::new(None);
    let page = br#"{"metadata":{"resourceVersion":"9","continue":"abc"},"items":[]}"#;
    let page = slices.add_page(page).expect("a page");
    assert_eq!((&*page.version, page.next.as_deref()), ("9", Some("abc")));
    let last = slices.add_page(br#"{"metadata":{"resourceVersion":"9"},"items":null}"#);
    assert_eq!(last.expect("a page").next, None);
}

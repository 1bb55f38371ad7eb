//! Percentiles of tenants and decades, over workers and hours.

use super::*;
use crate::spans::sample;
use crate::trail::RequestEnd;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

const START: Instant = Instant::from_ns(0);

fn tenants(max: usize, workers: usize) -> Tenants {
    Tenants::new(&TenantsConfig { header: "x-tenant".to_owned(), max }, workers, START)
}

/// A request of a tenant that ended after some milliseconds; an empty name stands for none.
fn trail(tenant: &[u8], hour: u64, ms: u64, status: StatusCode) -> Trail {
    let mut request = sample::get("/");
    if !tenant.is_empty() {
        let tenant = HeaderValue::from_bytes(tenant).expect("a value");
        request.headers_mut().insert("x-tenant", tenant);
    }
    let mut trail = sample::trail(request);
    trail.started = at(hour);
    let at = trail.started + Duration::from_ms(ms);
    trail.end = Some(RequestEnd { at, status: Some(status), error: None, reason: None });
    trail
}

fn good(tenant: &str, ms: u64) -> Trail {
    trail(tenant.as_bytes(), 0, ms, StatusCode::OK)
}

/// Some time in this hour of the process.
fn at(hour: u64) -> Instant {
    Instant::from_ns(hour * HOUR.as_ns()) + Duration::from_secs(60)
}

/// The `tenant` and `requests` of each row.
fn sizes(page: &Value) -> Vec<(&str, u64)> {
    let rows = page["tenants"].as_array().expect("a list").iter();
    rows.map(|row| (row["tenant"].as_str().expect("text"), count(row))).collect()
}

fn count(row: &Value) -> u64 {
    row["requests"].as_u64().expect("a number")
}

#[track_caller]
fn assert_near(value: &Value, expected: f64) {
    let error = value.as_f64().expect("a number") / expected - 1.0;
    assert!(error.abs() <= 0.016, "{value} is not about {expected}");
}

#[test]
fn percentiles_are_those_of_each_tenant_and_decade_over_all_workers() {
    let tenants = tenants(100, 2);
    for ms in 1..=1_000 {
        tenants.record(usize::from(ms % 2 == 0), &good("large", ms));
    }
    tenants.record(0, &trail(b"small", 0, 500, StatusCode::OK));
    tenants.record(1, &trail(b"small", 0, 600, StatusCode::BAD_GATEWAY));
    (0..9).for_each(|_| tenants.record(1, &trail(b"medium", 0, 70, StatusCode::NOT_FOUND)));
    tenants.record(0, &good("medium", 70));
    (0..3).for_each(|_| tenants.record(1, &good("", 5)));

    let page = tenants.read(at(0)).to_json();
    assert_eq!(sizes(&page), [("large", 1_000), ("medium", 10), ("small", 2)]);
    assert_near(&page["tenants"][0]["p50_ms"], 500.0);
    assert_near(&page["tenants"][0]["p99_ms"], 990.0);
    assert_near(&page["tenants"][0]["p999_ms"], 999.0);
    let errors = |nth: usize| &page["tenants"][nth]["errors"];
    assert_eq!((errors(1), errors(2)), (&json!(0), &json!(1)), "404 is no error");
    let decades = page["decades"].as_array().expect("a list");
    let sizes: Vec<_> = decades.iter().map(|of| (&of["requests_min"], &of["tenants"])).collect();
    let one = json!(1);
    assert_eq!(sizes, [(&one, &one), (&json!(10), &one), (&json!(1_000), &one)]);
    assert_eq!((count(&decades[0]), &decades[0]["errors"]), (2, &one));
    assert_near(&decades[1]["p999_ms"], 70.0);
    assert_eq!((&page["unnamed_requests"], &page["other"]["requests"]), (&json!(3), &json!(0)));
    assert_eq!(page["other"]["p50_ms"], Value::Null);

    let metrics = tenants.read(at(0)).decades();
    let row = |of: &DecadeSnapshot| (of.requests_min.clone(), of.tenants, of.requests, of.errors);
    let rows: Vec<_> = metrics.iter().map(row).collect();
    assert_eq!(rows[0], ("1".to_owned(), 1, 2, 1));
    assert_eq!(rows[2], ("1000".to_owned(), 1, 1_000, 0));
    assert_eq!(metrics[2].percentiles.len(), 3);
}

#[test]
fn a_client_with_random_names_displaces_no_large_tenant_and_no_request_is_lost() {
    const MAX: usize = 50;
    const NAMES: u64 = 100_000;
    let seed = 7;
    println!("seed {seed}");
    let mut rng = curtail_units::Rng::new(seed);
    let tenants = tenants(MAX, 1);
    (0..5).for_each(|_| tenants.record(0, &good("small", 3)));
    for nth in 0..NAMES {
        tenants.record(0, &good(&format!("{:016x}", rng.next_u64()), 1));
        if nth % 20 == 0 {
            tenants.record(0, &good("large", 30));
        }
    }
    let page = tenants.read(at(0)).to_json();
    assert_eq!(lock(&tenants.shards[0]).table.tenants().len(), MAX, "the memory is bounded");
    let rows = sizes(&page);
    assert_eq!((rows.len(), rows[0]), (MAX, ("large", NAMES / 20)));
    assert_near(&page["tenants"][0]["p50_ms"], 30.0);
    let all = 5 + NAMES + NAMES / 20;
    let listed: u64 = rows.iter().map(|(_, requests)| requests).sum();
    assert_eq!(listed + count(&page["other"]), all);
    let decades = page["decades"].as_array().expect("a list").iter();
    assert_eq!(decades.map(count).sum::<u64>(), all);

    (0..NAMES / 20).for_each(|_| tenants.record(0, &good("late", 2)));
    let page = tenants.read(at(0)).to_json();
    let late = sizes(&page).into_iter().find(|(name, _)| *name == "late");
    assert_eq!(late, Some(("late", NAMES / 20)), "a tenant that comes later has a row too");
}

#[test]
fn more_tenants_than_rows_are_summed_up() {
    let tenants = tenants(2, 2);
    for (worker, tenant, requests) in [(0, "a", 4), (0, "b", 3), (1, "c", 2), (1, "a", 1)] {
        (0..requests).for_each(|_| tenants.record(worker, &good(tenant, 1)));
    }
    let page = tenants.read(at(0)).to_json();
    assert_eq!(sizes(&page), [("a", 5), ("b", 3)]);
    assert_eq!((count(&page["other"]), &page["decades"][0]["tenants"]), (2, &json!(3)));
}

#[test]
fn this_hour_and_the_one_before_count() {
    let tenants = tenants(10, 2);
    tenants.record(0, &trail(b"first", 0, 1, StatusCode::OK));
    tenants.record(1, &trail(b"second", 1, 1, StatusCode::OK));
    let names = |hour| {
        let page = tenants.read(at(hour)).to_json();
        let names: Vec<String> = sizes(&page).iter().map(|(name, _)| (*name).to_owned()).collect();
        (names, page["window_s"].as_f64().expect("a number"))
    };
    assert_eq!(names(1), (vec!["first".to_owned(), "second".to_owned()], 3_660.0));
    assert_eq!(names(2), (vec!["second".to_owned()], 3_660.0));
    // A request that ended just before another worker or a reader began the hour.
    tenants.record(0, &trail(b"late", 1, 1, StatusCode::OK));
    assert_eq!(names(2).0.len(), 2);
    assert_eq!(names(9).0, Vec::<String>::new());
}

#[test]
fn calls_and_attempts_do_not_count() {
    let tenants = tenants(10, 1);
    tenants.record(0, &Trail { is_call: true, ..good("a", 1) });
    tenants.record(0, &Trail { is_at_leaf: true, ..good("a", 1) });
    assert_eq!(sizes(&tenants.read(at(0)).to_json()), []);
}

#[test]
fn names_are_cut_off_and_escaped() {
    let tenants = tenants(10, 1);
    let long = [b'x'; NAME_BYTES_MAX + 1];
    tenants.record(0, &trail(&long, 0, 1, StatusCode::OK));
    tenants.record(0, &trail(&long[1..], 0, 1, StatusCode::OK));
    tenants.record(0, &trail(b"\xff\ta\xc3\xa9\xc2\x85\"", 0, 1, StatusCode::OK));
    let page = tenants.read(at(0)).to_json();
    let text = "x".repeat(NAME_BYTES_MAX);
    assert_eq!(sizes(&page), [(&*text, 2), ("\\xff\\taé\\u{85}\"", 1)]);
}

#[test]
fn weights_bound_the_number_of_requests() {
    // Zipf: tenant k sends about a share of 1/k.
    let (max, seed) = (20, 11);
    println!("seed {seed}");
    let mut rng = curtail_units::Rng::new(seed);
    let (mut table, mut truth) = (Table::new(max), vec![0_u64; 1_000]);
    for nth in 1..=20_000_u64 {
        let tenant = rng.below(1_000).min(rng.below(1_000)) / (1 + rng.below(40));
        truth[tenant] += 1;
        table.record(tenant.to_string().as_bytes(), Duration::from_ms(1), false);
        if nth % 1_000 != 0 {
            continue;
        }
        let mut weights = 0;
        for tenant in table.tenants() {
            let name: usize =
                std::str::from_utf8(&tenant.name).expect("digits").parse().expect("digits");
            let bounds = tenant.requests.count()..=tenant.weight();
            assert!(bounds.contains(&truth[name]), "{name}: {} of {bounds:?}", truth[name]);
            weights += tenant.weight();
        }
        assert_eq!(weights, nth, "the weights add up to the requests");
        for (tenant, requests) in truth.iter().enumerate() {
            let is_listed =
                || table.tenants().iter().any(|of| *of.name == *tenant.to_string().as_bytes());
            assert!(*requests <= nth / max as u64 || is_listed(), "{tenant}: {requests} of {nth}");
        }
    }
}

#[test]
fn a_request_with_several_headers_has_no_tenant() {
    let tenants = tenants(10, 1);
    let mut repeated = good("a", 1);
    Arc::make_mut(&mut repeated.request_head).fields.append(b"x-tenant", b"a");
    tenants.record(0, &repeated);
    tenants.record(0, &good("a", 1));
    let page = tenants.read(at(0)).to_json();
    assert_eq!((sizes(&page), &page["unnamed_requests"]), (vec![("a", 1)], &json!(1)));
}

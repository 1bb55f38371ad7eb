use super::table::LimiterTable;
use super::{LimitPermit, LimitedRequest, RouteLimits, network};
use crate::config::{ClientLimit, RouteLimitsConfig, TenantLimit, TenantsConfig};
use crate::metrics::LimitReason;
use crate::spans::sample;
use curtail_http::clock::Clock;
use curtail_http::head::RequestHead;
use curtail_metrics::Instrument as _;
use curtail_policy::{LimitRejection, RateLimit, RequestLimit};
use curtail_units::{Duration, Instant, Rng};
use std::sync::Arc;

type Fields<'a> = [(&'a str, &'a str)];

fn head(fields: &Fields<'_>) -> RequestHead {
    let mut request = http::Request::get("http://test/");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let request = request.body(()).expect("a valid request");
    RequestHead::try_from(request.into_parts().0).expect("a valid head")
}

const fn in_flight(max: u32) -> RequestLimit {
    RequestLimit { in_flight_max: Some(max), rate: None }
}

/// A limit that gets no second token during a test.
fn once() -> RequestLimit {
    RequestLimit { in_flight_max: None, rate: Some(RateLimit::new(0.001, 1)) }
}

fn per_client(limit: RequestLimit, max: usize) -> RouteLimitsConfig {
    let per_client = Some(ClientLimit { header: Some("x-client".to_owned()), limit, max });
    RouteLimitsConfig { per_client, ..RouteLimitsConfig::default() }
}

fn limits(config: &RouteLimitsConfig, before: Option<&RouteLimits>) -> RouteLimits {
    let tenants = TenantsConfig { header: "x-tenant".to_owned(), max: 1 };
    RouteLimits::new("/".to_owned(), config, Some(&tenants), before)
}

type Admission = Result<Option<Arc<LimitPermit>>, LimitReason>;

fn admit(limits: &RouteLimits, fields: &Fields<'_>) -> Admission {
    let (clock, client) = (Clock::start(), sample::client());
    let admitted = limits.admit(&clock, &head(fields), &client);
    admitted.map_err(|limited| limited.reason)
}

#[test]
fn an_ipv6_client_is_its_network() {
    for (address, expected) in [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::", "2001:db8:1:2::"),
        ("::1", "::"),
    ] {
        assert_eq!(network(address.parse().expect(address)).to_string(), expected);
    }
}

#[test]
fn the_narrowest_limit_is_the_reason_and_the_longest_wait_counts() {
    let rate = |ms| Some(LimitRejection::Rate { wait: Duration::from_ms(ms) });
    let full = |ms| Some(LimitRejection::InFlight { full_for: Duration::from_ms(ms) });
    for (rejections, expected) in [
        ([None, None, None], None),
        ([None, None, rate(1)], Some((LimitReason::RouteRate, 429, 1))),
        ([None, None, full(0)], Some((LimitReason::RouteInFlight, 503, 1))),
        ([None, rate(1_000), full(5_000)], Some((LimitReason::TenantRate, 429, 5))),
        ([full(1_001), rate(3), None], Some((LimitReason::ClientInFlight, 503, 2))),
        ([None, full(3_600_000), None], Some((LimitReason::TenantInFlight, 503, 60))),
        ([rate(1_000_000), None, None], Some((LimitReason::ClientRate, 429, 1_000))),
    ] {
        let limited = LimitedRequest::of(rejections);
        let found = limited.map(|of| {
            let seconds = of.retry_after_seconds().expect("it may succeed later");
            (of.reason, of.reason.status().as_u16(), seconds)
        });
        assert_eq!(found, expected, "{rejections:?}");
    }
}

#[test]
fn a_request_that_one_limit_rejects_counts_at_no_other() {
    let config = RouteLimitsConfig {
        route: in_flight(1),
        per_tenant: Some(TenantLimit { limit: once(), max: 16 }),
        ..per_client(once(), 16)
    };
    let limits = limits(&config, None);
    let of = |client, tenant| [("x-client", client), ("x-tenant", tenant)];
    let permit = admit(&limits, &of("a", "s")).expect("the first one");
    assert!(permit.is_some());
    // Rejected by the route, then by the tenant: both clients keep their token.
    assert_eq!(admit(&limits, &of("b", "t")).err(), Some(LimitReason::RouteInFlight));
    drop(permit);
    assert_eq!(admit(&limits, &of("c", "s")).err(), Some(LimitReason::TenantRate));
    assert!(admit(&limits, &of("b", "t")).is_ok());
    assert!(admit(&limits, &of("c", "u")).is_ok());
    assert_eq!(admit(&limits, &of("c", "v")).err(), Some(LimitReason::ClientRate));
    assert_eq!(limits.in_flight(), Some((0, 1)));
    // Requests without the headers: a client by its address, and one tenant.
    assert!(admit(&limits, &[]).is_ok());
    assert_eq!(admit(&limits, &[("x-tenant", "w")]).err(), Some(LimitReason::ClientRate));
    assert_eq!(admit(&limits, &[("x-client", "d")]).err(), Some(LimitReason::TenantRate));
}

#[test]
fn a_full_table_limits_the_clients_that_it_has_and_lets_the_others_pass() {
    let limits = limits(&per_client(once(), 16), None);
    let names: Vec<String> = (0..200).map(|nth| nth.to_string()).collect();
    let second = |name: &String| {
        (0..2).map(|_| admit(&limits, &[("x-client", name)]).is_ok()).collect::<Vec<_>>()
            == [true; 2]
    };
    // 32 places, in two sets; each set gets about 100 of the clients.
    assert_eq!(names.iter().filter(|name| second(name)).count(), 200 - 32);
    let full: u64 = limits.metrics.table_full.read().iter().map(|(_, count)| count).sum();
    assert_eq!(full, 2 * (200 - 32));
}

#[test]
fn a_place_is_free_as_soon_as_its_limiter_is_like_a_new_one() {
    let table = LimiterTable::new(16);
    let limit = RequestLimit { rate: Some(RateLimit::new(1.0, 2)), ..in_flight(5) };
    let (hash, now) = (7, Instant::from_ns(1));
    let mut set = table.lock(hash);
    for nth in 0..16 {
        set.limiter(hash + nth, now).expect("a place").start(&limit, now);
    }
    let later = now + Duration::from_secs(1);
    assert!(set.limiter(hash + 16, later).is_none(), "all 16 are in flight");
    set.end(hash);
    set.end(hash + 999);
    assert!(set.limiter(hash + 16, now).is_none(), "its bucket is not full yet");
    assert_eq!(set.limiter(hash + 1, later).map(|limiter| limiter.in_flight()), Some(1));
    assert_eq!(set.limiter(hash + 16, later).map(|limiter| limiter.in_flight()), Some(0));
}

#[test]
fn a_reload_counts_on() {
    let (one, two) = (per_client(in_flight(1), 16), per_client(in_flight(2), 16));
    let before = limits(&RouteLimitsConfig { route: in_flight(1), ..one.clone() }, None);
    let fields = [("x-client", "a")];
    let permit = admit(&before, &fields).expect("the first one");
    let same = limits(&one, Some(&before));
    assert_eq!(admit(&same, &fields).err(), Some(LimitReason::ClientInFlight));
    let more = limits(&RouteLimitsConfig { route: in_flight(9), ..two }, Some(&same));
    let second = admit(&more, &fields).expect("two are allowed");
    assert_eq!(admit(&more, &fields).err(), Some(LimitReason::ClientInFlight));
    assert_eq!(more.in_flight(), Some((2, 9)), "the limiter of the route counts on, too");
    drop(permit);
    assert!(admit(&more, &fields).is_ok());
    let larger = limits(&per_client(in_flight(1), 17), Some(&more));
    assert!(admit(&larger, &fields).is_ok(), "another table");
    drop(second);
    assert_eq!(more.in_flight(), Some((0, 9)));
}

/// Random clients on several threads: no client and no route ever has more in flight than allowed, and at the end nothing
/// is in flight.
#[test]
fn in_flight_is_bounded_across_threads() {
    let config = RouteLimitsConfig { route: in_flight(20), ..per_client(in_flight(3), 64) };
    let limits = limits(&config, None);
    let seed = 23;
    println!("seed {seed}");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let limits = &limits;
            scope.spawn(move || {
                let mut rng = Rng::new(seed).split_index(thread);
                let mut permits = Vec::new();
                for _ in 0..3_000 {
                    if rng.chance(0.5) && !permits.is_empty() {
                        permits.swap_remove(rng.below(permits.len()));
                    } else {
                        let name = rng.below(10).to_string();
                        permits.extend(admit(limits, &[("x-client", &name)]));
                    }
                    let (count, max) = limits.in_flight().expect("it is limited");
                    assert!(count <= max && permits.len() <= max as usize, "{count}");
                }
            });
        }
    });
    assert_eq!(limits.in_flight(), Some((0, 20)));
    for name in 0..10 {
        let name = name.to_string();
        let permits: Vec<_> = (0..4).map(|_| admit(&limits, &[("x-client", &name)])).collect();
        assert_eq!(permits.iter().filter(|permit| permit.is_ok()).count(), 3, "client {name}");
    }
}

use super::endpoint_list::Part;
use super::{Discovery, DiscoveryMetrics, DiscoverySnapshot, LookupResult, Response, Validity};
use crate::config::{AddressFamilies, DiscoveryConfig, DiscoverySource, DnsConfig, FileSource};
use curtail_units::{Duration, Instant, Rng};

/// A discovery with an endpoint, another one whose response has expired, and a failure.
pub(crate) fn sample() -> DiscoverySnapshot {
    let metrics = DiscoveryMetrics::default();
    metrics.lookups.add(&LookupResult::Found, 2);
    metrics.lookups.add(&LookupResult::Failed, 1);
    let at = |text: &str| text.parse().expect("an address");
    DiscoverySnapshot {
        source: "A and AAAA records of http://api.test:80".to_owned(),
        lookups: metrics.read().lookups,
        last_success_age: Some(Duration::from_ms(1_500)),
        is_connected: None,
        is_read: false,
        summary: None,
        has_failed: true,
        next_lookup_in: Duration::from_secs(5),
        last_error: Some("request timed out".to_owned()),
        endpoints: vec![
            (at("10.0.0.7:80"), Validity::For(Duration::from_secs(5))),
            (at("[::1]:80"), Validity::Expired),
        ],
    }
}

const DAY: Duration = Duration::from_secs(86_400);

/// A discovery by a session.
fn session() -> Discovery {
    let config = DiscoveryConfig {
        source: DiscoverySource::File(FileSource { path: "targets.json".into() }),
        addresses: AddressFamilies::Both,
        tls_server_name: None,
        stale_max: Some(DAY),
        empty_max: None,
    };
    Discovery::new(&config, Instant::default(), &Rng::new(7))
}

/// Takes a response that does not end the session; returns the number of endpoints after it.
fn take(discovery: &Discovery, now: Instant, part: Result<Part, String>) -> usize {
    let parts = part.map(|part| vec![("all".to_owned(), Ok(part))]);
    let response = Response { parts, summary: None, is_last: false };
    let limits = discovery.limits(&DnsConfig::default());
    discovery.take_response("u", now, response, &limits);
    discovery.endpoints().map_or(0, |endpoints| endpoints.len())
}

fn part() -> Part {
    let address: std::net::SocketAddr = "10.0.0.7:80".parse().expect("an address");
    let endpoints = vec![address.into()];
    Part { endpoints, validity: Validity::UntilFailure }
}

#[test]
fn a_rejection_after_a_long_silence_removes_no_replica() {
    let discovery = session();
    let start = Instant::default() + Duration::from_secs(1);
    assert_eq!(take(&discovery, start, Ok(part())), 1);
    let rejected = start + DAY + DAY;
    discovery.confirm(rejected);
    assert_eq!(take(&discovery, rejected, Err("unusable".to_owned())), 1);
    discovery.confirm(rejected + Duration::from_secs(60));
    let age = discovery.read(rejected + Duration::from_secs(60)).last_success_age;
    assert_eq!(age, Some(Duration::from_secs(60)), "the rejection is no success");
}

#[test]
fn a_message_before_the_first_usable_response_is_no_success() {
    let discovery = session();
    let now = Instant::default() + Duration::from_secs(1);
    discovery.confirm(now);
    assert_eq!(discovery.read(now).last_success_age, None);
}

#[test]
fn a_source_that_fails_and_recovers_in_turns_has_one_warning_a_minute() {
    let discovery = session();
    let at = |seconds| Instant::default() + Duration::from_secs(seconds);
    let mut warned = Vec::new();
    for second in 0..=120 {
        let is_failure = second % 2 == 0;
        take(&discovery, at(second), if is_failure { Err("away".to_owned()) } else { Ok(part()) });
        let state = discovery.lock();
        if is_failure && state.last_logged == Some(at(second)) {
            warned.push(second);
        }
        assert_eq!(state.is_failure_logged, warned.last() == Some(&second), "{second}");
    }
    assert_eq!(warned, [0, 60, 120]);
    // Another error is new, and a failure that lasts is logged after a minute.
    take(&discovery, at(121), Ok(part()));
    take(&discovery, at(122), Err("other".to_owned()));
    assert_eq!(discovery.lock().last_logged, Some(at(122)));
}

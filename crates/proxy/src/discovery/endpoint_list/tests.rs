use super::{
    EMPTY_RETRY_MAX, Endpoint, EndpointList, ListLimits, LookupResult, Part, RETRY_MAX,
    SourceResponse, Validity,
};
use curtail_units::{Duration, Instant, Rng};
use std::net::SocketAddr;

const CONFIG: ListLimits = ListLimits {
    refresh_min: Duration::from_secs(1),
    refresh_max: Duration::from_secs(300),
    stale_max: Duration::from_secs(1_000),
    empty_max: Duration::from_secs(60),
};

/// A list, and the time since it began.
struct World {
    list: EndpointList,
    rng: Rng,
    now: Instant,
}

/// The endpoints of a part, which is valid for this number of seconds.
fn part(hosts: &[u8], seconds: u64) -> Result<Part, String> {
    let endpoints = hosts.iter().map(|host| at(*host)).collect();
    Ok(Part { endpoints, validity: Validity::For(Duration::from_secs(seconds)) })
}

fn at(host: u8) -> Endpoint {
    SocketAddr::from(([10, 0, 0, host], 80)).into()
}

fn ipv4(part: Result<Part, String>) -> SourceResponse {
    both(
        part,
        Ok(Part { endpoints: Vec::new(), validity: Validity::For(Duration::from_secs(1_000)) }),
    )
}

fn both(ipv4: Result<Part, String>, ipv6: Result<Part, String>) -> SourceResponse {
    Ok(vec![("A".to_owned(), ipv4), ("AAAA".to_owned(), ipv6)])
}

fn failed<T>() -> Result<T, String> {
    Err("no response".to_owned())
}

impl World {
    fn new() -> Self {
        let now = Instant::from_ns(1_000_000_000);
        Self { list: EndpointList::new(now), rng: Rng::new(7), now }
    }

    fn take_response(&mut self, response: SourceResponse) -> LookupResult {
        self.list.take_response(self.now, response, &CONFIG, &mut self.rng)
    }

    /// The hosts that are known; [`None`]: no response has decided yet.
    fn hosts(&self) -> Option<Vec<u8>> {
        let endpoints = self.list.endpoints()?.iter();
        Some(
            endpoints
                .filter_map(|at| {
                    at.address.to_string().strip_suffix(":80")?.rsplit('.').next()?.parse().ok()
                })
                .collect(),
        )
    }

    /// The wait until the next lookup, which then comes.
    fn wait(&mut self) -> Duration {
        let wait = self.list.due().since(self.now);
        self.now = self.list.due();
        wait
    }

    /// Lets lookups fail for this time; returns how many there were.
    fn fail_for(&mut self, time: Duration) -> usize {
        let (end, mut lookups) = (self.now + time, 0);
        while self.now < end {
            assert_eq!(self.take_response(failed()), LookupResult::Failed);
            assert!(self.wait() <= RETRY_MAX, "a recovery is found");
            lookups += 1;
        }
        lookups
    }
}

#[test]
fn a_new_list_is_due_at_once_and_decides_nothing() {
    let world = World::new();
    assert_eq!(world.list.due(), world.now);
    assert_eq!(world.hosts(), None);
}

#[test]
fn a_response_replaces_the_endpoints_and_is_repeated_when_it_expires() {
    let mut world = World::new();
    assert_eq!(world.take_response(ipv4(part(&[3, 1, 2, 1], 5))), LookupResult::Found);
    assert_eq!(world.hosts().as_deref(), Some(&[1, 2, 3][..]), "sorted, each once");
    assert_eq!(world.wait(), Duration::from_secs(5));
    world.take_response(ipv4(part(&[2, 4], 5)));
    assert_eq!(world.hosts().as_deref(), Some(&[2, 4][..]));
    for (ttl, wait) in [(0, 1), (1, 1), (2, 2), (299, 299), (86_400, 300)] {
        world.take_response(ipv4(part(&[1], ttl)));
        assert_eq!(world.wait(), Duration::from_secs(wait), "TTL {ttl}");
    }
    world.take_response(both(part(&[1], 60), part(&[2], 20)));
    assert_eq!(world.wait(), Duration::from_secs(20), "the part that expires first");
}

#[test]
fn failures_remove_nothing_for_long_and_are_repeated_less_and_less() {
    let mut world = World::new();
    world.take_response(ipv4(part(&[1, 2], 5)));
    world.wait();
    let mut waits = Vec::new();
    for _ in 0..8 {
        assert_eq!(world.take_response(failed()), LookupResult::Failed);
        assert_eq!(world.hosts().as_deref(), Some(&[1, 2][..]));
        waits.push(world.wait().as_secs_f64());
    }
    for (nth, wait) in waits.into_iter().enumerate() {
        let most = f64::from(1 << nth.min(5)).min(30.0);
        assert!((0.75 * most..=most).contains(&wait), "{nth}: {wait}");
    }
    assert_eq!(world.take_response(ipv4(part(&[1], 5))), LookupResult::Found);
    assert_eq!(world.hosts().as_deref(), Some(&[1][..]));
}

#[test]
fn stale_endpoints_leave_after_their_time() {
    let mut world = World::new();
    world.take_response(ipv4(part(&[1, 2], 5)));
    let received = world.now;
    let lookups = world.fail_for(Duration::from_secs(990));
    assert!((30..60).contains(&lookups), "{lookups}");
    assert_eq!(world.hosts().as_deref(), Some(&[1, 2][..]));
    world.now = received + Duration::from_secs(1_000);
    world.take_response(failed());
    assert_eq!(world.hosts().as_deref(), Some(&[][..]));
    world.take_response(ipv4(part(&[3], 5)));
    assert_eq!(world.hosts().as_deref(), Some(&[3][..]));
}

#[test]
fn a_failure_from_the_start_decides_only_in_the_end() {
    let mut world = World::new();
    world.fail_for(Duration::from_secs(960));
    assert_eq!(world.hosts(), None, "the replicas of before the discovery stay");
    world.fail_for(Duration::from_secs(100));
    assert_eq!(world.hosts().as_deref(), Some(&[][..]));
}

#[test]
fn empty_responses_must_last() {
    let mut world = World::new();
    world.take_response(ipv4(part(&[1, 2], 300)));
    world.wait();
    let first = world.now;
    while world.now < first + CONFIG.empty_max {
        assert_eq!(world.take_response(ipv4(part(&[], 1_000))), LookupResult::Empty);
        assert_eq!(world.hosts().as_deref(), Some(&[1, 2][..]), "one such response is no proof");
        assert!(world.wait() <= EMPTY_RETRY_MAX, "a service that starts is found");
        // Nor does a failure in between prove the contrary.
        world.take_response(failed());
    }
    world.take_response(ipv4(part(&[], 1_000)));
    assert_eq!(world.hosts().as_deref(), Some(&[][..]));
    world.take_response(ipv4(part(&[2], 5)));
    world.take_response(ipv4(part(&[], 5)));
    assert_eq!(world.hosts().as_deref(), Some(&[2][..]), "the time begins again");
}

#[test]
fn a_name_that_never_had_records_decides_after_the_same_time() {
    let mut world = World::new();
    let first = world.now;
    while world.now < first + CONFIG.empty_max {
        world.take_response(ipv4(part(&[], 5)));
        assert_eq!(world.hosts(), None);
        world.wait();
    }
    world.take_response(ipv4(part(&[], 5)));
    assert_eq!(world.hosts().as_deref(), Some(&[][..]));
}

/// As of a name server whose zone is empty before it stops and after it starts.
#[test]
fn empty_responses_around_an_outage_are_not_in_a_row() {
    let mut world = World::new();
    world.take_response(ipv4(part(&[1], 5)));
    world.take_response(ipv4(part(&[], 5)));
    let first = world.now;
    while world.now < first + CONFIG.empty_max {
        world.wait();
        world.take_response(failed());
    }
    world.take_response(ipv4(part(&[], 5)));
    assert_eq!(world.hosts().as_deref(), Some(&[1][..]));
}

#[test]
fn parts_fail_apart() {
    let mut world = World::new();
    world.take_response(both(part(&[1, 2], 5), part(&[61], 5)));
    world.wait();
    assert_eq!(world.take_response(both(part(&[2, 3], 5), failed())), LookupResult::Partial);
    assert_eq!(world.hosts().as_deref(), Some(&[2, 3, 61][..]), "the part that failed stays");
    assert!(world.wait() <= Duration::from_secs(1), "and is repeated soon");
    // Name servers that cannot respond to one type never do.
    let received = world.now;
    while world.now < received + CONFIG.stale_max {
        assert_eq!(world.take_response(both(part(&[3], 5), failed())), LookupResult::Partial);
        assert!(world.wait() <= Duration::from_secs(5));
    }
    world.take_response(both(part(&[3], 5), failed()));
    assert_eq!(world.hosts().as_deref(), Some(&[3][..]), "up to its time");
}

#[test]
fn no_ipv4_address_and_a_failure_is_no_empty_response() {
    let mut world = World::new();
    world.take_response(both(part(&[1], 5), part(&[61], 5)));
    world.wait();
    for _ in 0..10 {
        assert_eq!(world.take_response(both(part(&[], 5), failed())), LookupResult::Failed);
        assert_eq!(world.hosts().as_deref(), Some(&[61][..]));
        world.now = world.now + Duration::from_secs(30);
    }
}

#[test]
fn a_part_that_a_response_no_longer_names_is_gone() {
    let mut world = World::new();
    let target = |name: &str, host| (name.to_owned(), part(&[host], 5));
    world.take_response(Ok(vec![target("a", 1), target("b", 2)]));
    world.take_response(Ok(vec![target("b", 2), ("c".to_owned(), failed())]));
    assert_eq!(world.hosts().as_deref(), Some(&[2][..]));
}

#[test]
fn each_endpoint_has_the_rest_of_its_time() {
    let mut world = World::new();
    world.take_response(both(part(&[1, 2], 5), part(&[2], 9)));
    world.now = world.now + Duration::from_secs(6);
    let validity = world.list.with_validity(world.now);
    let rest = Validity::For(Duration::from_secs(3));
    assert_eq!(validity, [(at(1).address, Validity::Expired), (at(2).address, rest)]);
}

/// The endpoints of a source that reports its changes.
fn reported(hosts: &[u8]) -> SourceResponse {
    let endpoints = hosts.iter().map(|host| at(*host)).collect();
    let part = Part { endpoints, validity: Validity::UntilFailure };
    Ok(vec![("a".to_owned(), Ok(part))])
}

#[test]
fn a_report_is_as_old_as_its_last_confirmation() {
    let mut world = World::new();
    world.take_response(reported(&[1]));
    world.now = world.now + Duration::from_secs(5_000);
    assert_eq!(world.list.with_validity(world.now), [(at(1).address, Validity::UntilFailure)]);
    // The connection breaks after it was open for long: the endpoints begin to be stale now.
    world.list.confirm(world.now);
    let broken = world.now;
    world.take_response(failed());
    assert_eq!(world.list.with_validity(world.now), [(at(1).address, Validity::Expired)]);
    world.list.confirm(world.now);
    assert_eq!(
        world.list.with_validity(world.now),
        [(at(1).address, Validity::Expired)],
        "it has failed"
    );
    world.now = broken + Duration::from_secs(990);
    world.take_response(failed());
    assert_eq!(world.hosts().as_deref(), Some(&[1][..]));
    world.now = broken + Duration::from_secs(1_000);
    world.take_response(failed());
    assert_eq!(world.hosts().as_deref(), Some(&[][..]));
}

#[test]
fn a_report_without_endpoints_counts_until_it_ends() {
    let mut world = World::new();
    world.take_response(reported(&[1]));
    assert_eq!(world.list.empty_end(&CONFIG), None);
    assert_eq!(world.take_response(reported(&[])), LookupResult::Empty);
    let end = world.now + CONFIG.empty_max;
    assert_eq!(world.list.empty_end(&CONFIG), Some(end));
    // Nothing else arrives meanwhile: the source confirms it at the end.
    world.now = end;
    world.list.confirm(world.now);
    assert_eq!(world.hosts().as_deref(), Some(&[1][..]));
    world.take_response(reported(&[]));
    assert_eq!(world.hosts().as_deref(), Some(&[][..]));
    assert_eq!(world.list.empty_end(&CONFIG), None, "they have left");
}

#[test]
fn an_address_in_two_parts_is_one_endpoint_with_the_larger_weight() {
    let weighted = |value| {
        let weight = curtail_policy::Weight::new(value).expect("a weight");
        let placement = crate::config::Placement { weight, ..Default::default() };
        let endpoints = vec![Endpoint { placement, ..at(1) }];
        Ok(Part { endpoints, validity: Validity::UntilFailure })
    };
    let mut world = World::new();
    for (one, other) in [(0.0, 2.0), (2.0, 0.5)] {
        let parts = [("a", weighted(one)), ("b", weighted(other))];
        world.take_response(Ok(parts.map(|(name, part)| (name.to_owned(), part)).to_vec()));
        let endpoints = world.list.endpoints().expect("there is a response");
        let weights: Vec<f64> = endpoints.iter().map(|one| one.placement.weight.get()).collect();
        assert_eq!(weights, [2.0]);
    }
}

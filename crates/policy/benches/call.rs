//! What the policies cost a request, in nanoseconds: the median of many rounds.
//!
//! A root has 64 requests in flight over 100 replicas, one more every 10 µs; each goes through `Arrived`,
//! `Responded` and `Ended`, its effects are drained and its timer is polled, as a driver does. Where hedges
//! are on, one request in fifty is woken and hedged. Where the policy sends probes, they get results, and
//! these are part of the figure. A leaf is at its concurrency limit and has requests waiting.
//!
//! ```sh
//! cargo bench -p curtail-policy              # all
//! cargo bench -p curtail-policy -- prequal   # those with "prequal" in their name
//! ```

use core::hint::black_box;
use curtail_policy::{
    AttemptId, BalanceConfig, Call, Class, Effect, Event, Group, GroupConfig, HedgeConfig, Leaf,
    LeafConfig, LeafEvent, LeafRequestId, Load, Outcome, PrequalConfig, Request, RetryConfig,
    TieConfig, TieId, Upstream, UpstreamConfig, UpstreamEvent,
};
use curtail_units::{Duration, Instant, Rng};
use std::collections::VecDeque;
use std::sync::Mutex;

const ROUNDS: usize = 1_001;
const REQUESTS: usize = 1_000;
const IN_FLIGHT: usize = 64;
const REPLICAS: usize = 100;
const GAP: Duration = Duration::from_us(10);
const SEED: u64 = 1;
const CLASSES: [Class; 2] = [Class::Interactive, Class::Batch];
fn main() {
    println!("{REQUESTS} requests a round, seed {SEED}, median of {ROUNDS} rounds");
    let balances = [
        ("round robin", BalanceConfig::RoundRobin),
        ("random", BalanceConfig::Random),
        ("least request", BalanceConfig::LEAST_REQUEST),
        ("peak ewma", BalanceConfig::PeakEwma { decay: Duration::from_secs(10) }),
        ("prequal", BalanceConfig::Prequal(PrequalConfig::default())),
    ];
    for (name, balance) in balances {
        let plain = UpstreamConfig::plain(balance);
        let hedge = UpstreamConfig { hedge: Some(HedgeConfig::default()), ..plain };
        let retry = UpstreamConfig { retry: Some(RetryConfig::default()), ..hedge };
        root(&format!("call, {name}"), plain);
        root(&format!("call, {name}, hedge"), hedge);
        root(&format!("call, {name}, hedge, retry"), retry);
    }
    let least = UpstreamConfig::plain(BalanceConfig::LEAST_REQUEST);
    let hedge = UpstreamConfig { hedge: Some(HedgeConfig::default()), ..least };
    root_in_group("call, least request, hedge, in a group", hedge);
    let few = PrequalConfig { probes_per_request: 0.0, ..PrequalConfig::default() };
    root("call, prequal without probes", UpstreamConfig::plain(BalanceConfig::Prequal(few)));
    let tied = UpstreamConfig { tie: Some(TieConfig::default()), ..least };
    root("call, least request, tie, second copy not sent", tied);
    leaf("leaf, one class", |_| (Class::Interactive, None));
    leaf("leaf, two classes", |nth| (CLASSES[usize::from(nth.is_multiple_of(2))], None));
    leaf("leaf, tied", |nth| (Class::Interactive, Some(TieId(nth.wrapping_mul(0x9e37_79b9)))));
    probe();
}

/// A root and its requests in flight.
struct Root {
    upstream: Upstream,
    /// The driver locks the group, as the proxy does.
    group: Option<Mutex<Group>>,
    now: Instant,
    calls: Vec<Call>,
    probed: Vec<Effect>,
    hedges: bool,
    nth: u32,
}

impl Root {
    /// Ends the oldest request and begins another in its place: a driver does not move them either.
    fn request(&mut self) {
        self.now = self.now + GAP;
        self.nth = self.nth.wrapping_add(1);
        let place = self.nth as usize % IN_FLIGHT;
        if self.nth as usize >= IN_FLIGHT {
            self.finish(place);
        }
        self.calls[place] = Call::new(Request::READ);
        self.handle(place, Event::Arrived);
        black_box(self.calls[place].poll_timeout());
        while let Some(Effect::Probe { replica }) = self.probed.pop() {
            let in_flight = self.upstream.in_flight(replica);
            let latency = Duration::from_us(600 + u64::from(in_flight) * 100);
            let load = Load { in_flight, latency };
            self.upstream.handle(self.now, UpstreamEvent::ProbeSucceeded { replica, load });
        }
    }

    fn finish(&mut self, place: usize) {
        if self.hedges && self.nth.is_multiple_of(50) {
            // A hedge is due at its own time; the clock of the others does not wait for it.
            let (now, due) = (self.now, self.calls[place].poll_timeout().expect("it is not over"));
            self.now = due.max(now);
            self.handle(place, Event::Woke);
        }
        let attempt = AttemptId(0);
        self.handle(place, Event::Responded { attempt, outcome: Outcome::Good });
        self.handle(place, Event::Ended { attempt, whole: true });
    }

    fn handle(&mut self, place: usize, event: Event) {
        let (call, now) = (&mut self.calls[place], self.now);
        let mut group = self.group.as_ref().map(|group| group.lock().expect("no panic"));
        self.upstream.in_group(group.as_deref_mut(), |upstream| call.handle(upstream, now, event));
        drop(group);
        while let Some(decided) = self.upstream.poll_effect() {
            if matches!(decided.effect, Effect::Probe { .. }) {
                self.probed.push(decided.effect);
            }
            black_box(decided);
        }
    }
}

fn root(what: &str, config: UpstreamConfig) {
    root_of(what, config, None);
}

fn root_in_group(what: &str, config: UpstreamConfig) {
    root_of(what, config, Some(Mutex::new(Group::new(GroupConfig::from(&config)))));
}

fn root_of(what: &str, config: UpstreamConfig, group: Option<Mutex<Group>>) {
    let mut root = Root {
        group,
        upstream: Upstream::new(config, REPLICAS, &Rng::new(SEED)),
        now: Instant::ZERO,
        calls: vec![Call::new(Request::READ); IN_FLIGHT],
        probed: Vec::with_capacity(8),
        hedges: config.hedge.is_some(),
        nth: 0,
    };
    report(what, REQUESTS, || (0..REQUESTS).for_each(|_| root.request()));
}

fn leaf(what: &str, marks: impl Fn(u64) -> (Class, Option<TieId>)) {
    let config = LeafConfig { concurrency: 16, queue_len_max: 1_024 };
    let mut leaf = Leaf::new(config);
    let mut working = VecDeque::new();
    let (mut now, mut nth) = (Instant::ZERO, 0);
    report(what, REQUESTS, || {
        for _ in 0..REQUESTS {
            now = now + GAP;
            nth += 1;
            let (request, (class, tie)) = (LeafRequestId(nth), marks(nth));
            leaf.handle(now, LeafEvent::Arrived { request, class, tie });
            start(&mut leaf, &mut working);
            if leaf.queue_len() > 32 {
                let request = working.pop_front().expect("the leaf is at its limit");
                leaf.handle(now, LeafEvent::Finished { request });
                start(&mut leaf, &mut working);
            }
        }
    });
}

fn start(leaf: &mut Leaf, working: &mut VecDeque<LeafRequestId>) {
    while let Some(decided) = leaf.poll_effect() {
        if let curtail_policy::LeafEffect::Start { request } = decided.effect {
            working.push_back(request);
        }
    }
}

fn probe() {
    let mut leaf = Leaf::new(LeafConfig::default());
    let mut rng = Rng::new(SEED);
    let mut working = VecDeque::new();
    let mut now = Instant::ZERO;
    for nth in 0..10_000 {
        now = now + GAP;
        let (request, class, tie) = (LeafRequestId(nth), Class::Interactive, None);
        leaf.handle(now, LeafEvent::Arrived { request, class, tie });
        start(&mut leaf, &mut working);
        while working.len() > 1 + rng.below(40) {
            let request = working.pop_front().expect("more than one");
            leaf.handle(now, LeafEvent::Finished { request });
            start(&mut leaf, &mut working);
        }
    }
    report("leaf, load for a probe", REQUESTS, || {
        (0..REQUESTS).for_each(|_| {
            black_box(black_box(&leaf).load(now));
        });
    });
}

/// Prints what one of the `operations` operations of `round` takes.
fn report(what: &str, operations: usize, mut round: impl FnMut()) {
    let wanted = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    if wanted.is_some_and(|wanted| !what.contains(&wanted)) {
        return;
    }
    round();
    let mut took: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let began = std::time::Instant::now();
            round();
            began.elapsed()
        })
        .collect();
    took.sort_unstable();
    let ns = took[ROUNDS / 2].as_nanos() as f64 / operations as f64;
    println!("{what:<48} {ns:>8.1} ns");
}

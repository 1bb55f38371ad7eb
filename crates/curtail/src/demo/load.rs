//! The load: sends the reads of the plan, and tallies what comes of them.
//!
//! One read asks every shard at once for [`KEYS_PER_SHARD`] keys and is answered when all have answered.
//! Everything here runs on the one thread of the client.
//! **Limits**: [`IN_FLIGHT_SECONDS`] times the rate for the reads of one arm at once. One more is not sent and counts as an error, so
//! it is seen; leaving it out would flatter the arm.

use super::arm::Arm;
use super::client::{self, Failure, Http1, Http2, PATIENCE};
use super::plan::Plan;
use super::proxies::Proxies;
use super::tally::Tallies;
use bytes::Bytes;
use curtail_load::Timing;
use curtail_testbed::{Alarm, Running as Testbed};
use curtail_units::{Duration, Instant, Rng};
use http_body_util::Empty;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Keys of each shard in one read.
pub(crate) const KEYS_PER_SHARD: usize = 10;

/// Keys that a shard has, for the client to choose from.
const KEYS: usize = 100_000;

/// Reads of one arm that may be in flight, for each that is sent in a second. A stall of 1.8 s holds back
/// one read in three that come meanwhile, 0.6 s of them; this is two stalls at once, and some.
const IN_FLIGHT_SECONDS: f64 = 1.5;

/// The same when only few are sent.
const IN_FLIGHT_MIN: usize = 16;

/// Reads of each arm, one after the other, before the measurement: connections are made, and nothing is
/// in a hurry.
const WARM_UP_READS: usize = 20;

/// The tenant of the reads before the measurement.
const WARM_UP: &str = "warm-up";

/// The client.
#[derive(Debug)]
pub(crate) struct Load {
    shards: usize,
    replicas: usize,
    /// To each server.
    direct: Vec<Http1>,
    /// To the root of each arm that has one.
    roots: [Option<Http2>; Arm::ALL.len()],
    alarm: Alarm,
    tallies: RefCell<Tallies>,
    in_flight_max: usize,
    in_flight: [Cell<usize>; Arm::ALL.len()],
}

/// A read that is under way.
#[derive(Debug)]
struct Read {
    arm: Arm,
    /// When it was to be sent.
    due: Instant,
    begun: Instant,
    /// Whether it counts.
    measured: bool,
    /// Its requests are of one trace.
    trace_id: u128,
    /// Shards that have not answered.
    left: Cell<usize>,
    failure: RefCell<Option<(usize, Failure)>>,
}

impl Load {
    /// Connects to the proxies, to send at most `rate` reads a second of one arm.
    pub(crate) async fn connect(
        testbed: &Testbed,
        proxies: &Proxies,
        rate: f64,
    ) -> anyhow::Result<Rc<Self>> {
        let (shards, replicas) = (testbed.config().shards, testbed.config().replicas);
        let servers = (0..testbed.config().servers())
            .map(|nth| testbed.address(nth / replicas, nth % replicas));
        let mut roots = [const { None }; Arm::ALL.len()];
        for arm in Arm::ALL {
            if let Some(address) = proxies.address(arm) {
                roots[arm.index()] = Some(Http2::connect(address).await?);
            }
        }
        Ok(Rc::new(Self {
            shards,
            replicas,
            direct: servers.map(Http1::new).collect(),
            roots,
            alarm: Alarm::start()?,
            tallies: RefCell::new(Tallies::new(Instant::ZERO, Duration::ZERO)),
            in_flight_max: at_once(rate).max(IN_FLIGHT_MIN),
            in_flight: Default::default(),
        }))
    }

    /// Reads a little, one read after the other, so that all connections are there.
    pub(crate) async fn warm_up(self: &Rc<Self>, rng: &Rng) {
        for nth in 0..WARM_UP_READS {
            for arm in Arm::ALL {
                self.begin(arm, self.alarm.now(), rng.split_index(nth as u64), WARM_UP);
                self.over().await;
            }
        }
    }

    /// Sends the reads of `plan` that are due before `end`. Returns when the last one is over.
    pub(crate) async fn run(self: &Rc<Self>, plan: Plan, end: Duration) {
        let began = self.alarm.now();
        self.tallies.replace(Tallies::new(began, end));
        for planned in plan.take_while(|planned| planned.at < end) {
            let due = began + planned.at;
            self.alarm.until(due).await;
            self.begin(planned.arm, due, planned.rng, planned.arm.name());
        }
        self.over().await;
    }

    /// What came of the reads so far.
    pub(crate) fn tallies(&self) -> Tallies {
        self.tallies.borrow().clone()
    }

    /// Waits until no read is under way: no longer than a request may take.
    async fn over(&self) {
        let step = Duration::from_ms(5);
        while self.in_flight.iter().any(|count| count.get() > 0) {
            self.alarm.until(self.alarm.now() + step).await;
        }
    }

    fn begin(self: &Rc<Self>, arm: Arm, due: Instant, mut rng: Rng, tenant: &'static str) {
        let measured = tenant != WARM_UP;
        let begun = self.alarm.now();
        let in_flight = &self.in_flight[arm.index()];
        let max = self.in_flight_max;
        if in_flight.get() >= max {
            let timing = Timing { intended: due, ready: begun, sent: begun, ended: begun };
            let why = || format!("{max} reads in flight, not sent");
            self.tallies.borrow_mut().failed(arm, &timing, why);
            return;
        }
        in_flight.set(in_flight.get() + 1);
        if measured {
            self.tallies.borrow_mut().sent(arm, self.shards as u64);
        }
        let left = Cell::new(self.shards);
        let mut ids = rng.split("trace");
        let trace_id = u128::from(ids.next_u64()) << 64 | u128::from(ids.next_u64());
        let failure = RefCell::default();
        let read = Rc::new(Read { arm, due, begun, measured, trace_id, left, failure });
        for shard in 0..self.shards {
            let trace = format!("00-{trace_id:032x}-{:016x}-01", ids.next_u64().max(1));
            let request = request(shard, tenant, &trace, &mut rng);
            let server = shard * self.replicas + rng.below(self.replicas);
            let (load, read) = (Rc::clone(self), Rc::clone(&read));
            drop(tokio::task::spawn_local(async move {
                let answer = tokio::time::timeout(PATIENCE, load.ask(arm, server, request)).await;
                let result = answer.unwrap_or_else(|_| Err(format!("no answer in {PATIENCE:?}")));
                load.shard_is_done(&read, shard, result);
            }));
        }
    }

    async fn ask(&self, arm: Arm, server: usize, request: client::Outgoing) -> Result<(), Failure> {
        match &self.roots[arm.index()] {
            Some(root) => root.ask(request).await,
            None => self.direct[server].ask(request).await,
        }
    }

    fn shard_is_done(&self, read: &Read, shard: usize, result: Result<(), Failure>) {
        if let Err(failure) = result {
            read.failure.borrow_mut().get_or_insert((shard, failure));
        }
        read.left.set(read.left.get() - 1);
        if read.left.get() > 0 {
            return;
        }
        let in_flight = &self.in_flight[read.arm.index()];
        in_flight.set(in_flight.get() - 1);
        if !read.measured {
            return;
        }
        let (intended, begun, ended) = (read.due, read.begun, self.alarm.now());
        let timing = Timing { intended, ready: begun, sent: begun, ended };
        let mut tallies = self.tallies.borrow_mut();
        match read.failure.take() {
            None => tallies.succeeded(read.arm, &timing, read.trace_id),
            Some((shard, failure)) => {
                tallies.failed(read.arm, &timing, || format!("shard {shard}: {failure}"));
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate that the command takes, times a small number"
)]
fn at_once(rate: f64) -> usize {
    (IN_FLIGHT_SECONDS * rate).ceil() as usize
}

/// A request for some keys of `shard`, in a trace.
fn request(shard: usize, tenant: &'static str, trace: &str, rng: &mut Rng) -> client::Outgoing {
    let mut uri = format!("http://testbed/shard/{shard}/keys");
    for nth in 0..KEYS_PER_SHARD {
        uri.push(if nth == 0 { '?' } else { '&' });
        uri.push_str("k=");
        uri.push_str(&rng.below(KEYS).to_string());
    }
    http::Request::get(uri)
        .header("host", "testbed")
        .header("x-tenant", tenant)
        .header("traceparent", trace)
        .body(Empty::<Bytes>::new())
        .expect("a path of digits and plain words")
}

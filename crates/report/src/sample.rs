//! Results for tests, from a model with a seed.
//!
//! **Model**: Poisson arrivals, lognormal service times, garbage collections, and one pause of a server for a second. A
//! request that arrives in a collection or in the pause is served after it. A request that waits longer than 200 ms
//! counts as sent at the end of the wait, as if all connections were in use, so the service clock misses the wait.

use crate::Results;
use crate::results::{
    Arm, Block, CPU_RATIO, Event, GC_PAUSE_NS, Machine, Measure, RESIDENT_BYTES, Series, Shares,
    State,
};
use curtail_load::{Failure, Latencies, Timeline, Timing};
use curtail_units::{Duration, Instant, Rng};

/// The behavior of one arm.
struct Model {
    /// The median of the service time.
    median_ms: f64,
    /// Time for which a garbage collection holds requests back.
    collection: Duration,
}

const RATE: f64 = 1_000.0;
const BLOCK: Duration = Duration::from_secs(10);
/// From the start of one garbage collection to that of the next.
const COLLECTED_EVERY: Duration = Duration::from_ms(3_700);
/// When one server was paused, and how long.
const PAUSE: (Instant, Duration) = (Instant::from_ns(43_500_000_000), Duration::from_secs(1));
/// Two of each in a block's turn: A, B, B, A.
const TURNS: [usize; 8] = [0, 1, 1, 0, 0, 1, 1, 0];

/// A run of one arm for a single block, short enough for golden files.
pub(crate) fn single(seed: u64) -> Results {
    let mut results = compared(seed);
    results.arms.truncate(1);
    results.blocks.retain(|block| block.arm == 0);
    results.blocks.truncate(2);
    results.measures.clear();
    results.events.clear();
    results
}

/// A against B in blocks, with several queries and tenants, garbage collections and a pause.
pub(crate) fn compared(seed: u64) -> Results {
    let root = Rng::new(seed);
    let models = [
        Model { median_ms: 4.0, collection: Duration::from_ms(60) },
        Model { median_ms: 4.2, collection: Duration::from_ms(25) },
    ];
    let series = series();
    let mut blocks = Vec::new();
    let warm_ups = [0, 1].map(|arm| (arm, true));
    for (nth, (arm, is_warm_up)) in
        warm_ups.into_iter().chain(TURNS.map(|arm| (arm, false))).enumerate()
    {
        let mut rng = root.split_index(nth as u64);
        let began = Instant::ZERO + BLOCK.mul_f64(nth as f64);
        blocks.push(block(&mut rng, &models[arm], (arm, began, is_warm_up), series.len()));
    }
    Results {
        name: "search".to_owned(),
        command: "curtail bench run suites/search.yaml --seed 1".to_owned(),
        seed,
        began_unix_ns: 1_795_370_643_000_000_000,
        machine: Machine {
            cpu: "Imaginary 3000".to_owned(),
            cores: 4,
            kernel: "Linux 6.1".to_owned(),
        },
        shares: Shares::all(),
        state: State::Complete,
        load: "1,000 requests/s, Poisson, 8 blocks of 10 s".to_owned(),
        arms: vec![arm("direct", "http://127.0.0.1:8983"), arm("hedged", "through the proxy")],
        series,
        blocks,
        measures: measures(&root, &models),
        events: vec![Event { at: PAUSE.0, lasted: PAUSE.1, what: "node 2 paused".to_owned() }],
    }
}

fn arm(name: &str, about: &str) -> Arm {
    Arm { name: name.to_owned(), about: about.to_owned(), rate: Some(RATE) }
}

fn series() -> Vec<Series> {
    let tenants = [("large", 1_000_000), ("medium", 50_000), ("small", 1_000)];
    let of_query = |query: &str| {
        let series = |(tenant, tenant_size): (&str, u64)| Series {
            query: query.to_owned(),
            tenant: tenant.to_owned(),
            tenant_size,
        };
        tenants.map(series)
    };
    ["term", "facet"].into_iter().flat_map(of_query).collect()
}

fn block(
    rng: &mut Rng,
    model: &Model,
    (arm, began, is_warm_up): (usize, Instant, bool),
    series: usize,
) -> Block {
    let mut latencies = vec![Latencies::new(); series];
    let mut timeline = Timeline::new(Duration::from_ms(500));
    let (mut intended, mut ended) = (began, began);
    loop {
        intended = intended + Duration::from_secs_f64(rng.exponential() / RATE);
        if intended.since(began) >= BLOCK {
            break;
        }
        let nth = rng.below(series);
        // Warming up is slower at first; facets take three times as long, and large tenants twice.
        let cold =
            if is_warm_up { 1.0 + 4.0 / (1.0 + intended.since(began).as_secs_f64()) } else { 1.0 };
        let heavy = if nth >= series / 2 { 3.0 } else { 1.0 }
            * if nth.is_multiple_of(3) { 2.0 } else { 1.0 };
        let service = model.median_ms * cold * heavy * (0.4 * rng.normal()).exp();
        let freed = held_until(intended, model);
        let timing = Timing {
            intended,
            ready: intended + Duration::from_ns_f64(2e4 * rng.exponential()),
            sent: if freed.since(intended) > Duration::from_ms(200) { freed } else { intended },
            ended: freed + Duration::from_ns_f64(service * 1e6),
        };
        let failure =
            rng.chance(0.000_2).then(|| [Failure::Timeout, Failure::Closed][rng.below(2)]);
        latencies[nth].record(&timing, failure);
        timeline.record(intended.since(began), &timing, failure);
        ended = ended.max(timing.ended);
    }
    Block {
        arm,
        began,
        lasted: ended.since(began),
        latencies,
        timeline,
        received_bytes: 20_000_000,
        connections: 64,
        resent: 0,
        generator_cpu: Duration::from_ms(120),
        servers_cpu: Some(Duration::from_ms(9_000)),
        is_warm_up,
    }
}

/// When a request that comes at `at` is turned to: then, or when a pause is over.
fn held_until(at: Instant, model: &Model) -> Instant {
    let (paused, lasted) = PAUSE;
    if at >= paused && at < paused + lasted {
        return paused + lasted;
    }
    let into = Duration::from_ns(at.as_ns() % COLLECTED_EVERY.as_ns());
    if into < model.collection { at + (model.collection - into) } else { at }
}

fn measures(root: &Rng, models: &[Model; 2]) -> Vec<Measure> {
    let mut rng = root.split("measures");
    let run = BLOCK.mul_f64((TURNS.len() + 2) as f64);
    let collections = (0..).map(|nth| Instant::ZERO + COLLECTED_EVERY.mul_f64(f64::from(nth)));
    let collections = collections.take_while(|at| at.since(Instant::ZERO) < run);
    let arms: Vec<usize> = [0, 1].into_iter().chain(TURNS).collect();
    let pause = |at: Instant| {
        let block = usize::try_from(at.as_ns() / BLOCK.as_ns()).expect("a few blocks");
        (at, models[arms[block]].collection.as_ns_f64())
    };
    let mut seconds = |level: f64, spread: f64| -> Vec<(Instant, f64)> {
        let values = (0..run.as_ns() / 1_000_000_000).map(|second| {
            (Instant::ZERO + Duration::from_secs(second), level + spread * rng.unit())
        });
        values.collect()
    };
    let measure =
        |of: &str, name: &str, points| Measure { of: of.to_owned(), name: name.to_owned(), points };
    let cpu = seconds(0.55, 0.2);
    let resident = seconds(2.0e9, 3.0e8);
    vec![
        measure("node 1", GC_PAUSE_NS, collections.map(pause).collect()),
        measure("node 1", CPU_RATIO, cpu),
        measure("node 1", RESIDENT_BYTES, resident),
    ]
}

//! The resources of servers while each arm was measured: CPU time, memory, pauses of garbage collectors.
//!
//! **Limits**: a sample belongs to the arm of its block, so CPU time at the edges of blocks is exact to the sampling
//! interval.

use crate::Results;
use crate::parts::distinct;
use crate::results::{Block, CPU_RATIO, GC_PAUSE_NS, RESIDENT_BYTES};
use curtail_text::numbers;
use curtail_units::{Duration, Instant};

/// The columns of the table of servers, with their descriptions; those of garbage collectors only if known.
pub(super) fn columns(servers: &[Server]) -> &'static [(&'static str, &'static str)] {
    const ALL: [(&str, &str); 4] = [
        ("CPU", "mean CPUs in use"),
        ("memory", "maximum resident memory"),
        ("GC", "share of time in pauses of the garbage collector"),
        ("longest", "its longest pause in ms"),
    ];
    let is_known =
        servers.iter().flat_map(|server| &server.of_arms).any(|used| used.paused.is_some());
    if is_known { &ALL } else { &ALL[..2] }
}

/// The description of the columns.
pub(super) fn about(servers: &[Server]) -> String {
    let each = columns(servers).iter().map(|(name, what)| format!("{name}: {what}"));
    each.collect::<Vec<_>>().join("; ") + "."
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Server {
    /// The name of the process or node.
    pub name: String,
    /// The usage while each arm was measured, in the order of the arms.
    pub of_arms: Vec<ServerUsage>,
}

/// The resources that a server used.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ServerUsage {
    /// Mean CPUs in use.
    pub cpu_ratio: Option<f64>,
    /// Maximum resident memory.
    pub resident_bytes: Option<f64>,
    /// Pauses of a garbage collector: share of the time, and the longest.
    pub paused: Option<(f64, Duration)>,
}

/// The servers with a known measure, in their order.
pub(super) fn of(results: &Results) -> Vec<Server> {
    let known = [CPU_RATIO, RESIDENT_BYTES, GC_PAUSE_NS];
    let measures = results.measures.iter().filter(|m| known.contains(&m.name.as_str()));
    let names = distinct(measures.map(|measure| measure.of.as_str()));
    let server = |name: &str| {
        let of_arm = |arm| used(results, name, arm);
        Server { name: name.to_owned(), of_arms: (0..results.arms.len()).map(of_arm).collect() }
    };
    names.into_iter().map(server).collect()
}

fn used(results: &Results, server: &str, arm: usize) -> ServerUsage {
    let blocks: Vec<&Block> = results.measured().filter(|block| block.arm == arm).collect();
    let counts = |at: Instant| {
        let nth = blocks.partition_point(|block| block.began <= at);
        nth.checked_sub(1).is_some_and(|nth| at < blocks[nth].began + blocks[nth].lasted)
    };
    let values = |name: &str| -> Option<Vec<f64>> {
        let measure = results.measures.iter().find(|m| m.of == server && m.name == name)?;
        let points = measure.points.iter().filter(|(at, _)| counts(*at));
        Some(points.map(|(_, value)| *value).collect())
    };
    let mean = |values: Vec<f64>| {
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let time = blocks.iter().fold(Duration::ZERO, |sum, block| sum + block.lasted).as_ns_f64();
    let paused = |pauses: Vec<f64>| {
        let longest = pauses.iter().copied().fold(0.0, f64::max);
        (pauses.iter().sum::<f64>() / time.max(1.0), Duration::from_ns_f64(longest))
    };
    ServerUsage {
        cpu_ratio: values(CPU_RATIO).and_then(mean),
        resident_bytes: values(RESIDENT_BYTES).and_then(|all| all.into_iter().reduce(f64::max)),
        paused: values(GC_PAUSE_NS).map(paused),
    }
}

impl ServerUsage {
    /// A text for each column; empty if unknown.
    pub(super) fn cells(&self) -> [String; 4] {
        let text = |text: Option<String>| text.unwrap_or_default();
        let bytes = |bytes| numbers::bytes(Duration::from_ns_f64(bytes).as_ns());
        [
            text(self.cpu_ratio.map(|cpu| format!("{cpu:.2}"))),
            text(self.resident_bytes.map(bytes)),
            text(self.paused.map(|(ratio, _)| numbers::percent(ratio))),
            text(self.paused.map(|(_, longest)| numbers::ms(longest))),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::{ServerUsage, of};
    use crate::sample;
    use curtail_units::{Duration, Instant};

    #[test]
    fn what_lies_outside_an_arms_blocks_is_not_its() {
        let mut results = sample::compared(1);
        let blocks: Vec<_> = results.measured().filter(|block| block.arm == 1).cloned().collect();
        let within = blocks[0].began + blocks[0].lasted.mul_f64(0.5);
        let points = |value: f64, other: f64| {
            vec![(within, value), (within, 3.0 * value), (Instant::ZERO, other)]
        };
        results.measures[0].points = points(1e6, 9e9);
        results.measures[1].points = points(0.5, 99.0);
        results.measures[2].points = points(1e9, 9e12);
        let [server] = of(&results).try_into().expect("one of them");
        assert_eq!((server.name.as_str(), server.of_arms.len()), ("node 1", 2));
        let nothing_seen =
            ServerUsage { paused: Some((0.0, Duration::ZERO)), ..ServerUsage::default() };
        assert_eq!(server.of_arms[0], nothing_seen);
        let lasted = blocks.iter().fold(Duration::ZERO, |sum, block| sum + block.lasted);
        let ServerUsage { cpu_ratio, resident_bytes, paused } = &server.of_arms[1];
        assert_eq!((*cpu_ratio, *resident_bytes), (Some(1.0), Some(3e9)));
        assert_eq!(*paused, Some((4e6 / lasted.as_ns_f64(), Duration::from_ms(3))));
    }
}

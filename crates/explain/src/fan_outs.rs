//! Fan-outs: requests that wait for the slowest of several parallel calls.
//!
//! A request with a hundred calls is slow whenever one of them is (Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013,
//! page 75). The **spread** of a fan-out is the time from the median to the maximum of its calls: the time that the request
//! would save if its slowest call took as long as the others.

use alloc::vec::Vec;
use curtail_trace::{Assembly, Span};

/// The smallest number of parallel calls that is a fan-out.
pub(crate) const CALLS_MIN: usize = 5;

/// The fan-out of a trace: the one with the largest spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FanOut {
    /// The number of the service and operation that makes the calls.
    pub(crate) caller: u32,
    pub(crate) spread_ns: i64,
    pub(crate) calls: u32,
}

/// The number of the children of a span that run while the longest of them runs, and their spread; [`None`]: too few.
pub(crate) fn spread(
    spans: &[Span],
    assembly: &Assembly,
    span: usize,
    durations_ns: &mut Vec<i64>,
) -> Option<(u32, i64)> {
    let children = assembly.children(span);
    if children.len() < CALLS_MIN {
        return None;
    }
    let children = || children.iter().map(|child| &spans[*child as usize]);
    let longest = children().max_by_key(|child| child.duration_ns())?;
    durations_ns.clear();
    let is_parallel =
        |child: &&Span| child.start_ns < longest.end_ns && child.end_ns > longest.start_ns;
    durations_ns.extend(children().filter(is_parallel).map(Span::duration_ns));
    if durations_ns.len() < CALLS_MIN {
        return None;
    }
    let (middle, calls) = (durations_ns.len() / 2, u32::try_from(durations_ns.len()).ok()?);
    let (_, median_ns, _) = durations_ns.select_nth_unstable(middle);
    Some((calls, longest.duration_ns() - *median_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread_of(calls: &[(i64, i64)]) -> Option<(u32, i64)> {
        let mut spans = alloc::vec![Span { id: 1, parent_id: 0, start_ns: 0, end_ns: 1_000 }];
        spans.extend((2..).zip(calls).map(|(id, (start_ns, end_ns))| Span {
            id,
            parent_id: 1,
            start_ns: *start_ns,
            end_ns: *end_ns,
        }));
        let mut assembly = Assembly::default();
        assembly.assemble(&spans);
        spread(&spans, &assembly, 0, &mut Vec::new())
    }

    #[test]
    fn the_spread_is_from_the_median_to_the_longest_parallel_call() {
        let parallel = [(10, 20), (10, 30), (10, 40), (10, 50), (10, 900)];
        assert_eq!(spread_of(&parallel), Some((5, 890 - 30)));
        assert_eq!(spread_of(&parallel[1..]), None);
        // Calls after one another are no fan-out.
        assert_eq!(spread_of(&[(0, 10), (10, 20), (20, 30), (30, 40), (40, 900)]), None);
        let with_others = [&parallel[..], &[(900, 950), (0, 10)]].concat();
        assert_eq!(spread_of(&with_others), Some((5, 860)));
    }
}

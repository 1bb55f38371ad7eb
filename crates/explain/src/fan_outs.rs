//! Fan-outs: requests that wait for the slowest of several parallel calls.
//!
//! A request with a hundred calls is slow whenever one of them is (Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013,
//! page 75). The **spread** of a fan-out is the time from the median to the maximum of its calls: the time that the request
//! would save if its slowest call took as long as the others.

use alloc::vec::Vec;
use curtail_trace::Span;

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

/// Finds the fan-out of a caller; reuses its memory for the next caller.
#[derive(Clone, Debug, Default)]
pub(crate) struct FanOutFinder {
    durations_ns: Vec<i64>,
    starts_ns: Vec<i64>,
    ends_ns: Vec<i64>,
}

impl FanOutFinder {
    /// The largest number of calls in flight at one instant, and the spread; [`None`]: too few. The calls are those of one
    /// caller that run while the longest of them runs.
    pub(crate) fn spread<'a>(
        &mut self,
        calls: impl Iterator<Item = &'a Span> + Clone,
    ) -> Option<(u32, i64)> {
        let longest = calls.clone().max_by_key(|call| call.duration_ns())?;
        let Self { durations_ns, starts_ns, ends_ns } = self;
        durations_ns.clear();
        starts_ns.clear();
        ends_ns.clear();
        for call in calls {
            if call.start_ns < longest.end_ns && call.end_ns > longest.start_ns {
                durations_ns.push(call.duration_ns());
                // A call without a duration is never in flight.
                if call.start_ns < call.end_ns {
                    starts_ns.push(call.start_ns);
                    ends_ns.push(call.end_ns);
                }
            }
        }
        let in_flight = most_in_flight(starts_ns, ends_ns);
        if in_flight < CALLS_MIN {
            return None;
        }
        let middle = durations_ns.len() / 2;
        let (_, median_ns, _) = durations_ns.select_nth_unstable(middle);
        Some((u32::try_from(in_flight).ok()?, longest.duration_ns() - *median_ns))
    }
}

/// The largest number of calls in flight at one instant. Sorts the starts and the ends of the calls.
fn most_in_flight(starts_ns: &mut [i64], ends_ns: &mut [i64]) -> usize {
    starts_ns.sort_unstable();
    ends_ns.sort_unstable();
    let (mut most, mut ended) = (0, 0);
    for (before, start_ns) in starts_ns.iter().enumerate() {
        while ends_ns[ended] <= *start_ns {
            ended += 1;
        }
        most = most.max(before + 1 - ended);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread_of(calls: &[(i64, i64)]) -> Option<(u32, i64)> {
        let call = |(start_ns, end_ns): &(i64, i64)| Span {
            id: 2,
            parent_id: 1,
            start_ns: *start_ns,
            end_ns: *end_ns,
        };
        let spans: Vec<Span> = calls.iter().map(call).collect();
        FanOutFinder::default().spread(spans.iter())
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

    #[test]
    fn sequential_calls_beside_a_long_one_are_no_fan_out() {
        let sequential = [(0, 900), (0, 10), (10, 20), (20, 30), (30, 40), (40, 50)];
        assert_eq!(spread_of(&sequential), None);
        // A limit of five calls at once: the slowest of twenty.
        let mut limited: Vec<(i64, i64)> =
            (0..19).map(|nth| (nth / 4 * 10, nth / 4 * 10 + 10)).collect();
        limited.push((0, 60));
        assert_eq!(spread_of(&limited), Some((5, 50)));
    }
}

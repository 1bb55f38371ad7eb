//! Detects a generator that was too late for its plan.
//!
//! The lag of a request is part of its response time. A large lag at a reported quantile means that the percentile
//! measures the generator. A large lag at p50 or p99 makes the run void. At p99.9 alone, one pause of the machine is
//! enough for a large lag: p99.9 and higher percentiles get no verdict, but lower ones stay valid.
//! **Source**: Kogias, Mallon and Bugnion, "Lancet: A self-correcting latency measuring tool", ATC 2019, section 4.

use crate::{Latencies, LatencyKind};
use curtail_sketch::rank;
use curtail_units::{Duration, Quantile};

/// Maximum lag at a quantile, as a share of the response time at that quantile.
pub const LAG_RATIO_MAX: f64 = 0.5;

/// A lag up to this is never too large: a kernel takes as long to wake a thread.
pub const LAG_MIN: Duration = Duration::from_us(100);

/// Minimum number of requests beyond a quantile that is checked.
const BEYOND_MIN: u64 = 10;

/// A lag that is too large a part of the response time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExcessiveLag {
    /// The quantile.
    pub quantile: Quantile,
    /// The lag at the quantile.
    pub lag: Duration,
    /// The response time at the quantile.
    pub response: Duration,
}

impl std::fmt::Display for ExcessiveLag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { quantile, lag, response } = self;
        write!(
            f,
            "the generator was {lag} late at quantile {quantile}, where responses took {response}: \
             expected less than half; send less, or give it more processors"
        )
    }
}

impl ExcessiveLag {
    /// Whether the whole run is void, because its figures measure the generator.
    #[must_use]
    pub fn is_void(&self) -> bool {
        self.quantile <= Quantile::P99
    }
}

/// The lowest reported quantile at which the generator was too late, if there is one.
#[must_use]
pub fn excessive(latencies: &Latencies) -> Option<ExcessiveLag> {
    let count = latencies.count();
    [Quantile::P50, Quantile::P99, Quantile::P999].into_iter().find_map(|quantile| {
        if count - rank(quantile, count) < BEYOND_MIN {
            return None;
        }
        let lag = latencies.lag.quantile(quantile)?;
        // No latency is reported at a quantile among failures.
        let response = latencies.quantile(LatencyKind::Response, quantile)?;
        let is_late = lag > LAG_MIN && lag.as_ns_f64() > LAG_RATIO_MAX * response.as_ns_f64();
        is_late.then_some(ExcessiveLag { quantile, lag, response })
    })
}

#[cfg(test)]
mod tests {
    use super::excessive;
    use crate::{Latencies, Timing};
    use curtail_units::{Duration, Instant};

    /// 10,000 requests of 10 ms, of which the last `n` were turned to `late_ms` late.
    fn latencies(n: u64, late_ms: u64) -> Latencies {
        let mut latencies = Latencies::new();
        for nth in 0..10_000 {
            let lag = Duration::from_ms(if nth < n { late_ms } else { 0 });
            let sent = Instant::ZERO + lag;
            let ended = sent + Duration::from_ms(10);
            latencies.record(&Timing { intended: Instant::ZERO, ready: sent, sent, ended }, None);
        }
        latencies
    }

    #[test]
    fn who_is_late_where_it_shows_makes_the_run_void() {
        assert_eq!(excessive(&latencies(0, 0)), None);
        assert_eq!(
            excessive(&latencies(5, 100)),
            None,
            "5 of 10,000 are beyond all that is reported"
        );
        let found = excessive(&latencies(50, 100)).expect("1 in 200 is 100 ms late");
        assert_eq!((found.quantile.get(), found.is_void()), (0.999, false));
        assert_eq!(excessive(&latencies(9_000, 1)), None, "1 ms of 11");
        let found = excessive(&latencies(150, 100)).expect("1.5 in 100 are 100 ms late");
        assert_eq!((found.quantile.get(), found.is_void()), (0.99, true));
        let found = excessive(&latencies(9_000, 20)).expect("most are 20 ms late");
        assert!(
            found.to_string().contains("late at quantile 0.5, where responses took 30 ms"),
            "{found}"
        );
    }
}

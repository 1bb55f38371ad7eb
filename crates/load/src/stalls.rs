//! A model of requests with stalls, on which comparisons are calibrated.
//!
//! A block is [`REQUESTS`] requests in a row with lognormal latencies (the body). On average [`STALLS_MEAN`] times a
//! block, the server stops for an exponential time, and the next [`DELAYED`] requests wait for the rest of that time. A
//! lognormal factor with deviation [`NOISE`] applies to all latencies of a block: other work on the machine. About 1.3
//! % of the requests are delayed, so p99 lies where body and stalls meet, the hardest place.
//!
//! The variance of the share beyond p99 is about 20 times that of independent requests; beyond p50, it is about 60
//! times (`curtail bench calibrate` prints both).
//! **Limits**: the model is not fitted to recorded latencies. Blocks are independent of each other, and the two arms
//! share no noise.

use crate::Latencies;
use crate::compare::student::two_sided_normal;
use curtail_units::{Duration, Rng};

/// The number of requests of a block.
pub const REQUESTS: usize = 15_000;

/// The mean number of stalls of a block.
pub const STALLS_MEAN: f64 = 6.0;

/// The number of requests in a row that a stall delays: uniform from the first to the second.
pub const DELAYED: (usize, usize) = (15, 50);

/// Mean duration of a stall.
pub const STALL_MEAN: Duration = Duration::from_ms(60);

/// The median of the body.
pub const MEDIAN: Duration = Duration::from_ms(5);

/// The standard deviation of the body's logarithm.
pub const SIGMA: f64 = 0.5;

/// The standard deviation of the logarithm of a block's factor.
pub const NOISE: f64 = 0.04;

/// The body is drawn from this many equally likely latencies: four draws from one random number.
const BODY_LEN: usize = 1 << 16;

/// The model.
#[derive(Clone, Debug)]
pub struct Stalls {
    /// Latencies of the body in nanoseconds, each as likely as any other.
    body: Box<[f64; BODY_LEN]>,
}

impl Stalls {
    /// The model with the parameters above.
    ///
    /// # Panics
    /// Never: the body has as many latencies as it has places.
    #[must_use]
    pub fn new() -> Self {
        let median = MEDIAN.as_ns_f64();
        let upper = normal_deviations();
        let deviations = upper.iter().rev().map(|z| -z).chain(upper.iter().copied());
        let body: Vec<f64> = deviations.map(|z| median * libm::exp(SIGMA * z)).collect();
        Self { body: body.try_into().expect("both halves together are as long as the body") }
    }

    /// Draws one block, which is the same on both clocks.
    #[must_use]
    pub fn block(&self, rng: &mut Rng) -> Latencies {
        let mut latencies_ns = Vec::with_capacity(REQUESTS);
        while latencies_ns.len() < REQUESTS {
            for two_bytes in rng.next_u64().to_le_bytes().chunks_exact(2) {
                let place = u16::from_le_bytes([two_bytes[0], two_bytes[1]]);
                latencies_ns.push(self.body[usize::from(place)]);
            }
        }
        for _ in 0..poisson(rng, STALLS_MEAN) {
            let delayed = DELAYED.0 + rng.below(DELAYED.1 - DELAYED.0 + 1);
            let first = rng.below(REQUESTS - delayed + 1);
            let stall_ns = STALL_MEAN.as_ns_f64() * rng.exponential();
            for (nth, latency_ns) in latencies_ns[first..first + delayed].iter_mut().enumerate() {
                *latency_ns += stall_ns * (1.0 - nth as f64 / delayed as f64);
            }
        }
        let factor = libm::exp(NOISE * rng.normal());
        let mut block = Latencies::new();
        for latency_ns in latencies_ns {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "above 0, and a fraction of a nanosecond is nothing"
            )]
            block.response.record(Duration::from_ns((latency_ns * factor) as u64));
        }
        block.service = block.response.clone();
        block.lag.record_n(Duration::ZERO, REQUESTS as u64);
        block
    }

    /// Draws `count` blocks.
    #[must_use]
    pub fn blocks(&self, rng: &mut Rng, count: usize) -> Vec<Latencies> {
        (0..count).map(|_| self.block(rng)).collect()
    }
}

impl Default for Stalls {
    fn default() -> Self {
        Self::new()
    }
}

/// The positive half of the normal deviations at the middles of [`BODY_LEN`] equally likely parts.
fn normal_deviations() -> Vec<f64> {
    let density_at_0 = 1.0 / (2.0 * core::f64::consts::PI).sqrt();
    let mut z = 0.0_f64;
    let deviation = |nth: usize| {
        let above = 0.5 - (nth as f64 + 0.5) / BODY_LEN as f64;
        // Newton's steps from the one before never go too far: above 0 the distribution bends down.
        loop {
            let excess = 0.5 * two_sided_normal(z) - above;
            let step = excess / (density_at_0 * libm::exp(-z * z / 2.0));
            z += step;
            if step.abs() < 1e-9 {
                return z;
            }
        }
    };
    (0..BODY_LEN / 2).map(deviation).collect()
}

/// Draws a count of the Poisson distribution: the number of exponential gaps that fit into `mean`.
fn poisson(rng: &mut Rng, mean: f64) -> usize {
    let mut gaps = rng.exponential();
    let mut count = 0;
    while gaps < mean {
        gaps += rng.exponential();
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::{BODY_LEN, STALLS_MEAN, Stalls, normal_deviations, poisson};
    use crate::{Latencies, LatencyKind};
    use curtail_units::{Quantile, Rng};

    #[test]
    fn deviations_are_those_of_the_printed_table() {
        let upper = normal_deviations();
        let at = |probability: f64| {
            upper.iter().position(|z| *z > probability).expect("within") as f64 / BODY_LEN as f64
                + 0.5
        };
        for (z, below) in [(0.5, 0.691_46), (1.0, 0.841_34), (1.96, 0.975_00), (3.0, 0.998_65)] {
            assert!((at(z) - below).abs() < 3e-5, "{z}: {}", at(z));
        }
        assert!(upper.is_sorted());
    }

    #[test]
    fn stalls_come_as_poisson_says() {
        let mut rng = Rng::new(3);
        let counts: Vec<f64> = (0..20_000).map(|_| poisson(&mut rng, STALLS_MEAN) as f64).collect();
        let mean = counts.iter().sum::<f64>() / 20_000.0;
        let variance = counts.iter().map(|c| (c - mean).powi(2)).sum::<f64>() / 20_000.0;
        // Five standard errors.
        assert!((mean - 6.0).abs() < 0.087, "{mean}");
        assert!((variance - 6.0).abs() < 0.32, "{variance}");
    }

    #[test]
    fn body_and_stalls_are_where_they_are_said_to_be() {
        let model = Stalls::new();
        let merged = Latencies::merged(&model.blocks(&mut Rng::new(8), 100));
        let at = |q: f64| {
            let quantile = Quantile::new(q).expect("a quantile");
            merged.quantile(LatencyKind::Response, quantile).expect("no failures").as_ms_f64()
        };
        assert!((at(0.5) / 5.0 - 1.0).abs() < 0.02, "{}", at(0.5));
        // The body alone has 16.0 and 23.4 ms here.
        assert!((18.0..23.0).contains(&at(0.99)), "{}", at(0.99));
        assert!((80.0..120.0).contains(&at(0.999)), "{}", at(0.999));
    }
}

//! Factors on the service times of each server: servers of different speed.
//!
//! A service time is the product of three: the time that is drawn for each execution, the factor of the request (on
//! whatever server it is executed), and the factor of the server (for whatever request).

use crate::distribution::{Distribution, FACTOR_MAX};
use curtail_config::Section;
use curtail_units::Rng;

/// Minimum factor: a server of a thousand times the usual speed.
const FACTOR_MIN: f64 = 0.001;

/// The factors on the service times of the servers.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerFactors {
    /// The factors by number of the server; further servers begin with the first factor again. Empty: all 1.
    Listed(Vec<f64>),
    /// Drawn once for each server.
    Drawn(Distribution<f64>),
}

impl ServerFactors {
    /// Equal servers.
    pub const ONE: Self = Self::Listed(Vec::new());

    /// Reads the keys `server_factors` and `server_factor`; [`None`] when both are absent.
    pub fn read(s: &mut Section<'_>) -> Option<Self> {
        let listed: Vec<f64> = s.values(
            "server_factors",
            "Factors on the service times of the servers, in their order; further servers begin with the first \
            factor again.",
        );
        if let Some(nth) = listed.iter().position(|f| !(FACTOR_MIN..=FACTOR_MAX).contains(f)) {
            let text = format!("expected a number from {FACTOR_MIN} to {FACTOR_MAX}");
            s.error(&format!("server_factors[{nth}]"), text);
        }
        let drawn = s.optional_section(
            "server_factor",
            "Factor on the service times of a server, drawn once for each server.",
            Distribution::read,
        );
        if !listed.is_empty() && drawn.is_some() {
            s.error("server_factors", "expected either this or server_factor");
        }
        drawn.map(Self::Drawn).or((!listed.is_empty()).then_some(Self::Listed(listed)))
    }

    /// The factors of `servers` servers, drawn from `rng`, the generator of the run's seed.
    #[must_use]
    pub fn of_servers(&self, servers: u32, rng: &Rng) -> Vec<f64> {
        let rng = rng.split("server_factors");
        let servers = 0..u64::from(servers);
        match self {
            Self::Listed(factors) if factors.is_empty() => servers.map(|_| 1.0).collect(),
            Self::Listed(factors) => {
                factors.iter().copied().cycle().take(servers.count()).collect()
            }
            Self::Drawn(distribution) => {
                let draw =
                    |nth| distribution.draw_factor(&mut rng.split_index(nth)).max(FACTOR_MIN);
                servers.map(draw).collect()
            }
        }
    }

    /// The mean speed of `servers` servers, where a server with the factor 1 has the speed 1. For drawn factors, it is
    /// the speed of a server with the mean factor.
    #[must_use]
    pub fn mean_speed(&self, servers: u32) -> f64 {
        match self {
            Self::Listed(factors) if factors.is_empty() => 1.0,
            Self::Listed(factors) => {
                let speeds = factors.iter().cycle().take(servers as usize).map(|f| 1.0 / f);
                speeds.sum::<f64>() / f64::from(servers)
            }
            Self::Drawn(distribution) => 1.0 / distribution.mean_factor(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ServerFactors;
    use crate::distribution::Distribution;
    use curtail_units::Rng;

    #[test]
    fn listed_factors_repeat_and_drawn_ones_do_not_depend_on_the_number_of_servers() {
        let listed = ServerFactors::Listed(vec![1.0, 2.0, 4.0]);
        assert_eq!(listed.of_servers(5, &Rng::new(1)), [1.0, 2.0, 4.0, 1.0, 2.0]);
        // (1 + 1/2 + 1/4 + 1 + 1/2) / 5
        assert!((listed.mean_speed(5) - 0.65).abs() < 1e-12);
        assert_eq!(ServerFactors::ONE.of_servers(2, &Rng::new(1)), [1.0, 1.0]);
        let drawn = ServerFactors::Drawn(Distribution::Lognormal { median: 1.0, sigma: 0.5 });
        let (few, many) = (drawn.of_servers(3, &Rng::new(1)), drawn.of_servers(9, &Rng::new(1)));
        assert_eq!(few, many[..3]);
        assert!(few[0] != few[1]);
        assert!((drawn.mean_speed(9) - (-0.125_f64).exp()).abs() < 1e-12);
    }
}

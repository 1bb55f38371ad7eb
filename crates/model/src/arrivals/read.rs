//! The keys of arrivals: `{load_ratio: 0.5, bursts: {…}, rate_changes: […]}`.

use super::{Arrivals, Bursts, RATES, Rate, RateChange, RateCurve, Spacing};
use crate::distribution::Distribution;
use curtail_config::Section;
use curtail_units::Duration;

/// Minimum duration of what repeats; shorter ones change nothing but the time to simulate.
const PERIOD_MIN: Duration = Duration::from_us(1);

/// Maximum factor on a rate.
const FACTOR_MAX: f64 = 1e6;

impl Arrivals {
    /// Reads the keys of arrivals; absent keys have the values of `base`, if there is one.
    pub fn read(s: &mut Section<'_>, base: Option<&Self>) -> Self {
        let spacing = Spacing::read(s, base.map_or(Spacing::Poisson, |base| base.spacing));
        let load = s
            .field("load_ratio", "Load as a share of the servers' capacity; may exceed 1.")
            .range(0.0001..=100.0)
            .optional();
        let rate = s
            .field("requests_per_second", "Requests per second, on average.")
            .range(RATES)
            .optional();
        let rate = match (load, rate) {
            (Some(load), None) => Rate::Load(load),
            (None, Some(rate)) => Rate::PerSecond(rate),
            (None, None) if base.is_some() => base.map_or(Rate::Load(1.0), |base| base.rate),
            _ => {
                s.error("load_ratio", "expected either this or requests_per_second");
                Rate::Load(1.0)
            }
        };
        let bursts = base.and_then(|base| base.bursts.clone());
        let bursts = s.switch("bursts", BURSTS, bursts, Bursts::read);
        let curve = RateCurve::read(s, base.map(|base| &base.curve));
        Self { spacing, rate, bursts, curve }
    }
}

const BURSTS: &str = "Random times with a higher rate. The mean rate is unchanged: between bursts, the rate is lower.";

impl Bursts {
    fn read(s: &mut Section<'_>) -> Self {
        let bursts = Self {
            every: s.section(
                "every",
                "Time from the end of a burst to the next.",
                Distribution::read,
            ),
            lasts: s.section("lasts", "Duration of a burst.", Distribution::read),
            rate_factor: s
                .field("rate_factor", "Rate in a burst, divided by the rate between bursts.")
                .range(1.0..=FACTOR_MAX)
                .required(),
        };
        for (key, mean_ns) in [("every", bursts.every.mean_ns()), ("lasts", bursts.lasts.mean_ns())]
        {
            if mean_ns < PERIOD_MIN.as_ns_f64() {
                let mean = Duration::from_ns_f64(mean_ns);
                s.error(
                    key,
                    format!("the mean {mean} is too short: expected at least {PERIOD_MIN}"),
                );
            } else if mean_ns.is_infinite() {
                s.error(key, "there is no mean duration: expected a distribution with a mean");
            }
        }
        bursts
    }
}

impl RateCurve {
    fn read(s: &mut Section<'_>, base: Option<&Self>) -> Self {
        let changes = s.list(
            "rate_changes",
            "Changes of the rate at fixed times, in the order of their times.",
            |s| RateChange {
                at: s.field("at", "Time since the start, or since the last repetition.").required(),
                factor: s
                    .field(
                        "factor",
                        "Factor on the mean rate from then on; before the first change 1.",
                    )
                    .range(0.0..=FACTOR_MAX)
                    .required(),
            },
        );
        let repeats_every: Option<Duration> = s
            .field("repeats_every", "Time after which the rate changes begin again; absent: never.")
            .at_least(PERIOD_MIN)
            .optional();
        let base = base.cloned().unwrap_or_default();
        let curve = Self {
            changes: if changes.is_empty() { base.changes.clone() } else { changes },
            repeats_every: repeats_every.or(base.repeats_every),
        };
        if curve != base {
            curve.check(s);
        }
        curve
    }

    fn check(&self, s: &mut Section<'_>) {
        let Self { changes, repeats_every } = self;
        if let Some(nth) = changes.windows(2).position(|pair| pair[1].at <= pair[0].at) {
            let (key, before) = (format!("rate_changes[{}].at", nth + 1), changes[nth].at);
            s.error(
                &key,
                format!("expected a later time than that of the change before ({before})"),
            );
            return;
        }
        let Some(last) = changes.last() else {
            s.error("repeats_every", "there is nothing to repeat: expected rate_changes");
            return;
        };
        if let Some(period) = repeats_every.filter(|period| *period <= last.at) {
            let text =
                format!("{period} is too short: expected more than the last change ({})", last.at);
            s.error("repeats_every", text);
        } else if self.mean_factor() <= 0.0 {
            s.error(
                "rate_changes",
                "no request ever arrives in the end: expected a factor above 0",
            );
        }
    }
}

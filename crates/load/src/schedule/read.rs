//! The keys of a schedule.

use super::{LASTS_MAX, Phase, RATE_MAX, Schedule, Shape, Spacing};
use curtail_config::Section;
use curtail_units::Duration;

/// The lowest rate of a phase, in requests a second: one in about a day.
const RATE_MIN: f64 = 1e-5;

impl Schedule {
    /// Reads a schedule of phases.
    pub fn read(s: &mut Section<'_>) -> Self {
        let spacing = Spacing::read(s, Spacing::Poisson);
        let phases = s.list("phases", "Phases of the schedule, one after another.", Phase::read);
        if phases.is_empty() {
            s.error("phases", "there is none: expected at least one phase");
        }
        Self::Phases { phases, spacing }
    }
}

impl Phase {
    fn read(s: &mut Section<'_>) -> Self {
        let shape = s.cases("shape", "Rate over the phase.").default("constant", |c| {
            c.case("constant", "one rate.", |s| Shape::Constant {
                rate: rate(s, "rate", "Requests a second."),
            });
            c.case("ramp", "a linear change from one rate to another.", |s| Shape::Ramp {
                from: rate(s, "from", "Requests a second at the start."),
                to: rate(s, "to", "Requests a second at the end."),
            });
            c.case("bursts", "one rate, with bursts of requests at regular times.", |s| {
                Shape::Bursts {
                    rate: rate(s, "rate", "Requests a second between bursts."),
                    size: f64::from(
                        s.field("size", "Number of requests in a burst.")
                            .range(1..=1_000_000_u32)
                            .required(),
                    ),
                    every: s
                        .field(
                            "every",
                            "Time from one burst to the next. The first burst is at the start of the phase.",
                        )
                        .range(Duration::from_ms(1)..=LASTS_MAX)
                        .required(),
                }
            });
        });
        let lasts = s
            .field("lasts", "Duration of the phase.")
            .range(Duration::from_ms(1)..=LASTS_MAX)
            .required();
        Self { shape, lasts }
    }
}

fn rate(s: &mut Section<'_>, key: &'static str, doc: &'static str) -> f64 {
    s.field(key, doc).range(RATE_MIN..=RATE_MAX).required()
}

//! Latency against throughput: one load at increasing rates, up to the knee ([`curtail_load::knee`]).
//!
//! Each rate is an arm of the results. A rate at which the generator was too late ends the sweep.

use crate::session::{Session, SessionProgress};
use crate::{Load, Stop};
use curtail_http::clock::Clock;
use curtail_load::knee::{Knee, Search};
use curtail_load::schedule::Spacing;
use curtail_load::{Latencies, Schedule, Slot, lag};
use curtail_report::results::{Arm, Block, Results, State};
use curtail_units::Duration;
use std::io;
use std::sync::Arc;

/// A sweep.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Name, command line, seed and warm-up; the sweep makes the arms.
    pub session: Session,
    /// The load, whose rates the search chooses.
    pub load: Load,
    /// Duration of the measurement at each rate.
    pub lasts: Duration,
    /// The spacing of requests.
    pub spacing: Spacing,
}

/// The result of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepOutcome {
    /// Each rate as an arm, from the lowest to the highest.
    pub results: Results,
    /// The knee.
    pub knee: Knee,
    /// The reason why the sweep ended before the knee was known, if it did.
    pub cut_short: Option<String>,
}

impl Sweep {
    /// Measures at one rate after the other; `on_progress` gets the latest figures, with the rate.
    ///
    /// # Errors
    /// When the system gives no thread or no timer.
    pub fn run(
        &self,
        mut search: Search,
        stop: &Stop,
        mut on_progress: impl FnMut(f64, SessionProgress, &Slot) + Send,
    ) -> io::Result<SweepOutcome> {
        let clock = Clock::start();
        let empty = Session { arms: Vec::new(), ..self.session.clone() };
        let mut results = empty.empty_results(clock);
        let mut cut_short = None;
        while let Some(rate) = search.next() {
            let session = Session { arms: vec![self.arm(rate)], blocks: 1, ..self.session.clone() };
            let on_progress =
                |progress: SessionProgress, slot: &Slot| on_progress(rate, progress, slot);
            let measured = session.run_with_hooks(&mut (), clock, stop, on_progress)?;
            let seen = Latencies::merged(&measured.of_arm(0));
            append(&mut results, measured);
            if stop.is_stopped() {
                cut_short = Some(format!("interrupted at {rate:.0} requests/s"));
                break;
            }
            if let Some(late) = lag::excessive(&seen) {
                cut_short = Some(format!("at {rate:.0} requests/s {late}"));
                break;
            }
            if let Err(too_few) = search.measured(&seen) {
                cut_short = Some(format!(
                    "{} at {rate:.0} requests/s is too short ({too_few})",
                    self.lasts
                ));
                break;
            }
        }
        results.state = if stop.is_stopped() {
            State::Partial { why: cut_short.clone().unwrap_or_default() }
        } else {
            // A rate that the generator could not send ends the sweep; it voids no arm.
            State::Complete
        };
        sort_by_rate(&mut results);
        Ok(SweepOutcome { results, knee: search.knee(), cut_short })
    }

    fn arm(&self, rate: f64) -> (Arm, Load) {
        let arm = Arm {
            name: format!("{rate:.0}/s"),
            about: format!("{} at {rate:.0} requests/s", self.load.target),
            rate: Some(rate),
        };
        let schedule = Arc::new(Schedule::constant(rate, self.lasts, self.spacing));
        (arm, Load { schedule, threads: crate::threads_for(rate), ..self.load.clone() })
    }
}

/// Adds the results of one more rate, measured on the same clock.
fn append(results: &mut Results, mut more: Results) {
    let nth = results.arms.len();
    results.arms.append(&mut more.arms);
    results.series = more.series;
    results.shares = more.shares;
    results.blocks.extend(more.blocks.into_iter().map(|block| Block { arm: nth, ..block }));
    results.events.append(&mut more.events);
}

fn sort_by_rate(results: &mut Results) {
    let rate = |arm: &Arm| arm.rate.unwrap_or(0.0);
    let mut order: Vec<usize> = (0..results.arms.len()).collect();
    order.sort_by(|one, other| rate(&results.arms[*one]).total_cmp(&rate(&results.arms[*other])));
    results.arms = order.iter().map(|nth| results.arms[*nth].clone()).collect();
    for block in &mut results.blocks {
        block.arm = order.iter().position(|nth| *nth == block.arm).unwrap_or(0);
    }
}

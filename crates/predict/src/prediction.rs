//! A prediction: what the fitted service does as it was recorded, and with each remedy.
//!
//! **Value**: the mean of a few runs of the fitted model, of the logarithm of each latency.
//! **Band**: where the latency of another run as long as the recording lies, 19 times in 20. The fitted model is drawn
//! anew from blocks of the recording, and simulated anew; the spread of these runs is that of one recording. The fit
//! and the run that it predicts both have this error, and the model itself has [`MODEL_ERROR`]: the band has the
//! deviation `√(2 × spread² + MODEL_ERROR²)`.
//! **Comparisons** are paired: run k of every remedy has the same blocks and the same random numbers.
//! If the intrinsic ratio is not known (the share of requests whose attempts take equally long), the band covers both extremes.
//! **Source**: Künsch, "The jackknife and the bootstrap for general stationary observations", 1989.
//! **Hurts when** changes of the service are longer than a block, a fortieth of the recording: the band is then too
//! narrow, as with every method that has seen too few of them.

use crate::break_even;
use crate::candidate::Candidate;
use crate::fit::Fit;
use crate::recommendation::{self, Recommendation};
use crate::recording::Recording;
use crate::world::{QUANTILES, Simulated, simulate};
use curtail_load::compare::student;
use curtail_threads::run_on_all_processors;
use curtail_units::{Duration, Rng, map_tasks};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of runs of the model as fitted.
const FITTED_RUNS: usize = 4;

/// The number of runs of the model drawn anew from blocks.
const REDRAWN_RUNS: usize = 16;

/// Maximum number of requests of a recording that is predicted.
pub const REQUESTS_MAX: usize = 100_000;

/// The standard deviation of what chance does not explain of the logarithm of predicted / measured p99, by maximum
/// likelihood over 88 settings of `bench/predictions --seconds 240 --seed 7` (0.027).
const MODEL_ERROR: f64 = 0.03;

/// The difference between model and measurement at p50 and p99 up to which the model reproduces the recording.
const DIFFERENCE_MAX: f64 = 0.1;

/// The most that chance can explain, as a logarithm: that of 1.25. A recording that is noisier checks nothing.
const BY_CHANCE_MAX: f64 = 0.223_144;

/// A latency in nanoseconds, or a ratio of two latencies, with its 95 % band; infinite where requests fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LatencyBand {
    /// The latency or the ratio.
    pub value: f64,
    /// The ends of the band.
    pub band: (f64, f64),
}

/// The service with one remedy.
#[derive(Clone, Debug)]
pub struct RemedyPrediction {
    /// The remedy.
    pub candidate: Candidate,
    /// Latencies at p50, p99 and p99.9.
    pub latencies: [LatencyBand; QUANTILES.len()],
    /// The p99 as a multiple of that without the remedy.
    pub p99_ratio: LatencyBand,
    /// Executions that servers begin beyond one for each request, as a share of the requests.
    pub extra_requests: f64,
    /// Attempts that are sent beyond one for each request, as a share of the requests. Those that are cancelled before
    /// their turn are not executed.
    pub extra_sent: f64,
    /// The break-even load as a multiple of the recorded load: from it on, the remedy makes p99 worse. Absent: not up to
    /// the largest load that was tried, or not known.
    pub break_even_load_ratio: Option<f64>,
}

/// The prediction for a service.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The fit.
    pub fit: Fit,
    /// The seed of all randomness.
    pub seed: u64,
    /// The number of recorded requests.
    pub requests: usize,
    /// The recorded latencies at p50, p99 and p99.9; absent: failed requests.
    pub measured: [Option<Duration>; QUANTILES.len()],
    /// The service as it was recorded.
    pub modelled: RemedyPrediction,
    /// How far the latencies of a recording with the same arrivals and slow periods differ from the modelled ones by
    /// chance, as logarithms of their ratios: 95 % of recordings differ by less.
    pub by_chance: [f64; QUANTILES.len()],
    /// The service with each remedy.
    pub remedies: Vec<RemedyPrediction>,
    /// The recommendation.
    pub recommendation: Recommendation,
    /// The least number of replicas that keeps the present p99 for certain with the recommended remedy, if that is fewer.
    pub replicas_needed: Option<u32>,
}

/// A simulation to run.
struct Task<'t> {
    candidate: &'t Candidate,
    candidate_index: usize,
    /// The index of the assumption on the intrinsic ratio.
    assumption: usize,
    run: usize,
}

/// Nobody waits for the prediction any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PredictionCancelled;

impl Prediction {
    /// Predicts the service of `recording` with every remedy; `fit` is the fit of the recording, which has at most
    /// [`REQUESTS_MAX`] requests ([`Recording::shorten`]).
    #[must_use]
    pub fn new(recording: &Recording, fit: Fit, seed: u64) -> Self {
        let candidates = Candidate::all(&fit);
        Self::of(recording, fit, candidates, seed)
    }

    /// As [`new`](Self::new), with these `candidates` alone.
    ///
    /// # Panics
    /// Never: nobody cancels it.
    #[must_use]
    pub fn of(recording: &Recording, fit: Fit, candidates: Vec<Candidate>, seed: u64) -> Self {
        let predicted =
            Self::unless_cancelled(recording, fit, candidates, seed, &AtomicBool::new(false));
        predicted.expect("nobody cancels it")
    }

    /// As [`of`](Self::of); [`None`] soon after `is_cancelled` is set.
    #[must_use]
    pub fn unless_cancelled(
        recording: &Recording,
        fit: Fit,
        mut candidates: Vec<Candidate>,
        seed: u64,
        is_cancelled: &AtomicBool,
    ) -> Option<Self> {
        candidates.insert(0, Candidate::none(&fit));
        let simulations = Simulations { fit: &fit, seed, is_cancelled };
        let runs = simulations.run_all(&candidates).ok()?;
        let present = &runs[0];
        let predicted = candidates.iter().zip(&runs).map(|(candidate, runs)| RemedyPrediction {
            candidate: candidate.clone(),
            latencies: std::array::from_fn(|nth| {
                over_assumptions(runs.iter().map(|runs| runs.latency(nth)))
            }),
            p99_ratio: p99_ratio(runs, present),
            extra_requests: mean_of_fitted(runs, |run| run.extra_requests),
            extra_sent: mean_of_fitted(runs, |run| run.extra_sent),
            break_even_load_ratio: None,
        });
        let by_chance = std::array::from_fn(|nth| by_chance(present, nth));
        // The service as it was recorded comes first.
        let mut remedies: Vec<RemedyPrediction> = predicted.collect();
        let modelled = remedies.remove(0);
        // Without the intrinsic ratio, no load and no number of replicas is known to be enough.
        if fit.separates_waiting() && fit.intrinsic.is_known() {
            break_even::find_loads(&simulations, &mut remedies).ok()?;
        }
        let recommendation = recommendation::choose(&fit, &modelled, &remedies);
        let replicas_needed = match recommendation.remedy {
            Some(nth) => {
                break_even::replicas_needed(&simulations, &remedies[nth].candidate, present).ok()?
            }
            None => None,
        };
        let this = Self {
            seed,
            requests: recording.request_count(),
            measured: QUANTILES.map(|quantile| recording.latency_at(quantile)),
            modelled,
            by_chance,
            remedies,
            recommendation,
            replicas_needed,
            fit,
        };
        Some(this.unless_different())
    }

    /// The prediction; without a recommendation if the model does not reproduce the recording.
    fn unless_different(mut self) -> Self {
        if let Some(difference) = self.difference() {
            let why = format!("the model does not reproduce the recording: {difference}");
            self.recommendation = Recommendation { remedy: None, why };
            self.replicas_needed = None;
        }
        self
    }

    /// Why the model does not reproduce the recording; [`None`] if it does: within a tenth, or by chance (another
    /// recording with the same arrivals and slow periods would differ as much); p99.9 also within its band.
    #[must_use]
    pub fn difference(&self) -> Option<String> {
        let names = ["p50", "p99", "p99.9"];
        let all = names.into_iter().zip(self.measured).zip(self.modelled.latencies);
        let mut wrong = Vec::new();
        for (nth, ((name, measured), modelled)) in all.enumerate() {
            let measured = measured.map_or(f64::INFINITY, Duration::as_ns_f64);
            let difference = (modelled.value / measured - 1.0).abs();
            let (low, high) = modelled.band;
            let is_in_band = nth == 2 && low <= measured && measured <= high;
            let by_chance = self.by_chance[nth];
            let is_by_chance = (modelled.value / measured).ln().abs() <= by_chance;
            let is_close = difference <= DIFFERENCE_MAX
                || measured == modelled.value
                || (is_by_chance && by_chance <= BY_CHANCE_MAX)
                || is_in_band;
            if !is_close {
                let percent = (modelled.value / measured - 1.0) * 100.0;
                let unknown = match is_by_chance {
                    true => {
                        ", and the recording has too few slow periods to tell whether by chance"
                    }
                    false => "",
                };
                wrong.push(format!("{name} is off by {percent:+.0} %{unknown}"));
            }
        }
        (!wrong.is_empty()).then(|| wrong.join(", "))
    }
}

/// The runs of a candidate under one assumption on the intrinsic ratio.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs {
    fitted: Vec<Simulated>,
    redrawn: Vec<Simulated>,
}

impl Runs {
    fn latency(&self, nth: usize) -> LatencyBand {
        let of = |run: &Simulated| run.latencies_ns[nth].ln();
        with_band(self.fitted.iter().map(of), self.redrawn.iter().map(of))
    }

    /// A latency as a multiple of that of the `other` runs, run by run.
    fn ratio(&self, other: &Self, nth: usize) -> LatencyBand {
        let of = |(run, other): (&Simulated, &Simulated)| {
            let (own, other) = (run.latencies_ns[nth], other.latencies_ns[nth]);
            if own == other { 0.0 } else { own.ln() - other.ln() }
        };
        with_band(
            self.fitted.iter().zip(&other.fitted).map(of),
            self.redrawn.iter().zip(&other.redrawn).map(of),
        )
    }
}

/// The mean of a value over the fitted runs of all assumptions.
fn mean_of_fitted(runs: &[Runs], of: impl Fn(&Simulated) -> f64) -> f64 {
    let fitted = runs.iter().flat_map(|runs| &runs.fitted);
    fitted.clone().map(of).sum::<f64>() / fitted.count() as f64
}

/// The mean of the logarithms of the fitted runs, with the spread of the redrawn ones.
fn with_band(fitted: impl Iterator<Item = f64>, redrawn: impl Iterator<Item = f64>) -> LatencyBand {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (fitted, redrawn): (Vec<f64>, Vec<f64>) = (fitted.collect(), redrawn.collect());
    let value = mean(&fitted);
    let spread_around = mean(&redrawn);
    let squares = redrawn.iter().map(|log| (log - spread_around).powi(2)).sum::<f64>();
    let variance = squares / (redrawn.len() as f64 - 1.0);
    let deviation = MODEL_ERROR.mul_add(MODEL_ERROR, 2.0 * variance).sqrt();
    let half = student::critical(0.05, redrawn.len() as f64 - 1.0) * deviation;
    if !value.is_finite() || !half.is_finite() {
        // Some runs fail: there is no upper end.
        let low = fitted.iter().chain(&redrawn).copied().fold(f64::INFINITY, f64::min);
        return LatencyBand { value: value.exp(), band: (low.exp(), f64::INFINITY) };
    }
    LatencyBand { value: value.exp(), band: ((value - half).exp(), (value + half).exp()) }
}

/// The half-width of the 95 % prediction interval of one more fitted run, around the mean of those of all assumptions.
/// Without second attempts, the assumptions make no difference.
fn by_chance(present: &[Runs], nth: usize) -> f64 {
    let logs = present.iter().flat_map(|runs| &runs.fitted).map(|run| run.latencies_ns[nth].ln());
    let logs: Vec<f64> = logs.collect();
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let squares = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
    let deviation = (squares / (count - 1.0)).sqrt();
    let half = student::critical(0.05, count - 1.0) * deviation * (1.0 + 1.0 / count).sqrt();
    // Failed requests are no chance.
    if half.is_finite() { half } else { 0.0 }
}

/// The values under several assumptions as one: their geometric mean, with a band that covers all bands.
fn over_assumptions(all: impl Iterator<Item = LatencyBand>) -> LatencyBand {
    let all: Vec<LatencyBand> = all.collect();
    let value = all.iter().map(|one| one.value.ln()).sum::<f64>() / all.len() as f64;
    let low = all.iter().map(|one| one.band.0).fold(f64::INFINITY, f64::min);
    let high = all.iter().map(|one| one.band.1).fold(0.0, f64::max);
    LatencyBand { value: value.exp(), band: (low, high) }
}

/// The p99 as a multiple of the present one.
pub(crate) fn p99_ratio(runs: &[Runs], present: &[Runs]) -> LatencyBand {
    over_assumptions(runs.iter().zip(present).map(|(runs, present)| runs.ratio(present, 1)))
}

/// The simulations of a fit, as long as somebody waits for them.
pub(crate) struct Simulations<'s> {
    pub(crate) fit: &'s Fit,
    pub(crate) seed: u64,
    pub(crate) is_cancelled: &'s AtomicBool,
}

impl Simulations<'_> {
    /// Simulates candidates: for each, the runs under each assumption on the intrinsic ratio.
    pub(crate) fn run_all(
        &self,
        candidates: &[Candidate],
    ) -> Result<Vec<Vec<Runs>>, PredictionCancelled> {
        let fit = self.fit;
        let rng = Rng::new(self.seed).split("predict");
        let redraw = |run| fit.redrawn(&mut rng.split("blocks").split_index(run as u64));
        let fits: Vec<Cow<'_, Fit>> = (0..FITTED_RUNS + REDRAWN_RUNS)
            .map(|run| match run < FITTED_RUNS {
                true => Cow::Borrowed(fit),
                false => Cow::Owned(redraw(run)),
            })
            .collect();
        let assumptions: &[f64] = if fit.intrinsic.is_known() { &[0.0] } else { &[0.0, 1.0] };
        let mut tasks = Vec::new();
        for (candidate_index, candidate) in candidates.iter().enumerate() {
            for assumption in 0..assumptions.len() {
                let runs = 0..FITTED_RUNS + REDRAWN_RUNS;
                tasks.extend(runs.map(|run| Task { candidate, candidate_index, assumption, run }));
            }
        }
        let done = self.in_parallel(&tasks, |task| {
            let Task { candidate, assumption, run, .. } = *task;
            let mut rng = rng.split("run").split_index(run as u64);
            let intrinsic_ratio = if fit.intrinsic.is_known() {
                fit.intrinsic.draw(&mut rng, run >= FITTED_RUNS)
            } else {
                assumptions[assumption]
            };
            simulate(&fits[run], candidate, intrinsic_ratio, rng.next_u64())
        })?;
        let mut runs = vec![vec![Runs::default(); assumptions.len()]; candidates.len()];
        for (task, simulated) in tasks.iter().zip(done) {
            let runs = &mut runs[task.candidate_index][task.assumption];
            let is_fitted = task.run < FITTED_RUNS;
            if is_fitted { runs.fitted.push(simulated) } else { runs.redrawn.push(simulated) }
        }
        Ok(runs)
    }

    /// Runs tasks on all processors; the results are in the order of the tasks.
    pub(crate) fn in_parallel<T: Sync, R: Send>(
        &self,
        tasks: &[T],
        run: impl Fn(&T) -> R + Sync,
    ) -> Result<Vec<R>, PredictionCancelled> {
        let run = |task| (!self.is_cancelled.load(Ordering::Relaxed)).then(|| run(task));
        let done = map_tasks(run_on_all_processors, tasks.iter().collect(), run);
        done.into_iter().collect::<Option<_>>().ok_or(PredictionCancelled)
    }
}

#[cfg(test)]
mod tests;

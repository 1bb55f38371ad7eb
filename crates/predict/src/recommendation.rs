//! The recommendation: which remedy to switch on, or why none.

use crate::core_limit::CoreLimit;
use crate::fit::Fit;
use crate::prediction::RemedyPrediction;
use curtail_text::numbers::{latency, percent};
use curtail_units::Duration;

/// The recommendation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recommendation {
    /// The index of the recommended remedy in [`Prediction::remedies`](crate::Prediction::remedies); [`None`]: no remedy.
    pub remedy: Option<usize>,
    /// The reason, as a sentence.
    pub why: String,
}

/// The least gain of p99 that is worth a change.
const GAIN_MIN: f64 = 0.03;

/// The difference of p99 up to which the remedy with fewer extra requests is better: a model that reproduces the recording
/// may be wrong by as much.
const CLOSE_MAX: f64 = 0.1;

/// A utilization from which on waiting dominates.
const BUSY: f64 = 0.8;

/// The intrinsic ratio from which on a tail comes from the requests.
const INTRINSIC_MIN: f64 = 0.5;

/// Chooses the remedy with the lowest p99, of those whose gain is certain; among remedies that are hardly different, the
/// one with the fewest extra requests.
pub(crate) fn choose(
    fit: &Fit,
    present: &RemedyPrediction,
    remedies: &[RemedyPrediction],
) -> Recommendation {
    let policies = remedies.iter().enumerate().filter(|(_, one)| one.candidate.is_policy(fit));
    let gains = |one: &RemedyPrediction| one.p99_ratio.band.1 < 1.0 - GAIN_MIN;
    let certain: Vec<_> = policies.clone().filter(|(_, one)| gains(one)).collect();
    let p99 = |one: &RemedyPrediction| one.latencies[1].value;
    let best = certain.iter().map(|(_, one)| p99(one)).fold(f64::INFINITY, f64::min);
    let close = certain.iter().filter(|(_, one)| p99(one) <= best * (1.0 + CLOSE_MAX));
    let cheapest = close.min_by(|a, b| a.1.extra_requests.total_cmp(&b.1.extra_requests));
    if let Some((nth, chosen)) = cheapest {
        let mut why = gain(present, chosen);
        if chosen.candidate.policy.tie.is_some() {
            why += "; without a leaf in front of each replica, a tie doubles all requests instead";
        }
        return Recommendation { remedy: Some(*nth), why };
    }
    let might_gain = policies.clone().any(|(_, one)| one.p99_ratio.band.0 < 1.0 - GAIN_MIN);
    Recommendation { remedy: None, why: why_none(fit, might_gain) }
}

fn gain(present: &RemedyPrediction, chosen: &RemedyPrediction) -> String {
    let text = |ns: f64| latency(Duration::from_ns_f64(ns));
    let (from, to) = (present.latencies[1].value, chosen.latencies[1]);
    format!(
        "{} would cut p99 from {} to {} ({} to {}) for {} more requests",
        chosen.candidate.name,
        text(from),
        text(to.value),
        text(to.band.0),
        text(to.band.1),
        percent(chosen.extra_requests.max(0.0)),
    )
}

fn why_none(fit: &Fit, might_gain: bool) -> String {
    if !fit.is_policy_known && fit.has_further_attempts {
        return "the recording has hedges or retries, and not their policy, so it does not show what they save: use a \
                holdout, or predict from a journal"
            .to_owned();
    }
    if fit.intrinsic.is_known() && fit.intrinsic.interval.0 >= INTRINSIC_MIN {
        return format!(
            "do not hedge: this tail comes from the requests themselves; {} of the slow ones take equally long on every replica",
            percent(fit.intrinsic.ratio)
        );
    }
    if let Some(utilization) = fit.utilization().filter(|utilization| *utilization > BUSY) {
        return format!(
            "do not hedge: the replicas are {} busy, so more requests make all of them wait longer; add {}",
            percent(utilization),
            match fit.core_limit {
                None => "replicas",
                Some(CoreLimit::PerReplica(_)) => "cores or replicas",
                Some(CoreLimit::AllReplicas(_)) => "cores, or replicas on another machine",
            }
        );
    }
    if might_gain && !fit.intrinsic.is_known() {
        return "not known: if the slow requests are slow on every replica, nothing here helps; a recording with hedges \
                for a share of the requests, or spans with sizes, would show it"
            .to_owned();
    }
    "no remedy would cut p99 by more than its band".to_owned()
}

//! The report as JSON: `curtail.predict/1`. A latency among failed requests is `null`, and so is the upper end of a band
//! that the recording does not bound.

use crate::core_limit::CoreLimit;
use crate::fit::{Fit, Note};
use crate::intrinsic::Evidence;
use crate::prediction::{Prediction, RemedyPrediction};
use curtail_units::Duration;
use serde_json::{Value, json};

const SCHEMA: &str = "curtail.predict/1";

pub(super) fn render(prediction: &Prediction) -> Value {
    let Prediction { fit, modelled, recommendation, .. } = prediction;
    let [p50, p99, p999] = prediction.measured.map(|latency| latency.map(Duration::as_ms_f64));
    let chosen = recommendation.remedy.map(|nth| &prediction.remedies[nth]);
    let timeouts = prediction.timeouts().map(|timeouts| {
        json!({
            "request_ms": timeouts.request.as_ms_f64(),
            "backoff_ms": timeouts.backoff.as_ms_f64(),
            "backoff_max_ms": timeouts.backoff_max.as_ms_f64(),
        })
    });
    json!({
        "schema": SCHEMA,
        "source": fit.source,
        "seed": prediction.seed,
        "requests": prediction.requests,
        "measured": { "p50_ms": p50, "p99_ms": p99, "p999_ms": p999 },
        "modelled": latencies(modelled),
        "reproduced": prediction.difference().is_none(),
        "difference": prediction.difference(),
        "intrinsic_ratio": fit.intrinsic.is_known().then_some(fit.intrinsic.ratio),
        "intrinsic": {
            "interval": fit.intrinsic.interval,
            "evidence": match fit.intrinsic.evidence {
                Evidence::Attempts { .. } => "attempts",
                Evidence::Kinds { .. } => "kinds",
                Evidence::Given => "given",
                Evidence::Nothing => "nothing",
            },
        },
        "model": model(fit),
        "notes": fit.notes.iter().map(|Note { part, text }| json!({ "part": part, "text": text }))
            .collect::<Vec<Value>>(),
        "remedies": prediction.remedies.iter().map(|one| remedy(fit, one)).collect::<Vec<Value>>(),
        "recommended": chosen.map(|chosen| &chosen.candidate.name),
        "why": recommendation.why,
        "replicas_needed": prediction.replicas_needed,
        "timeouts": timeouts,
    })
}

fn model(fit: &Fit) -> Value {
    let (paused, slower) = fit.slow_shares;
    json!({
        "requests_per_second": fit.requests_per_second(),
        "duration_s": fit.span.as_secs_f64(),
        "shards": fit.shards,
        "calls": fit.calls,
        "replicas": fit.replicas,
        "concurrency": fit.concurrency,
        "cores": fit.core_limit.and_then(CoreLimit::per_replica),
        "shared_cores": fit.core_limit.and_then(CoreLimit::all_replicas),
        "cancelled": fit.cancelled.name(),
        "utilization_ratio": fit.utilization(),
        "mean_work_ms": fit.mean_work().as_ms_f64(),
        "message_delay_ms": fit.message_delay.as_ms_f64(),
        "failed_ratio": fit.failed_ratio,
        "slow_periods": fit.slow_periods.len(),
        "stopped_ratio": paused,
        "slower_ratio": slower,
    })
}

fn latencies(one: &RemedyPrediction) -> Value {
    let ms = |ns: f64| ns.is_finite().then_some(ns / 1e6);
    let [p50, p99, p999] = one.latencies;
    json!({
        "p50_ms": ms(p50.value),
        "p99_ms": ms(p99.value),
        "p99_band_ms": (ms(p99.band.0), ms(p99.band.1)),
        "p999_ms": ms(p999.value),
        "p50_band_ms": (ms(p50.band.0), ms(p50.band.1)),
        "p999_band_ms": (ms(p999.band.0), ms(p999.band.1)),
    })
}

fn remedy(fit: &Fit, one: &RemedyPrediction) -> Value {
    let mut value = latencies(one);
    let candidate = &one.candidate;
    let finite = |number: f64| number.is_finite().then_some(number);
    value["name"] = json!(candidate.name);
    value["p99_ratio"] = json!(finite(one.p99_ratio.value));
    value["p99_ratio_band"] = json!([finite(one.p99_ratio.band.0), finite(one.p99_ratio.band.1)]);
    value["extra_requests_ratio"] = json!(one.extra_requests);
    value["extra_sent_ratio"] = json!(one.extra_sent);
    value["attempts_worst"] = json!(candidate.policy.amplification().attempts_max);
    value["knee_load_ratio"] = json!(one.break_even_load_ratio);
    value["replicas"] = json!(candidate.replicas);
    value["load_ratio"] = json!(candidate.load_ratio);
    value["config"] = json!(candidate.is_policy(fit).then(|| candidate.yaml(fit)));
    value
}

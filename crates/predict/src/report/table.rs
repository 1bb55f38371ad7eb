//! The report as text: latencies in milliseconds, the recommendation with its configuration, and what was assumed.

use crate::core_limit::CoreLimit;
use crate::fit::{Fit, Note};
use crate::intrinsic::Evidence;
use crate::prediction::{LatencyBand, Prediction, RemedyPrediction};
use curtail_text::numbers::{counted, latency, ms, percent, percent_to, rate, short, thousands};
use curtail_text::{Columns, Left, Page, Right};
use curtail_units::Duration;

const NOTHING: &str = "–";

/// The meaning of the columns.
const LEGEND: &str = "band: 95 % band of p99; extra: executions beyond one a request; worst: maximum attempts of a request; \
                      even: break-even load, the multiple of the recorded load from which on the remedy makes p99 worse.";

pub(super) fn render(prediction: &Prediction) -> String {
    let mut page = Page::default();
    describe(&mut page, prediction);
    page.blank();
    let columns = Columns::new([Left(19)].into_iter().chain([7, 7, 16, 7, 7, 5, 4].map(Right)));
    let head = ["ms", "p50", "p99", "band", "p99.9", "extra", "worst", "even"];
    page.row(&columns, head);
    let [p50, p99, p999] = prediction.measured.map(|latency| latency.map_or(failed(), ms));
    page.row(&columns, ["measured", &p50, &p99, "", &p999]);
    for one in std::iter::once(&prediction.modelled).chain(&prediction.remedies) {
        page.row(&columns, cells(&prediction.fit, one));
    }
    page.wrapped("", LEGEND);
    page.blank();
    reproduction(&mut page, prediction);
    recommendation(&mut page, prediction);
    notes(&mut page, &prediction.fit);
    page.finish()
}

fn describe(page: &mut Page, prediction: &Prediction) {
    let fit = &prediction.fit;
    let requests = counted(prediction.requests as u64, "request");
    let (span, rate) = (short(fit.span.as_secs_f64(), 1), rate(fit.requests_per_second()));
    let about = format!("{requests} in {span} s, {rate} a second");
    page.wrapped("", &format!("{}: {about}", fit.source));
    let concurrency = fit.concurrency.map_or_else(
        || "concurrency limit not reached".to_owned(),
        |limit| format!("{limit} at once each"),
    );
    let cores = match fit.core_limit {
        None => String::new(),
        Some(CoreLimit::PerReplica(cores)) => format!(" with {} cores each", short(cores, 1)),
        Some(CoreLimit::AllReplicas(cores)) => format!(", which share {} cores", short(cores, 1)),
    };
    let busy = fit.utilization().map_or_else(String::new, |u| format!(", {} busy", percent(u)));
    let (paused, slower) = fit.slow_shares;
    let shards = match fit.shards {
        1 => String::new(),
        shards => format!("{} to {shards} shards of ", counted(fit.calls.into(), "call")),
    };
    page.wrapped(
        "",
        &format!(
            "{shards}{}{cores}, {concurrency}{busy}; mean work {}; paused {} of the time, at another pace {}",
            counted(fit.replicas.into(), "replica"),
            latency(fit.mean_work()),
            percent(paused),
            percent(slower),
        ),
    );
    page.wrapped("", &intrinsic_ratio(fit));
}

fn intrinsic_ratio(fit: &Fit) -> String {
    let (low, high) = fit.intrinsic.interval;
    let ratio = percent(fit.intrinsic.ratio);
    let interval = format!("{ratio} ({} to {})", percent(low), percent(high));
    let means = "of the slow requests take equally long on every replica";
    match fit.intrinsic.evidence {
        Evidence::Attempts { pairs } => {
            format!("{interval} {means}, by {} second attempts", thousands(pairs as u64))
        }
        Evidence::Kinds { pairs, .. } => {
            format!(
                "{interval} {means}, by {} slow requests of their kinds",
                thousands(pairs as u64)
            )
        }
        Evidence::Given => format!("{ratio} {means}, as given"),
        Evidence::Nothing => format!("unknown how many {means}"),
    }
}

fn failed() -> String {
    "failed".to_owned()
}

fn value(ns: f64) -> String {
    if ns.is_finite() { ms(Duration::from_ns_f64(ns)) } else { failed() }
}

fn band(LatencyBand { band: (low, high), .. }: LatencyBand) -> String {
    let high = if high.is_finite() { value(high) } else { "∞".to_owned() };
    format!("{} to {high}", value(low))
}

fn cells(fit: &Fit, one: &RemedyPrediction) -> [String; 8] {
    let [p50, p99, p999] = one.latencies;
    let break_even = one.break_even_load_ratio.map(|load| format!("×{}", short(load, 1)));
    let is_recorded = one.candidate.is_policy(fit) && one.candidate.policy == fit.policy;
    let name = if is_recorded { "modelled" } else { &one.candidate.name };
    [
        name.to_owned(),
        value(p50.value),
        value(p99.value),
        band(p99),
        value(p999.value),
        percent_to(one.extra_requests, 2),
        one.candidate.policy.amplification().attempts_max.to_string(),
        break_even.unwrap_or_else(|| NOTHING.to_owned()),
    ]
}

fn reproduction(page: &mut Page, prediction: &Prediction) {
    match prediction.difference() {
        None => page.wrapped("", "The model reproduces the recording."),
        Some(difference) => {
            let text = format!(
                "The model does NOT reproduce the recording: {difference}. Do not trust the figures above."
            );
            page.wrapped("", &text);
        }
    }
}

fn recommendation(page: &mut Page, prediction: &Prediction) {
    let recommendation = &prediction.recommendation;
    page.blank();
    let Some(chosen) = recommendation.remedy.map(|nth| &prediction.remedies[nth]) else {
        page.wrapped("", &format!("Recommended: nothing. {}", recommendation.why));
        page.wrapped("", "The keys of each remedy are in --format json (config).");
        return timeouts(page, prediction);
    };
    page.wrapped("", &format!("Recommended: {}", recommendation.why));
    if let Some(replicas) = prediction.replicas_needed {
        let keep = if replicas == 1 { "keeps" } else { "keep" };
        let all = prediction.fit.replicas;
        let text = format!("With it, {replicas} of {all} replicas {keep} today's p99.");
        page.wrapped("", &text);
    }
    page.blank();
    for line in chosen.candidate.yaml(&prediction.fit).lines() {
        page.wrapped("  ", line);
    }
    page.blank();
    timeouts(page, prediction);
}

fn timeouts(page: &mut Page, prediction: &Prediction) {
    if let Some(timeouts) = prediction.timeouts() {
        // The keys of a remedy have the recorded timeout, since a shorter one was not simulated.
        let shorter = match prediction.recommendation.remedy {
            Some(nth) => {
                let kept = prediction.remedies[nth].candidate.policy.timeout;
                format!(
                    "Not predicted: these latencies allow a timeout of {} instead of {kept}",
                    timeouts.request
                )
            }
            None => format!("These latencies allow a timeout of {}", timeouts.request),
        };
        let text = format!(
            "{shorter}; for retries, backoff {} and backoff_max {}.",
            timeouts.backoff, timeouts.backoff_max
        );
        page.wrapped("", &text);
    }
}

fn notes(page: &mut Page, fit: &Fit) {
    if fit.notes.is_empty() {
        return;
    }
    page.blank();
    page.line("Assumed or not fitted:");
    for Note { part, text } in &fit.notes {
        page.wrapped("  ", &format!("{part}: {text}"));
    }
}

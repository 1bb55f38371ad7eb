//! The holdout: a share of the requests that goes without hedges and ties, so that their effect is always measured.
//!
//! The draw is made once for each request of a client, before its calls, and passed on in the header
//! `curtail-holdout`. A proxy that receives the header obeys it and does not draw. Only requests that may be sent twice
//! are drawn and measured: no other request gets hedges or ties. A header of a client that is no trusted proxy is
//! obeyed and marked as chosen, and no proxy measures its request, because clients that choose their side would spoil
//! the comparison. In a block of a [switchback](crate::switchback), all requests are in the holdout, and not measured here.
//! A dry run is measured in the same way: each request counts on both sides, on that of the remedy with the time that a
//! hedge would have saved.
//! **Limits**: for each upstream with a holdout or a dry run, about a megabyte.

use crate::client::Client;
use crate::metrics::ResponseClass;
use crate::worker::Worker;
use curtail_http::clock::Clock;
use curtail_http::head::{Known, RequestHead};
use curtail_load::holdout::{Holdout as Measurement, PercentileEffect, PeriodEffects, Sides};
use curtail_policy::UpstreamConfig;
use curtail_text::numbers;
use curtail_units::{Duration, Instant, Ratio};
use serde_json::{Value, json};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The side of a request, and what decided it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draw {
    pub(crate) is_holdout: bool,
    pub(crate) by: DrawnBy,
}

/// What decided the side of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DrawnBy {
    /// A draw for this request, here or at a trusted proxy.
    Request,
    /// The block of a switchback in which it arrived: the remedies are off.
    Block,
    /// A client that is no trusted proxy.
    Client,
}

impl Draw {
    /// The side, if it was drawn for this request: whether it is the holdout.
    pub(crate) fn random_side(self) -> Option<bool> {
        (self.by == DrawnBy::Request).then_some(self.is_holdout)
    }

    fn from_header(value: &[u8]) -> Option<Self> {
        let (is_holdout, by) = match value {
            b"1" => (true, DrawnBy::Request),
            b"0" => (false, DrawnBy::Request),
            b"1;block" => (true, DrawnBy::Block),
            b"1;chosen" => (true, DrawnBy::Client),
            b"0;chosen" => (false, DrawnBy::Client),
            _ => return None,
        };
        Some(Self { is_holdout, by })
    }

    const fn header(self) -> &'static [u8] {
        match (self.by, self.is_holdout) {
            (DrawnBy::Request, true) => b"1",
            (DrawnBy::Request, false) => b"0",
            (DrawnBy::Block, _) => b"1;block",
            (DrawnBy::Client, true) => b"1;chosen",
            (DrawnBy::Client, false) => b"0;chosen",
        }
    }
}

/// Draws the side of a request, unless a proxy before this one has drawn it. `is_off`: a switchback is in a block without
/// remedies. `ratio` is the share of the holdout; [`None`]: there is no holdout here.
pub(crate) fn draw(
    worker: &Worker,
    client: &Client,
    head: &mut RequestHead,
    (is_off, ratio): (bool, Option<Ratio>),
) -> Option<Draw> {
    let given = head.fields.get(Known::CurtailHoldout).and_then(Draw::from_header);
    let draw = match given {
        Some(draw) if client.is_trusted => return Some(draw),
        // The proxies behind this one trust it, but not its client.
        Some(draw) => Draw { by: DrawnBy::Client, ..draw },
        None if is_off => Draw { is_holdout: true, by: DrawnBy::Block },
        None => Draw { is_holdout: worker.draw(ratio?), by: DrawnBy::Request },
    };
    head.fields.set(Known::CurtailHoldout, draw.header());
    Some(draw)
}

/// The holdout of an upstream, or of a route that fans out, or the dry run of an upstream.
#[derive(Debug)]
pub(crate) struct Holdout {
    /// Zero: a dry run.
    pub(crate) ratio: Ratio,
    remedy: &'static str,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    measurement: Measurement,
    requests: Sides<u64>,
}

/// The numbers of a holdout or a switchback for the state page and the metrics.
#[derive(Clone, Debug)]
pub(crate) struct HoldoutSnapshot {
    pub(crate) ratio: Ratio,
    pub(crate) remedy: &'static str,
    /// The number of measured requests: of a holdout since the start, of a switchback in its period.
    pub(crate) requests: Sides<u64>,
    pub(crate) periods: Vec<PeriodEffects>,
}

impl Holdout {
    /// The holdout of an upstream with this policy.
    pub(crate) fn new(ratio: Ratio, policy: &UpstreamConfig) -> Self {
        Self { ratio, remedy: remedy_name(policy), state: Mutex::default() }
    }

    /// The measurement of a dry run.
    pub(crate) fn dry_run() -> Self {
        Self { ratio: Ratio::ZERO, remedy: "dry run of hedging", state: Mutex::default() }
    }

    /// Records the end of a request at this age, after this number of attempts.
    pub(crate) fn record(
        &self,
        now: Instant,
        draw: Draw,
        (response, age): (ResponseClass, Duration),
        attempts: usize,
    ) {
        if let Some(is_holdout) = draw.random_side() {
            self.lock().record(now, is_holdout, measured(response, age), attempts);
        }
    }

    /// Begins again, because the share of the holdout has changed.
    pub(crate) fn begin_again(&self) {
        self.lock().measurement = Measurement::new();
    }

    /// Records the end of a request in a dry run, on both sides. A hedge would have `saved` this time, if one was due.
    pub(crate) fn record_dry_run(
        &self,
        now: Instant,
        (response, age): (ResponseClass, Duration),
        (attempts, saved): (usize, Option<Duration>),
    ) {
        let latency = measured(response, age);
        let hedged = with_hedge(latency, saved);
        let mut state = self.lock();
        state.record(now, true, latency, attempts);
        state.record(now, false, hedged, attempts + usize::from(saved.is_some()));
    }

    pub(crate) fn read(&self, now: Instant) -> HoldoutSnapshot {
        let (measurement, requests) = {
            let mut state = self.lock();
            state.measurement.advance(now);
            (state.measurement.clone(), state.requests)
        };
        // Intervals take a hundred microseconds: not under the lock, for which requests wait.
        let periods = measurement.effects();
        HoldoutSnapshot { ratio: self.ratio, remedy: self.remedy, requests, periods }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn record(&mut self, now: Instant, is_holdout: bool, latency: Duration, attempts: usize) {
        self.measurement.record(now, is_holdout, latency, attempts as u64);
        *self.requests.get_mut(is_holdout) += 1;
    }
}

/// The remedies of an upstream, as a sentence names them.
pub(crate) const fn remedy_name(policy: &UpstreamConfig) -> &'static str {
    match (policy.hedge, policy.tie) {
        (Some(_), None) => "hedging",
        (None, Some(_)) => "ties",
        (Some(_), Some(_)) => "hedging and ties",
        (None, None) => "no remedy",
    }
}

/// The latency of a request if the hedge of a dry run had been sent, which would have `saved` this time. A failure
/// stays one.
pub(crate) fn with_hedge(latency: Duration, saved: Option<Duration>) -> Duration {
    match latency {
        Duration::MAX => latency,
        latency => latency - saved.unwrap_or(Duration::ZERO),
    }
}

/// The latency of a request that ended at this age, as it is measured. A client that has left waited this long.
pub(crate) fn measured(response: ResponseClass, age: Duration) -> Duration {
    let is_failure = match response {
        ResponseClass::Status(status) => status.is_server_error(),
        ResponseClass::GrpcFailure | ResponseClass::Incomplete => true,
        ResponseClass::None | ResponseClass::Cancelled => false,
    };
    if is_failure { Duration::MAX } else { age }
}

impl HoldoutSnapshot {
    /// The same with the share of the holdout now, if there is one.
    pub(crate) fn at_ratio(self, ratio: Option<Ratio>) -> Self {
        Self { ratio: ratio.unwrap_or(Ratio::ZERO), ..self }
    }

    /// The state page's object.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "ratio": Some(self.ratio.get()).filter(|ratio| *ratio > 0.0),
            "remedy": self.remedy,
            "effect": self.effect(),
            "periods": self.periods.iter().map(period).collect::<Vec<_>>(),
        })
    }

    /// The figures of the shortest period that states the p99, or else any percentile, with the beginning of the period if
    /// it is known; [`None`]: none states one.
    pub(crate) fn statement(&self, clock: Clock) -> Option<Value> {
        let has_p99 = |of: &&PeriodEffects| of.percentiles.iter().any(|of| of.name == "p99");
        let stated = || self.periods.iter().filter(|period| !period.percentiles.is_empty());
        let effects = stated().find(has_p99).or_else(|| stated().next())?;
        let mut json = period(effects);
        json["period_from_unix_ns"] = json!(effects.began.map(|began| clock.unix_ns(began)));
        json["remedy"] = self.remedy.into();
        Some(json)
    }

    /// The effect in a sentence: the highest percentile of the shortest period that states one.
    fn effect(&self) -> Option<String> {
        let stated = |period: &PeriodEffects| !period.percentiles.is_empty();
        let period = self.periods.iter().find(|period| stated(period))?;
        let percentile = period.percentiles.last()?;
        let PercentileEffect { name, latency, interval, .. } = percentile;
        let text =
            |latency: Option<Duration>| latency.map_or("failed".to_owned(), numbers::latency);
        let high = interval.with.high.map_or("unbounded".to_owned(), numbers::latency);
        let extra = period
            .extra_ratio()
            .map(|extra| format!(" for {} extra", numbers::percent(extra.max(0.0))));
        Some(format!(
            "{}: {name} {} → {} ({} to {high}){}, {} {}, {}",
            self.remedy,
            text(latency.without),
            text(latency.with),
            numbers::latency(interval.with.low),
            extra.unwrap_or_default(),
            if period.is_complete { "last" } else { "this" },
            period.period,
            percentile.verdict().name(),
        ))
    }
}

fn period(effects: &PeriodEffects) -> Value {
    json!({
        "period": effects.period,
        "complete": effects.is_complete,
        "requests": sides(&effects.requests, |requests| json!(requests)),
        "attempts_per_request": sides(&effects.attempts_per_request, |mean| json!(mean)),
        "extra_ratio": effects.extra_ratio(),
        "percentiles": effects.percentiles.iter().map(percentile).collect::<Vec<_>>(),
    })
}

fn percentile(effect: &PercentileEffect) -> Value {
    let ms = |latency: Option<Duration>| latency.map(Duration::as_ms_f64);
    let finite = |ratio: f64| Some(ratio).filter(|ratio| ratio.is_finite());
    let (low, high) = effect.ratio_interval();
    json!({
        "percentile": effect.name,
        "quantile": effect.quantile.get(),
        "latency_ms": sides(&effect.latency, |latency| json!(ms(*latency))),
        "interval_ms": sides(&effect.interval, |i| json!([i.low.as_ms_f64(), ms(i.high)])),
        "long_run_interval_ms": sides(&effect.long_run, |interval| {
            json!(interval.map(|i| json!([i.low.as_ms_f64(), ms(i.high)])))
        }),
        "ratio": effect.ratio(),
        "ratio_interval": [finite(low), finite(high)],
        "verdict": effect.verdict().name(),
    })
}

/// An object with a member for each side.
fn sides<T>(sides: &Sides<T>, member: impl Fn(&T) -> Value) -> Value {
    json!({ "holdout": member(&sides.without), "remedy": member(&sides.with) })
}

#[cfg(test)]
pub(crate) mod tests;

//! The scorecard: for each remedy that was switched on, its prediction beside its measured effect.
//!
//! The events are those of [`curtail_otlp::events`]. Effects of the same service, upstream and remedy are one entry, with the
//! last effect. A remedy is what the policy says of balance, hedges and ties. Its prediction is the last one that was
//! kept before the first effect, for the same service and upstream, with the same keys. The last prediction of a service and
//! upstream is an entry by itself while its recommended remedy is not on.
//! **Limits**: those of the caller, who reads the events.

use crate::policy_yaml;
use curtail_otlp::events::{EFFECT, PREDICTION};
use curtail_policy::UpstreamConfig;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// The schema of the scorecard in JSON.
pub const SCHEMA: &str = "curtail.scorecard/1";

/// An event of the scorecard.
#[derive(Clone, Debug, PartialEq)]
pub struct ScorecardEvent {
    /// The time, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The service of the resource.
    pub service: String,
    /// The name of the event.
    pub name: String,
    /// The body.
    pub body: Value,
}

/// The scorecard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scorecard {
    /// The version of this shape.
    pub schema: String,
    /// The remedies, the last one switched on first.
    pub remedies: Vec<ScorecardEntry>,
    /// The number of events that could not be understood.
    pub malformed: u64,
}

/// A remedy with its prediction and its effect, as far as they are known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScorecardEntry {
    /// The service: of the proxy, or of the prediction.
    pub service: String,
    /// The upstream, or the route that fans out.
    pub upstream: Option<String>,
    /// The name in the prediction, or the technique that the proxy names.
    pub remedy: String,
    /// The keys that distinguish the remedy from others, as YAML.
    pub config: String,
    /// The prediction, if one was kept before the remedy was switched on.
    pub predicted: Option<PredictedEffect>,
    /// The effect, if the p99 of both sides is known.
    pub measured: Option<MeasuredEffect>,
    /// Whether the band holds the measured p99.
    pub verdict: ScoreVerdict,
}

/// What was predicted of a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedEffect {
    /// The time of the prediction, in nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// The p99 in milliseconds.
    pub p99_ms: f64,
    /// The 95 % band of the p99.
    pub p99_band_ms: [f64; 2],
    /// Further requests, as a share of the requests.
    pub extra_requests_ratio: f64,
}

/// What a remedy did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredEffect {
    /// The times of the first and of the last effect, in nanoseconds since 1970.
    pub from_unix_ns: u64,
    /// The time of the effect shown.
    pub to_unix_ns: u64,
    /// The p99 of the requests with the remedy, in milliseconds; absent: a failed request.
    pub p99_ms: Option<f64>,
    /// The 95 % interval of this p99; its upper end may be unbounded.
    pub p99_interval_ms: (f64, Option<f64>),
    /// The p99 of the holdout; absent: a failed request.
    pub p99_without_ms: Option<f64>,
    /// Further requests, as a share of the requests; absent without requests.
    pub extra_requests_ratio: Option<f64>,
    /// The effect on all requests, which share queues; absent without a switchback that states it.
    pub on_all_requests: Option<EffectOnAll>,
}

/// What a remedy did to all requests, by a switchback.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffectOnAll {
    /// The highest percentile that is stated: `p99`.
    pub percentile: String,
    /// It in time blocks with the remedy, in milliseconds; absent: a failed request.
    pub latency_ms: Option<f64>,
    /// It in time blocks without the remedy; absent: a failed request.
    pub latency_without_ms: Option<f64>,
    /// `better`, `worse` or `undecided`.
    pub verdict: String,
}

impl EffectOnAll {
    fn of(switchback: &Value) -> Option<Self> {
        let highest = switchback["percentiles"].as_array()?.last()?;
        Some(Self {
            percentile: highest["percentile"].as_str()?.to_owned(),
            latency_ms: highest["latency_ms"]["remedy"].as_f64(),
            latency_without_ms: highest["latency_ms"]["holdout"].as_f64(),
            verdict: highest["verdict"].as_str()?.to_owned(),
        })
    }
}

/// The verdict on a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScoreVerdict {
    /// The band holds the measured p99.
    WithinBand,
    /// The band does not hold it.
    MissedBand,
    /// No prediction was kept before the remedy was switched on.
    NotPredicted,
    /// No p99 was measured yet.
    NotMeasured,
}

impl ScoreVerdict {
    /// The verdict in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::WithinBand => "within its band",
            Self::MissedBand => "MISSED its band",
            Self::NotPredicted => "not predicted",
            Self::NotMeasured => "not measured yet",
        }
    }

    /// The verdict on a measured p99; [`None`]: a failed request.
    #[must_use]
    pub fn on(band_ms: [f64; 2], p99_ms: Option<f64>) -> Self {
        let is_within = p99_ms.is_some_and(|ms| band_ms[0] <= ms && ms <= band_ms[1]);
        if is_within { Self::WithinBand } else { Self::MissedBand }
    }
}

impl PredictedEffect {
    /// Reads a remedy of a prediction in JSON; [`None`] if its p99 is not known or not bounded.
    #[must_use]
    pub fn of(remedy: &Value, time_unix_ns: u64) -> Option<Self> {
        let number = |value: &Value| value.as_f64();
        let band = &remedy["p99_band_ms"];
        Some(Self {
            time_unix_ns,
            p99_ms: number(&remedy["p99_ms"])?,
            p99_band_ms: [number(&band[0])?, number(&band[1])?],
            // The proxy counts what it sends. Predictions that were kept by earlier versions have executions only.
            extra_requests_ratio: number(&remedy["extra_sent_ratio"])
                .or_else(|| number(&remedy["extra_requests_ratio"]))?,
        })
    }
}

/// A prediction that was kept.
struct Kept<'a> {
    event: &'a ScorecardEvent,
    /// The upstream or the pattern of upstreams; absent: any.
    upstream: Option<&'a str>,
    fans_out: bool,
    remedies: &'a [Value],
    recommended: Option<&'a str>,
}

/// Effects of one remedy.
struct Effects<'a> {
    service: &'a str,
    upstream: &'a str,
    shards: Vec<&'a str>,
    is_route: bool,
    remedy: &'a str,
    config: String,
    first_ns: u64,
    last: &'a ScorecardEvent,
}

impl Scorecard {
    /// Makes the scorecard from events in the order of time.
    #[must_use]
    pub fn of(events: &[ScorecardEvent]) -> Self {
        let (mut kept, mut effects): (Vec<Kept<'_>>, Vec<Effects<'_>>) = (Vec::new(), Vec::new());
        let mut malformed = 0;
        for event in events {
            let is_known = match &*event.name {
                PREDICTION => Kept::of(event).map(|one| kept.push(one)),
                EFFECT => Effects::of(event).map(|one| one.add_to(&mut effects)),
                _ => None,
            };
            malformed += u64::from(is_known.is_none());
        }
        let mut remedies: Vec<(u64, ScorecardEntry)> = Vec::new();
        for of in &effects {
            let before = kept.iter().filter(|kept| kept.event.time_ns <= of.first_ns);
            let matching =
                before.filter_map(|kept| Some((kept.event.time_ns, kept.remedy_of(of)?)));
            remedies.push((of.first_ns, of.entry(matching.max_by_key(|(time_ns, _)| *time_ns))));
        }
        let last: BTreeMap<_, _> =
            kept.iter().map(|kept| ((&kept.event.service, kept.upstream), kept)).collect();
        let is_on = |kept: &Kept<'_>| {
            let of = effects.iter().filter_map(|of| kept.remedy_of(of));
            of.into_iter().any(|remedy| remedy["name"].as_str() == kept.recommended)
        };
        let not_on = last.into_values().filter(|kept| !is_on(kept));
        remedies.extend(not_on.filter_map(|kept| Some((kept.event.time_ns, kept.entry()?))));
        remedies.sort_by_key(|(time_ns, _)| std::cmp::Reverse(*time_ns));
        let remedies = remedies.into_iter().map(|(_, entry)| entry).collect();
        Self { schema: SCHEMA.to_owned(), remedies, malformed }
    }
}

impl<'a> Kept<'a> {
    fn of(event: &'a ScorecardEvent) -> Option<Self> {
        let prediction = &event.body["prediction"];
        Some(Self {
            event,
            upstream: event.body["upstream"].as_str(),
            fans_out: prediction["model"]["shards"].as_u64()? > 1,
            remedies: prediction["remedies"].as_array()?,
            recommended: prediction["recommended"].as_str(),
        })
    }

    /// The predicted remedy that these effects are of.
    fn remedy_of(&self, effects: &Effects<'_>) -> Option<&'a Value> {
        let is_of = |name: &&str| match self.upstream.map(|of| (of, of.strip_suffix('*'))) {
            None => true,
            Some((_, Some(prefix))) => name.starts_with(prefix),
            Some((whole, None)) => *name == whole,
        };
        let matches = self.event.service == effects.service
            && self.fans_out == effects.is_route
            && effects.shards.iter().any(is_of);
        let of_config = |remedy: &&Value| {
            remedy_keys(remedy["config"].as_str().unwrap_or_default()) == effects.config
        };
        self.remedies.iter().filter(|_| matches).find(of_config)
    }

    /// The recommended remedy, which was not switched on.
    fn entry(&self) -> Option<ScorecardEntry> {
        let recommended = self.recommended?;
        let remedy = self.remedies.iter().find(|remedy| remedy["name"] == recommended)?;
        Some(ScorecardEntry {
            service: self.event.service.clone(),
            upstream: self.upstream.map(str::to_owned),
            remedy: recommended.to_owned(),
            config: remedy_keys(remedy["config"].as_str()?),
            predicted: PredictedEffect::of(remedy, self.event.time_ns),
            measured: None,
            verdict: ScoreVerdict::NotMeasured,
        })
    }
}

impl<'a> Effects<'a> {
    fn of(event: &'a ScorecardEvent) -> Option<Self> {
        let body = &event.body;
        let policy: UpstreamConfig = Deserialize::deserialize(&body["policy"]).ok()?;
        let shards =
            body["upstreams"].as_array()?.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?;
        let route = body["route"].as_str();
        Some(Self {
            service: &event.service,
            upstream: route.or_else(|| shards.first().copied())?,
            shards,
            is_route: route.is_some(),
            remedy: body["remedy"].as_str()?,
            config: remedy_keys(&policy_yaml(&policy)),
            first_ns: event.time_ns,
            last: event,
        })
    }

    /// Adds the effect to those of the same remedy. Only an effect with a p99 replaces the last one.
    fn add_to(self, all: &mut Vec<Self>) {
        let is_same = |other: &&mut Self| {
            (other.service, other.upstream, &other.config)
                == (self.service, self.upstream, &self.config)
        };
        match all.iter_mut().find(is_same) {
            None => all.push(self),
            Some(same) if p99_of(&self.last.body).is_some() => same.last = self.last,
            Some(_) => {}
        }
    }

    fn entry(&self, predicted: Option<(u64, &Value)>) -> ScorecardEntry {
        let measured = p99_of(&self.last.body).map(|p99| MeasuredEffect {
            from_unix_ns: self.first_ns,
            to_unix_ns: self.last.time_ns,
            p99_ms: p99["latency_ms"]["remedy"].as_f64(),
            p99_interval_ms: (
                p99["interval_ms"]["remedy"][0].as_f64().unwrap_or_default(),
                p99["interval_ms"]["remedy"][1].as_f64(),
            ),
            p99_without_ms: p99["latency_ms"]["holdout"].as_f64(),
            extra_requests_ratio: self.last.body["extra_ratio"].as_f64(),
            on_all_requests: EffectOnAll::of(&self.last.body["switchback"]),
        });
        let name = predicted.and_then(|(_, remedy)| remedy["name"].as_str());
        let effect = predicted.and_then(|(time_ns, remedy)| PredictedEffect::of(remedy, time_ns));
        let verdict = match (&effect, &measured) {
            (_, None) => ScoreVerdict::NotMeasured,
            (None, Some(_)) => ScoreVerdict::NotPredicted,
            (Some(predicted), Some(measured)) => {
                ScoreVerdict::on(predicted.p99_band_ms, measured.p99_ms)
            }
        };
        ScorecardEntry {
            service: self.service.to_owned(),
            upstream: Some(self.upstream.to_owned()),
            remedy: name.unwrap_or(self.remedy).to_owned(),
            config: self.config.clone(),
            predicted: effect,
            measured,
            verdict,
        }
    }
}

fn p99_of(body: &Value) -> Option<&Value> {
    body["percentiles"].as_array()?.iter().find(|percentile| percentile["percentile"] == "p99")
}

/// The keys of a policy that distinguish one remedy from another.
fn remedy_keys(yaml: &str) -> String {
    let is_of_remedy =
        |line: &&str| ["balance:", "hedge:", "tie:"].iter().any(|key| line.starts_with(key));
    yaml.lines().filter(is_of_remedy).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests;

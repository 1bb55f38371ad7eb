//! The scorecard: for each remedy that was switched on, its prediction beside its measured effect.
//!
//! The events are those of [`curtail_otlp::events`]. Effects of the same service, upstream and remedy are one entry, with the
//! last effect, and the verdicts on other periods: a proxy begins a new measurement each hour and each day, and when it
//! starts. A remedy is what the policy says of balance, hedges and ties. Its prediction is the last one that was
//! kept before the first effect, for the same service and upstream, with the same keys. The last prediction of a service and
//! upstream is an entry by itself while its recommended remedy is not on.
//! A holdout withholds only hedges and ties, so it measures no remedy without them, such as a balancing rule.
//! **Limits**: [`REMEDIES_MAX`] remedies of a prediction; the number of events is limited by the caller, who reads them.

use crate::json_zero::without_negative_zeros;
use crate::policy_yaml;
use curtail_load::holdout::EffectVerdict;
use curtail_otlp::events::{EFFECT, PREDICTION};
use curtail_policy::UpstreamConfig;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum number of remedies of a kept prediction that are looked at; a prediction has a dozen.
const REMEDIES_MAX: usize = 64;

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
    /// The number of older events that were left out.
    #[serde(default)]
    pub left_out: u64,
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
    /// Whether the prediction came true.
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
    /// The time of the first effect, in nanoseconds since 1970.
    pub from_unix_ns: u64,
    /// The time of the last effect with a p99, which is shown.
    pub to_unix_ns: u64,
    /// The p99 of the requests with the remedy, in milliseconds; absent: a failed request.
    pub p99_ms: Option<f64>,
    /// The 95 % interval of this p99; its upper end may be unbounded.
    pub p99_interval_ms: (f64, Option<f64>),
    /// The p99 of the holdout, without hedges and ties; absent: a failed request.
    pub p99_without_ms: Option<f64>,
    /// Further requests, as a share of the requests; absent without requests.
    pub extra_requests_ratio: Option<f64>,
    /// The verdicts on the last effects of other periods of this length, also those of other instances of the proxy; absent
    /// without a prediction.
    #[serde(default)]
    pub other_periods: Option<VerdictCounts>,
    /// The effect on all requests, which share queues; absent without a switchback that states it.
    pub on_all_requests: Option<EffectOnAll>,
}

/// The number of periods with each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerdictCounts {
    /// The band holds the measured p99.
    pub within_band: u64,
    /// The band and the interval are apart.
    pub missed_band: u64,
    /// The band holds a part of the interval.
    pub undecided: u64,
}

/// What hedges and ties did to all requests, by a switchback.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffectOnAll {
    /// The highest percentile that is stated: `p99`.
    pub percentile: String,
    /// This percentile in time blocks with hedges and ties, in milliseconds; absent: a failed request.
    pub latency_ms: Option<f64>,
    /// This percentile in time blocks without them; absent: a failed request.
    pub latency_without_ms: Option<f64>,
    /// Whether requests are faster with hedges and ties.
    pub verdict: EffectVerdict,
}

impl EffectOnAll {
    fn of(switchback: &Value) -> Option<Self> {
        let highest = switchback["percentiles"].as_array()?.last()?;
        Some(Self {
            percentile: highest["percentile"].as_str()?.to_owned(),
            latency_ms: highest["latency_ms"]["remedy"].as_f64(),
            latency_without_ms: highest["latency_ms"]["holdout"].as_f64(),
            verdict: Deserialize::deserialize(&highest["verdict"]).ok()?,
        })
    }
}

/// The verdict on a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScoreVerdict {
    /// The band holds the measured p99.
    WithinBand,
    /// The band and the interval are apart.
    MissedBand,
    /// The band holds a part of the interval: the measurement is not precise enough.
    Undecided,
    /// No prediction was kept before the remedy was switched on.
    NotPredicted,
    /// No p99 was measured yet.
    NotMeasured,
    /// The remedy has no hedges and ties, and a holdout withholds nothing else.
    NotMeasurableByHoldout,
}

impl ScoreVerdict {
    /// The verdict in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::WithinBand => "within its band",
            Self::MissedBand => "MISSED its band",
            Self::Undecided => "undecided",
            Self::NotPredicted => "not predicted",
            Self::NotMeasured => "not measured yet",
            Self::NotMeasurableByHoldout => "cannot be measured by a holdout",
        }
    }

    /// The verdict on a measured p99 and its interval, whose upper end may be unbounded; [`None`]: a failed request.
    #[must_use]
    pub fn on(
        [band_low, band_high]: [f64; 2],
        p99_ms: Option<f64>,
        (low, high): (f64, Option<f64>),
    ) -> Self {
        let high = high.unwrap_or(f64::INFINITY);
        if high < band_low || band_high < low {
            Self::MissedBand
        } else if p99_ms.is_some_and(|ms| band_low <= ms && ms <= band_high) {
            Self::WithinBand
        } else {
            Self::Undecided
        }
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
struct KeptPrediction<'a> {
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
    /// The last effect with a p99, if there is one.
    last: &'a ScorecardEvent,
    /// The last effect with a p99 in each other period.
    others: BTreeMap<Period<'a>, &'a ScorecardEvent>,
    /// The time of the last effect, with or without a p99.
    last_ns: u64,
}

/// A period of measurement: its name, and its beginning in nanoseconds since 1970.
type Period<'a> = (&'a str, u64);

/// The predicted remedies by keys, each with the index of its prediction, in the order of time.
type RemediesByKeys<'a> = HashMap<String, Vec<(usize, &'a Value)>>;

impl Scorecard {
    /// Makes the scorecard from events in the order of time.
    #[must_use]
    pub fn of(events: &[ScorecardEvent]) -> Self {
        Self::since(events, 0)
    }

    /// As [`of`](Self::of), with only the remedies whose last event was at `from_ns` or later.
    #[must_use]
    pub fn since(events: &[ScorecardEvent], from_ns: u64) -> Self {
        let (mut kept, mut effects): (Vec<KeptPrediction<'_>>, Vec<Effects<'_>>) =
            (Vec::new(), Vec::new());
        let mut indices = HashMap::new();
        let mut malformed = 0;
        for event in events {
            let is_known = match &*event.name {
                PREDICTION => KeptPrediction::of(event).map(|one| kept.push(one)),
                EFFECT => Effects::of(event).map(|one| one.add_to(&mut effects, &mut indices)),
                _ => None,
            };
            malformed += u64::from(is_known.is_none());
        }
        let by_keys = remedies_by_keys(&kept);
        let mut remedies: Vec<(u64, ScorecardEntry)> = Vec::new();
        // The predictions whose recommended remedy is on.
        let mut on = BTreeSet::new();
        for of in &effects {
            let same_keys = by_keys.get(&of.config);
            let predicted = same_keys.into_iter().flatten().filter(|(nth, _)| kept[*nth].is_of(of));
            on.extend(predicted.clone().filter_map(|(nth, remedy)| {
                (remedy["name"].as_str() == kept[*nth].recommended).then_some(*nth)
            }));
            let before = predicted.map(|(nth, remedy)| (kept[*nth].event.time_ns, *remedy));
            let before = before.filter(|(time_ns, _)| *time_ns <= of.first_ns);
            if of.last_ns >= from_ns {
                remedies.push((of.first_ns, of.entry(before.max_by_key(|(time_ns, _)| *time_ns))));
            }
        }
        let last: BTreeMap<_, usize> = kept
            .iter()
            .zip(0..)
            .map(|(kept, nth)| ((&kept.event.service, kept.upstream), nth))
            .collect();
        let not_on = last.into_values().filter(|nth| !on.contains(nth)).map(|nth| &kept[nth]);
        let not_on = not_on.filter(|kept| kept.event.time_ns >= from_ns);
        remedies.extend(not_on.filter_map(|kept| Some((kept.event.time_ns, kept.entry()?))));
        remedies.sort_by_key(|(time_ns, _)| std::cmp::Reverse(*time_ns));
        let remedies = remedies.into_iter().map(|(_, entry)| entry).collect();
        Self { schema: SCHEMA.to_owned(), remedies, malformed, left_out: 0 }
    }

    /// The scorecard as one JSON object.
    ///
    /// # Errors
    /// Never: all members can be written as JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&without_negative_zeros(serde_json::to_value(self)?))
    }
}

/// The first remedy with the same keys of each prediction.
fn remedies_by_keys<'a>(kept: &[KeptPrediction<'a>]) -> RemediesByKeys<'a> {
    let mut by_keys = RemediesByKeys::new();
    for (kept, nth) in kept.iter().zip(0..) {
        for remedy in kept.remedies {
            let keys = remedy_keys(remedy["config"].as_str().unwrap_or_default());
            let same_keys = by_keys.entry(keys).or_default();
            if same_keys.last().is_none_or(|(last, _)| *last != nth) {
                same_keys.push((nth, remedy));
            }
        }
    }
    by_keys
}

impl<'a> KeptPrediction<'a> {
    fn of(event: &'a ScorecardEvent) -> Option<Self> {
        let prediction = &event.body["prediction"];
        let remedies = prediction["remedies"].as_array()?;
        Some(Self {
            event,
            upstream: event.body["upstream"].as_str(),
            fans_out: prediction["model"]["shards"].as_u64()? > 1,
            remedies: &remedies[..remedies.len().min(REMEDIES_MAX)],
            recommended: prediction["recommended"].as_str(),
        })
    }

    /// Whether it is for the upstreams of these effects. Traces may begin at an application, which has another name than the
    /// proxy: then the prediction has to name the upstream.
    fn is_of(&self, effects: &Effects<'_>) -> bool {
        let is_of = |name: &&str| match self.upstream.map(|of| (of, of.strip_suffix('*'))) {
            None => true,
            Some((_, Some(prefix))) => name.starts_with(prefix),
            Some((whole, None)) => *name == whole,
        };
        let is_same_service = self.event.service == effects.service;
        (is_same_service || self.upstream.is_some())
            && self.fans_out == effects.is_route
            && effects.shards.iter().any(is_of)
    }

    /// The recommended remedy, which was not switched on.
    fn entry(&self) -> Option<ScorecardEntry> {
        let recommended = self.recommended?;
        let remedy = self.remedies.iter().find(|remedy| remedy["name"] == recommended)?;
        let config = remedy_keys(remedy["config"].as_str()?);
        Some(ScorecardEntry {
            service: self.event.service.clone(),
            upstream: self.upstream.map(str::to_owned),
            remedy: recommended.to_owned(),
            predicted: PredictedEffect::of(remedy, self.event.time_ns),
            measured: None,
            verdict: not_measured(&config),
            config,
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
            others: BTreeMap::new(),
            last_ns: event.time_ns,
        })
    }

    /// Adds the effect to those of the same remedy; `indices` has the index of each remedy. Only an effect with a p99
    /// replaces the last one.
    fn add_to(self, all: &mut Vec<Self>, indices: &mut HashMap<(&'a str, &'a str, String), usize>) {
        let index = indices.entry((self.service, self.upstream, self.config.clone()));
        let index = *index.or_insert(all.len());
        let Some(same) = all.get_mut(index) else { return all.push(self) };
        same.last_ns = self.last_ns;
        if p99_of(&self.last.body).is_some() {
            let earlier = std::mem::replace(&mut same.last, self.last);
            if p99_of(&earlier.body).is_some() {
                same.others.insert(period_of(earlier), earlier);
            }
            same.others.remove(&period_of(self.last));
        }
    }

    /// The verdicts on the effects of other periods that are as long as that of the last effect.
    fn other_periods(&self, predicted: &PredictedEffect) -> VerdictCounts {
        let mut counts = VerdictCounts::default();
        let (length, _) = period_of(self.last);
        let others = self.others.iter().filter(|((name, _), _)| *name == length);
        for p99 in others.filter_map(|(_, event)| p99_of(&event.body)) {
            let (p99_ms, interval_ms) = latency_of(p99);
            match ScoreVerdict::on(predicted.p99_band_ms, p99_ms, interval_ms) {
                ScoreVerdict::WithinBand => counts.within_band += 1,
                ScoreVerdict::MissedBand => counts.missed_band += 1,
                ScoreVerdict::Undecided
                | ScoreVerdict::NotPredicted
                | ScoreVerdict::NotMeasured
                | ScoreVerdict::NotMeasurableByHoldout => counts.undecided += 1,
            }
        }
        counts
    }

    fn entry(&self, predicted: Option<(u64, &Value)>) -> ScorecardEntry {
        let p99 = p99_of(&self.last.body).filter(|_| has_hedges_or_ties(&self.config));
        let name = predicted.and_then(|(_, remedy)| remedy["name"].as_str());
        let effect = predicted.and_then(|(time_ns, remedy)| PredictedEffect::of(remedy, time_ns));
        let measured = p99.map(|p99| {
            let (p99_ms, p99_interval_ms) = latency_of(p99);
            MeasuredEffect {
                from_unix_ns: self.first_ns,
                to_unix_ns: self.last.time_ns,
                p99_ms,
                p99_interval_ms,
                p99_without_ms: p99["latency_ms"]["holdout"].as_f64(),
                extra_requests_ratio: self.last.body["extra_ratio"].as_f64(),
                other_periods: effect.as_ref().map(|predicted| self.other_periods(predicted)),
                on_all_requests: EffectOnAll::of(&self.last.body["switchback"]),
            }
        });
        let verdict = match (&effect, &measured) {
            (_, None) => not_measured(&self.config),
            (None, Some(_)) => ScoreVerdict::NotPredicted,
            (Some(predicted), Some(measured)) => {
                ScoreVerdict::on(predicted.p99_band_ms, measured.p99_ms, measured.p99_interval_ms)
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

/// The p99 with the remedy in milliseconds, and its interval.
fn latency_of(p99: &Value) -> (Option<f64>, (f64, Option<f64>)) {
    let interval = &p99["interval_ms"]["remedy"];
    let interval_ms = (interval[0].as_f64().unwrap_or_default(), interval[1].as_f64());
    (p99["latency_ms"]["remedy"].as_f64(), interval_ms)
}

/// The period of an effect; it began at 0 for proxies that did not say when.
fn period_of(effect: &ScorecardEvent) -> Period<'_> {
    let name = effect.body["period"].as_str().unwrap_or_default();
    (name, effect.body["period_from_unix_ns"].as_u64().unwrap_or_default())
}

/// The keys of a policy that distinguish one remedy from another.
fn remedy_keys(yaml: &str) -> String {
    let is_of_remedy =
        |line: &&str| ["balance:", "hedge:", "tie:"].iter().any(|key| line.starts_with(key));
    yaml.lines().filter(is_of_remedy).map(|line| format!("{line}\n")).collect()
}

/// Whether these keys of an upstream switch on hedges or ties, whose effect a holdout can measure.
#[must_use]
pub fn has_hedges_or_ties(keys: &str) -> bool {
    let is_on = |line: &str| match line.split_once(": ") {
        Some(("hedge" | "tie", value)) => value != "false",
        _ => false,
    };
    keys.lines().any(is_on)
}

/// The verdict on a remedy with these keys that was not measured.
fn not_measured(keys: &str) -> ScoreVerdict {
    match has_hedges_or_ties(keys) {
        true => ScoreVerdict::NotMeasured,
        false => ScoreVerdict::NotMeasurableByHoldout,
    }
}

#[cfg(test)]
mod tests;

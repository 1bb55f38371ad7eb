//! `curtail scorecard`: predictions of remedies beside what they then did.

use crate::exit;
use crate::output::{Format, print};
use crate::query::request::{DEFAULT_SERVER, QueryRejected, QueryRequest, send_for_text};
use crate::server_access::ServerAccessArgs;
use crate::terminal;
use clap::Args;
use curtail_predict::{
    EffectOnAll, MeasuredEffect, PredictedEffect, ScoreVerdict, Scorecard, ScorecardEntry,
    VerdictCounts,
};
use curtail_text::Page;
use curtail_text::numbers::{counted, percent, rounded_latency, utc};
use curtail_units::Duration;
use std::process::ExitCode;

/// Show predictions of remedies beside what they then did
///
/// A prediction is kept by curtail predict --keep. An effect is measured by a proxy
/// with a holdout whose spans go to the server (spans.endpoint): the proxy sends it
/// by itself. For each remedy, the last prediction before it was switched on
/// counts. It missed if its 95 % band and the interval of the measured p99 are
/// apart, and is undecided if only a part of the interval is in the band. A remedy
/// without hedges and ties, such as a balancing rule, cannot be measured by a
/// holdout: compare both settings with curtail bench compare.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail scorecard
  curtail scorecard --service shop --since 7d
  curtail scorecard --format json

Exit code 1: a prediction missed its band."
)]
pub(crate) struct ScorecardArgs {
    /// Only remedies of this service: the `spans.service_name` of the proxy.
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Only remedies with a prediction or an effect in this time before now: 12h, 7d [default: all].
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// URL of the query API.
    #[arg(long, value_name = "URL", default_value = DEFAULT_SERVER)]
    server: String,
    #[command(flatten)]
    access: ServerAccessArgs,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(crate) fn run(args: &ScorecardArgs) -> anyhow::Result<ExitCode> {
    let mut request = QueryRequest::new("/api/v1/scorecard");
    for (name, value) in [("service", &args.service), ("since", &args.since)] {
        if let Some(value) = value {
            request = request.with(name, value);
        }
    }
    let json = match send_for_text(&args.server, &args.access, &request, "application/json")? {
        Ok(json) => json,
        // Exit code 1 is a prediction that missed its band.
        Err(not_found) => return Err(QueryRejected(not_found).into()),
    };
    let scorecard: Scorecard = serde_json::from_str(&json)
        .map_err(|_| QueryRejected(format!("{} has no scorecard of this version", args.server)))?;
    match args.format {
        Format::Json => print(&json)?,
        Format::Table => print(&table(&scorecard, terminal::has_colors()))?,
    }
    let missed = |entry: &ScorecardEntry| entry.verdict == ScoreVerdict::MissedBand;
    let any_missed = scorecard.remedies.iter().any(missed);
    Ok(if any_missed { ExitCode::from(exit::NO) } else { ExitCode::SUCCESS })
}

/// The scorecard for people. A miss is red on a terminal.
fn table(scorecard: &Scorecard, has_colors: bool) -> String {
    let mut page = Page::new(terminal::width_of_stdout());
    if scorecard.remedies.is_empty() {
        page.wrapped("", "No remedy yet. A proxy with a holdout whose spans go to this server sends the effect of its remedies; curtail predict --keep keeps a prediction.");
    }
    for (nth, entry) in scorecard.remedies.iter().enumerate() {
        if nth > 0 {
            page.blank();
        }
        let upstream =
            entry.upstream.as_deref().map(|name| format!(", {name}")).unwrap_or_default();
        let verdict = entry.verdict.text();
        page.line(format!("{}{upstream}: {}, {verdict}", entry.service, entry.remedy));
        page.wrapped(
            "  ",
            &match &entry.predicted {
                Some(predicted) => predicted_text(predicted),
                None => "predicted  nothing: no prediction was kept before".to_owned(),
            },
        );
        page.wrapped(
            "  ",
            &match &entry.measured {
                Some(measured) => measured_text(measured),
                None => not_measured_text(entry.verdict).to_owned(),
            },
        );
        let counts = entry.measured.as_ref().and_then(|of| of.other_periods);
        if let Some(text) = counts.and_then(others_text) {
            page.wrapped("  ", &text);
        }
        if let Some(all) = entry.measured.as_ref().and_then(|of| of.on_all_requests.as_ref()) {
            page.wrapped("  ", &on_all_text(all));
        }
    }
    if scorecard.malformed > 0 {
        page.blank();
        page.wrapped("", &format!("Not understood: {}.", counted(scorecard.malformed, "event")));
    }
    if scorecard.left_out > 0 {
        page.blank();
        page.wrapped("", &format!("Left out: {}.", counted(scorecard.left_out, "older event")));
    }
    let text = page.finish();
    let missed = ScoreVerdict::MissedBand.text();
    // Only at the end of a title.
    let (plain, red) = (format!(", {missed}\n"), format!(", \x1b[31m{missed}\x1b[0m\n"));
    if has_colors { text.replace(&plain, &red) } else { text }
}

fn predicted_text(predicted: &PredictedEffect) -> String {
    let [low, high] = predicted.p99_band_ms.map(ms);
    format!(
        "predicted  p99 {} ({low} to {high}), {} more requests; on {}",
        ms(predicted.p99_ms),
        percent(predicted.extra_requests_ratio.max(0.0)),
        minute(predicted.time_unix_ns),
    )
}

fn not_measured_text(verdict: ScoreVerdict) -> &'static str {
    match verdict {
        ScoreVerdict::NotMeasurableByHoldout => {
            "measured   nothing: a holdout withholds only hedges and ties, and this remedy has none; compare both \
             settings with curtail bench compare"
        }
        ScoreVerdict::WithinBand
        | ScoreVerdict::MissedBand
        | ScoreVerdict::Undecided
        | ScoreVerdict::NotPredicted
        | ScoreVerdict::NotMeasured => {
            "measured   nothing yet: a p99 needs 100 slower requests on each side"
        }
    }
}

fn measured_text(measured: &MeasuredEffect) -> String {
    let latency = |of: Option<f64>| of.map_or_else(|| "failed".to_owned(), ms);
    let (low, high) = measured.p99_interval_ms;
    let high = high.map_or_else(|| "unbounded".to_owned(), ms);
    let extra = measured
        .extra_requests_ratio
        .map_or_else(String::new, |extra| format!(", {} more requests", percent(extra.max(0.0))));
    format!(
        "measured   p99 {} ({} to {high}), {} without hedges and ties{extra}; from {} to {}",
        latency(measured.p99_ms),
        ms(low),
        latency(measured.p99_without_ms),
        minute(measured.from_unix_ns),
        minute(measured.to_unix_ns),
    )
}

/// The verdicts on other periods; [`None`] without one.
fn others_text(counts: VerdictCounts) -> Option<String> {
    let VerdictCounts { within_band, missed_band, undecided } = counts;
    let counts = [
        (within_band, ScoreVerdict::WithinBand),
        (missed_band, ScoreVerdict::MissedBand),
        (undecided, ScoreVerdict::Undecided),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<_> =
        counts.map(|(count, of)| format!("{} {}", counted(count, "time"), of.text())).collect();
    (!counts.is_empty()).then(|| format!("others     {}", counts.join(", ")))
}

fn on_all_text(all: &EffectOnAll) -> String {
    let latency = |of: Option<f64>| of.map_or_else(|| "failed".to_owned(), ms);
    format!(
        "all        {} {} in time blocks with hedges and ties, {} without: {}",
        all.percentile,
        latency(all.latency_ms),
        latency(all.latency_without_ms),
        all.verdict.name()
    )
}

fn ms(ms: f64) -> String {
    rounded_latency(Duration::from_ns_f64(ms * 1e6))
}

/// A time to the minute, in UTC.
fn minute(unix_ns: u64) -> String {
    let text = utc(unix_ns);
    text.get(..16).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use curtail_load::holdout::EffectVerdict;
    use expect_test::expect;

    /// One entry of each verdict but the usual one.
    fn remedies() -> Vec<ScorecardEntry> {
        let predicted = PredictedEffect {
            time_unix_ns: 1_764_200_000_000_000_000,
            p99_ms: 21.0,
            p99_band_ms: [9.9, 49.3],
            extra_requests_ratio: 0.0467,
        };
        let measured = MeasuredEffect {
            from_unix_ns: 1_764_203_600_000_000_000,
            to_unix_ns: 1_764_207_200_000_000_000,
            p99_ms: Some(54.2),
            p99_interval_ms: (50.1, None),
            p99_without_ms: None,
            extra_requests_ratio: Some(0.0288),
            other_periods: Some(VerdictCounts { within_band: 11, missed_band: 1, undecided: 0 }),
            on_all_requests: Some(EffectOnAll {
                percentile: "p90".to_owned(),
                latency_ms: Some(31.0),
                latency_without_ms: Some(29.4),
                verdict: EffectVerdict::Undecided,
            }),
        };
        let entry =
            |predicted: Option<PredictedEffect>, measured: Option<MeasuredEffect>, verdict| {
                ScorecardEntry {
                    service: "checkout".to_owned(),
                    upstream: Some("search".to_owned()),
                    remedy: "hedge p95".to_owned(),
                    config: "hedge: {quantile: 0.95}\n".to_owned(),
                    predicted,
                    measured,
                    verdict,
                }
            };
        vec![
            entry(Some(predicted), Some(measured.clone()), ScoreVerdict::MissedBand),
            entry(None, Some(measured), ScoreVerdict::NotPredicted),
            entry(Some(predicted), None, ScoreVerdict::NotMeasured),
            ScorecardEntry {
                remedy: "least request".to_owned(),
                ..entry(Some(predicted), None, ScoreVerdict::NotMeasurableByHoldout)
            },
        ]
    }

    #[test]
    fn a_miss_is_red_and_everything_fits_80_columns() {
        let scorecard = Scorecard {
            schema: "curtail.scorecard/1".to_owned(),
            remedies: remedies(),
            malformed: 2,
            left_out: 1_200,
        };
        let text = table(&scorecard, false);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        expect![[r#"
            checkout, search: hedge p95, MISSED its band
              predicted p99 21.0 ms (9.9 ms to 49.3 ms), 4.67 % more requests; on 2025-11-26
                  23:33
              measured p99 54.2 ms (50.1 ms to unbounded), failed without hedges and ties,
                  2.88 % more requests; from 2025-11-27 00:33 to 2025-11-27 01:33
              others 11 times within its band, 1 time MISSED its band
              all p90 31.0 ms in time blocks with hedges and ties, 29.4 ms without:
                  undecided

            checkout, search: hedge p95, not predicted
              predicted nothing: no prediction was kept before
              measured p99 54.2 ms (50.1 ms to unbounded), failed without hedges and ties,
                  2.88 % more requests; from 2025-11-27 00:33 to 2025-11-27 01:33
              others 11 times within its band, 1 time MISSED its band
              all p90 31.0 ms in time blocks with hedges and ties, 29.4 ms without:
                  undecided

            checkout, search: hedge p95, not measured yet
              predicted p99 21.0 ms (9.9 ms to 49.3 ms), 4.67 % more requests; on 2025-11-26
                  23:33
              measured nothing yet: a p99 needs 100 slower requests on each side

            checkout, search: least request, cannot be measured by a holdout
              predicted p99 21.0 ms (9.9 ms to 49.3 ms), 4.67 % more requests; on 2025-11-26
                  23:33
              measured nothing: a holdout withholds only hedges and ties, and this remedy
                  has none; compare both settings with curtail bench compare

            Not understood: 2 events.

            Left out: 1,200 older events.
        "#]]
        .assert_eq(&text);
        assert!(table(&scorecard, true).contains("\x1b[31mMISSED its band\x1b[0m"));
    }
}

//! `curtail bench sweep URL`: measures latency against throughput, up to the knee.

use super::load::warm_up;
use super::outcome::{self, OutputArgs};
use super::progress::RunProgress;
use super::workload::{WorkloadArgs, duration};
use crate::output::{Format, print};
use anyhow::bail;
use clap::Args;
use curtail_generator::Session;
use curtail_generator::session::{Turns, WarmUp};
use curtail_generator::sweep::{Sweep, SweepOutcome};
use curtail_load::compare::Rule;
use curtail_load::knee::{Bound, Knee, Search};
use curtail_load::schedule::{RATE_MAX, Spacing};
use curtail_text::{WIDTH, wrapped};
use curtail_units::{Duration, Quantile, Rng};
use std::process::ExitCode;

/// Measure latency against throughput, up to the knee
///
/// The sweep starts at --rate; choose a rate that the service sustains with ease.
/// The sweep doubles the rate until p99 exceeds its limit, or more than 1 % of
/// requests fail. The limit is --p99-max, or --p99-times the p99 at the first rate.
/// The sweep then bisects until it knows the knee to 5 %. Each p99 needs 10
/// requests beyond it. Therefore --rate × --for must be at least 1,100 requests
/// (1,000 with --spacing even).
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail bench sweep http://127.0.0.1:8080/
  curtail bench sweep http://127.0.0.1:8080/ --rate 50 --p99-max 100ms"
)]
pub(crate) struct SweepArgs {
    /// URL of the service.
    #[arg(value_name = "URL")]
    url: String,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Limit of p99, as a multiple of p99 at the first rate.
    #[arg(long, value_name = "NUMBER", default_value_t = 3.0, value_parser = times)]
    p99_times: f64,
    /// Limit of p99, as a time; replaces --p99-times.
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "p99_times")]
    p99_max: Option<Duration>,
    /// Maximum rate to try, in requests a second.
    #[arg(long, value_name = "NUMBER", default_value_t = 1e6)]
    rate_max: f64,
    /// Duration of the warm-up at each rate: `none`, a time, or `auto`.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = warm_up)]
    warm_up: WarmUp,
    #[command(flatten)]
    shown: OutputArgs,
}

/// Enough requests for 10 beyond p99, even if the number of requests is random.
const REQUESTS_ADVISED: f64 = 1_200.0;

pub(crate) fn run(args: &SweepArgs) -> anyhow::Result<ExitCode> {
    let load = args.workload.load(&args.url, &Rng::new(args.workload.seed))?;
    let Some((rate, lasts, spacing)) = args.workload.constant_rate(&load) else {
        bail!(clap::Error::raw(
            clap::error::ErrorKind::ArgumentConflict,
            "a schedule in --file: a sweep has one of its own\n"
        ));
    };
    let bound = args.p99_max.map_or(Bound::Times(args.p99_times), Bound::Latency);
    let search = Search::new(Quantile::P99, bound, rate, args.rate_max.clamp(rate, RATE_MAX));
    check_duration(&search, (rate, lasts), spacing)?;
    let session = Session {
        name: args.url.clone(),
        command: outcome::command_line(),
        seed: args.workload.seed,
        about_load: format!("a sweep from {}", args.workload.about(&load)),
        arms: Vec::new(),
        blocks: 1,
        turns: Turns::Alternate,
        warm_up: args.warm_up,
    };
    let sweep = Sweep { session, load, lasts, spacing };
    let mut shown = RunProgress::new(Vec::new());
    let swept = outcome::until_stopped(|stop| {
        sweep.run(search, stop, |rate, progress, slot| {
            shown.named(&format!("{rate:.0}/s"));
            shown.show(progress, slot);
        })
    });
    shown.clear();
    let SweepOutcome { results, knee, cut_short } = swept??;
    let code = outcome::show(&results, &Rule::default(), &args.shown)?;
    if args.shown.format == Format::Table {
        let lines = wrapped("", &describe_knee(&knee, cut_short.as_deref()), WIDTH);
        print(&format!("\n{}\n", lines.join("\n")))?;
    }
    Ok(code)
}

/// Checks that enough requests are planned at the first rate, which is the lowest.
fn check_duration(
    search: &Search,
    (rate, lasts): (f64, Duration),
    spacing: Spacing,
) -> anyhow::Result<()> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    let planned = (rate * lasts.as_secs_f64()).round() as u64;
    let count = match spacing {
        Spacing::Even => planned,
        // Three standard deviations below the mean of a Poisson distribution.
        Spacing::Poisson => planned.saturating_sub(3 * planned.isqrt()),
    };
    let Err(too_few) = search.check_count(count) else { return Ok(()) };
    let enough = (REQUESTS_ADVISED / rate).ceil();
    bail!(clap::Error::raw(
        clap::error::ErrorKind::ValueValidation,
        format!(
            "--for: {lasts} at {rate} requests/s is too short ({too_few}); pass --for {enough}s or a higher --rate\n"
        )
    ));
}

fn describe_knee(knee: &Knee, cut_short: Option<&str>) -> String {
    let Knee { borne, refused } = knee;
    let so_far = match (borne, refused) {
        (Some(borne), Some((refused, why))) => {
            format!("The knee is between {borne:.0} and {refused:.0} requests/s: there {why}.")
        }
        (None, Some((refused, why))) => format!(
            "The knee is below {refused:.0} requests/s: there {why}. Begin with a lower --rate."
        ),
        (Some(borne), None) => {
            format!("The knee is above {borne:.0} requests/s, the highest rate that was measured.")
        }
        (None, None) => "The knee was not found.".to_owned(),
    };
    match cut_short {
        Some(why) => format!("{so_far} The sweep ended early: {why}."),
        None => so_far,
    }
}

fn times(text: &str) -> Result<f64, String> {
    let times: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if times > 1.0 && times <= 1_000.0 {
        Ok(times)
    } else {
        Err("expected more than 1 and at most 1000".to_owned())
    }
}

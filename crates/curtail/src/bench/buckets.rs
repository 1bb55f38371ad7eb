//! `curtail bench buckets`: the error of percentiles that are read from buckets.
//!
//! | file | holds |
//! |---|---|
//! | [`mod@values`] | the reader of values: a number a line, or a column of a CSV file |
//! | [`report`] | the quantiles that are estimated from each layout of buckets, and the coarsest layouts within `--error-max` |
//! | [`table`], [`plot`], [`json`], [`page`] | the report in each of its forms |

mod json;
mod page;
mod plot;
mod report;
mod table;
mod values;

use crate::exit::usage_error;
use crate::input;
use crate::output::{Format, print};
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use curtail_load::buckets::Layout;
use curtail_sketch::exponential::Scale;
use curtail_units::{Duration, Quantile};
use report::{Data, Report, Wanted};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure the error of percentiles that are read from buckets
///
/// A layout is a choice of buckets. The command counts values (--data) in the
/// buckets of each layout. It then estimates quantiles from the counts, as
/// Prometheus and others do, and compares them with the exact quantiles of the
/// values. It also finds the coarsest layouts whose error at the quantile
/// --error-at is at most --error-max: the largest growth factor (1.001 to 10) and
/// the smallest OpenTelemetry scale. It finds the layouts for these values, and
/// those that keep this error for any values.
///
/// Without --data, the command draws 200 samples from the distribution of Google's
/// tail latency lab, Beta(2, 5) × 70 ms. A sample has 100,000 values. Each quantile
/// is the mean over the samples, ± two standard deviations between samples.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail bench buckets
  curtail bench buckets --data latencies.txt --unit us --error-max 0.02
  curtail bench buckets --data run.csv.gz --column elapsed --scale 3,5
  curtail bench buckets --bounds 10,20,50,100,200,500 --quantile 0.95,0.99
  curtail sql --format csv --rows 1000000 'SELECT duration_ns FROM spans' |
    curtail bench buckets --data - --column duration_ns --unit ns

Estimate within a bucket:
  --growth, --bounds  linear interpolation, as in Prometheus' classic histograms
  --schema            exponential interpolation, as in Prometheus 3.0 and later
  --scale             harmonic mean of the two bounds, as in DDSketch"
)]
pub(crate) struct BucketsArgs {
    /// File of values: one number a line, or a CSV file with --column; `-` is standard input. gzip and zstd are recognized.
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Column of the CSV file, by its name in the first line.
    #[arg(long, value_name = "NAME", requires = "data")]
    column: Option<String>,
    /// Unit of the values and of --bounds. The bounds of a --growth layout are the powers of the factor in this unit.
    #[arg(long, value_enum, default_value_t = Unit::Ms)]
    unit: Unit,
    /// Layouts by the ratio of each bound to the previous bound. If no layout is given, the default is: --growth 1.2,1.4,2 --bounds prometheus --scale 3 --schema 3.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    growth: Vec<f64>,
    /// Layout by its bounds, in ascending order; `prometheus` and `otel` name the default bounds of those libraries. Repeatable.
    #[arg(long, value_name = "LIST")]
    bounds: Vec<String>,
    /// Layouts by the scale of OpenTelemetry's exponential histogram.
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true)]
    scale: Vec<i8>,
    /// Layouts by the schema of Prometheus' native histograms.
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true)]
    schema: Vec<i8>,
    /// Quantiles to estimate, from 0 to 1.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0.5,0.9,0.99,0.999", value_parser = crate::output::quantile)]
    quantile: Vec<Quantile>,
    /// Quantile at which --error-max limits the error.
    #[arg(long, value_name = "Q", default_value = "0.99", value_parser = crate::output::quantile)]
    error_at: Quantile,
    /// Maximum error at --error-at, relative to the exact quantile.
    #[arg(long, value_name = "RATIO", default_value = "0.05", value_parser = error_max)]
    error_max: f64,
    /// Seed of the values that are drawn without --data.
    #[arg(long, default_value_t = 1, conflicts_with = "data")]
    seed: u64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Write a self-contained HTML page with the tables and a plot.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Unit {
    Ns,
    Us,
    Ms,
    S,
}

impl Unit {
    const fn duration(self) -> Duration {
        match self {
            Self::Ns => Duration::from_ns(1),
            Self::Us => Duration::from_us(1),
            Self::Ms => Duration::from_ms(1),
            Self::S => Duration::from_secs(1),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Ns => "ns",
            Self::Us => "us",
            Self::Ms => "ms",
            Self::S => "s",
        }
    }

    /// Parses a duration, rounded to nanoseconds.
    fn read(self, text: &str) -> Result<Duration, String> {
        let expected = || format!("expected a number of {} from 0 to 100 days", self.name());
        let number: f64 =
            text.trim().parse().map_err(|_| format!("{}, found {text:.40?}", expected()))?;
        let ns = number * self.duration().as_ns_f64();
        // Below that maximum, floats represent every nanosecond.
        if (0.0..=DURATION_MAX.as_ns_f64()).contains(&ns) {
            Ok(Duration::from_ns_f64(ns))
        } else {
            Err(format!("{}, found {number}", expected()))
        }
    }
}

const DURATION_MAX: Duration = Duration::from_secs(100 * 24 * 3_600);

/// Maximum number of layouts, and of quantiles.
const LAYOUTS_MAX: usize = 100;

pub(crate) fn run(args: &BucketsArgs) -> anyhow::Result<ExitCode> {
    let layouts = layouts(args)?;
    if args.quantile.len() > LAYOUTS_MAX {
        let count = args.quantile.len();
        return Err(usage_error(&format!("--quantile: {count}, expected at most {LAYOUTS_MAX}")));
    }
    let data = data(args)?;
    let wanted = Wanted {
        quantiles: &args.quantile,
        error_at: args.error_at,
        error_max: args.error_max,
        unit: args.unit.duration(),
    };
    let report = Report::new(&data, &layouts, &wanted);
    if let Some(file) = &args.html {
        std::fs::write(file, page::render(&report)).with_context(|| file.display().to_string())?;
    }
    let text = match args.format {
        Format::Table => format!("{}\n{}", table::render(&report), plot::render(&report)),
        Format::Json => format!("{}\n", json::render(&report)),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn data(args: &BucketsArgs) -> anyhow::Result<Data> {
    let Some(file) = &args.data else { return Ok(Data::drawn(args.seed)) };
    let read = values::read(file, args.column.as_deref(), args.unit)?;
    Ok(Data { name: Some(input::name(file)), values: read, drawn: None })
}

/// The layouts of the arguments, or the default layouts.
fn layouts(args: &BucketsArgs) -> anyhow::Result<Vec<Layout>> {
    let BucketsArgs { growth, bounds, scale, schema, unit, .. } = args;
    if growth.is_empty() && bounds.is_empty() && scale.is_empty() && schema.is_empty() {
        let mut args = args.clone();
        args.growth = vec![1.2, 1.4, 2.0];
        args.bounds = vec!["prometheus".to_owned()];
        (args.scale, args.schema) = (vec![3], vec![3]);
        return layouts(&args);
    }
    let mut layouts = Vec::new();
    for growth in growth {
        let layout = Layout::growth(*growth, unit.duration());
        layouts.push(layout.map_err(|error| usage_error(&format!("--growth: {error}")))?);
    }
    for list in bounds {
        layouts.push(listed(list, *unit)?);
    }
    for scale in scale {
        let scale = Scale::new(*scale);
        layouts.push(Layout::otel_scale(
            scale.map_err(|error| usage_error(&format!("--scale: {error}")))?,
        ));
    }
    for schema in schema {
        let layout = Layout::prometheus_native(*schema);
        layouts.push(layout.map_err(|error| usage_error(&format!("--schema: {error}")))?);
    }
    if layouts.len() > LAYOUTS_MAX {
        let count = layouts.len();
        return Err(usage_error(&format!("{count} layouts, expected at most {LAYOUTS_MAX}")));
    }
    Ok(layouts)
}

fn listed(list: &str, unit: Unit) -> anyhow::Result<Layout> {
    match list {
        "prometheus" => return Ok(Layout::prometheus_default()),
        "otel" => return Ok(Layout::otel_default()),
        _ => {}
    }
    let bounds: Result<Vec<Duration>, String> =
        list.split(',').map(|bound| unit.read(bound)).collect();
    let bounds = bounds.map_err(|error| usage_error(&format!("--bounds: {error}")))?;
    let name = match &*bounds {
        [_] => "1 bound".to_owned(),
        bounds => format!("{} bounds", bounds.len()),
    };
    Layout::bounds(&name, &bounds).map_err(|error| usage_error(&format!("--bounds: {error}")))
}

fn error_max(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.001..=10.0).contains(number));
    number.ok_or_else(|| "expected a share from 0.001 to 10 (0.05 for 5 %)".to_owned())
}

//! `curtail bench calibrate`: measures false alarms and detections of comparisons whose truth is known, on a model of
//! stalls or on the blocks of a run.
//!
//! `curtail_load::calibrate` computes these rates, and this module prints them.
//! **Limits**: at most [`COMPARISONS_MAX`] comparisons of [`BLOCKS_MAX`] blocks; a comparison takes about half a
//! millisecond a block.

mod recorded;

pub(crate) use recorded::RecordedError;

use crate::output::{Format, print};
use crate::terminal::ProgressLine;
use anyhow::Context as _;
use clap::Args;
use curtail_load::LatencyKind;
use curtail_load::calibrate::{Calibration, Plan, Rate, Row, on_model, on_recorded};
use curtail_load::compare::BLOCKS_DEFAULT;
use curtail_load::stalls::{REQUESTS, Stalls};
use curtail_report::file;
use curtail_text::numbers::{percent_to, short, thousands};
use curtail_text::{Columns, Left, Page, Right};
use recorded::Recorded;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// With more comparisons, the interval is below a tenth of a percent.
const COMPARISONS_MAX: i64 = 100_000;

/// Blocks of 15 s for A and for B then take more than eight hours.
const BLOCKS_MAX: i64 = 1_000;

const NOTHING: &str = "–";

/// Compare A against A, to measure the rate of false alarms
///
/// A and B are the same service, so every difference that a comparison reports
/// is a false alarm. Without RESULTS, all latencies come from a model of a service
/// with stalls. With RESULTS, they come from the recorded blocks of one arm. The
/// command takes these blocks two by two, and draws at random which of the two
/// belongs to A. It also measures the false alarms of common statistical tests on
/// the same requests. A second pass multiplies all latencies of B by --shift, and
/// measures how often a comparison detects the difference.
///
/// To calibrate on your own service, first compare it with itself:
/// `curtail bench compare URL URL --json a.json`. Then run
/// `curtail bench calibrate a.json`. The results of any other run with many blocks
/// are suitable, too.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail bench calibrate
  curtail bench calibrate --blocks 20 --shift 1.25
  curtail bench calibrate --comparisons 1000 --seed 7 --format json
  curtail bench calibrate results.json --arm hedged"
)]
pub(crate) struct CalibrateArgs {
    /// Results file (JSON) whose recorded blocks replace the model.
    #[arg(value_name = "RESULTS", conflicts_with = "blocks")]
    results: Option<PathBuf>,
    /// Name of the arm in RESULTS [default: the first arm].
    #[arg(long, value_name = "NAME", requires = "results")]
    arm: Option<String>,
    /// Number of comparisons of A against A.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=COMPARISONS_MAX))]
    comparisons: u32,
    /// Number of blocks for A, and for B; a block has 15,000 requests.
    #[arg(long, default_value_t = BLOCKS_DEFAULT as u32, value_parser = clap::value_parser!(u32).range(2..=BLOCKS_MAX))]
    blocks: u32,
    /// Seed of all randomness.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Factor by which the second pass multiplies all latencies of B: 0.1 to 10.
    #[arg(long, default_value_t = 1.1, value_parser = shift)]
    shift: f64,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

fn shift(text: &str) -> Result<f64, String> {
    let shift: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.1..=10.0).contains(&shift) {
        Ok(shift)
    } else {
        Err("expected a factor from 0.1 to 10 (1.1 for a tenth longer)".to_owned())
    }
}

pub(crate) fn run(args: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    let plan = Plan {
        comparisons: args.comparisons,
        blocks: usize::try_from(args.blocks)?,
        seed: args.seed,
        shift: args.shift,
        ..Plan::default()
    };
    let recorded = args.results.as_ref().map(|path| {
        let results = file::read(path)?;
        Recorded::of(&results, args.arm.as_deref()).with_context(|| path.display().to_string())
    });
    let recorded = recorded.transpose()?;
    let mut progress = ProgressLine::on_stderr(None);
    let report = |done| progress.show(|| format!("{done} of {} comparisons", plan.comparisons));
    let (calibration, from) = match &recorded {
        None => (on_model(&Stalls::new(), &plan, report), Source::Model),
        Some(Recorded { arm, blocks }) => {
            (on_recorded(blocks, LatencyKind::Response, &plan, report), Source::Arm(arm))
        }
    };
    progress.clear();
    let text = match args.format {
        Format::Table => table(&calibration, &from),
        Format::Json => format!("{}\n", json(&calibration, &from)),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The source of the blocks.
enum Source<'a> {
    /// The model of stalls.
    Model,
    /// The blocks of this arm of a run.
    Arm(&'a str),
}

fn table(calibration: &Calibration, from: &Source<'_>) -> String {
    let Calibration { plan, rows, any_alarm, alarms_mann_whitney } = calibration;
    let mut page = Page::default();
    let Plan { comparisons, blocks, seed, .. } = plan;
    let what = match from {
        Source::Model => format!("{} requests a block", thousands(REQUESTS as u64)),
        Source::Arm(arm) => format!("all of arm {arm}"),
    };
    page.line(format!("{comparisons} comparisons of {blocks} blocks an arm, {what}, seed {seed}"));
    page.blank();
    let columns = Columns::new([Left(6), Right(23), Right(7), Right(9), Right(23), Right(7)]);
    let shifted = format!("found, all x {}", short(plan.shift, 4));
    page.row(&columns, ["", "A/A false alarms", "", "", &shifted, "design"]);
    page.row(&columns, ["", "verdicts (95 %)", "alone", "bootstrap", "(95 %)", "effect"]);
    for row in rows {
        let Row { name, alarms, alarms_alone, alarms_bootstrap, found, design_effect } = row;
        let effect = if alarms.of > 0 { format!("{design_effect:.0}") } else { NOTHING.to_owned() };
        let alone = percent(alarms_alone.ratio());
        let bootstrap = percent(alarms_bootstrap.ratio());
        let cells =
            [*name, &with_interval(*alarms), &alone, &bootstrap, &with_interval(*found), &effect];
        page.row(&columns, cells);
    }
    page.row(&columns, ["any", &with_interval(*any_alarm)]);
    page.blank();
    page.line(format!("Mann-Whitney on all requests: {}", with_interval(*alarms_mann_whitney)));
    let counted: Vec<String> = rows
        .iter()
        .filter(|row| row.alarms.of < plan.comparisons)
        .map(|row| format!("{} in {}", row.name, row.alarms.of))
        .collect();
    if !counted.is_empty() {
        page.wrapped("", &format!("With enough requests for a verdict: {}", counted.join(", ")));
    }
    page.finish()
}

fn with_interval(rate: Rate) -> String {
    rate.interval().map_or_else(
        || NOTHING.to_owned(),
        |(low, high)| {
            let share = percent(rate.ratio());
            format!("{share} ({:.1} to {:.1})", low * 100.0, high * 100.0)
        },
    )
}

fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| NOTHING.to_owned(), |ratio| percent_to(ratio, 1))
}

fn json(calibration: &Calibration, from: &Source<'_>) -> Value {
    let Calibration { plan, rows, any_alarm, alarms_mann_whitney } = calibration;
    let row = |row: &Row| {
        json!({
            "percentile": row.name,
            "alarms": rate(row.alarms),
            "alarms_alone": rate(row.alarms_alone),
            "alarms_bootstrap": rate(row.alarms_bootstrap),
            "found": rate(row.found),
            "design_effect": row.design_effect,
        })
    };
    let (arm, requests) = match from {
        Source::Model => (None, Some(REQUESTS)),
        Source::Arm(arm) => (Some(arm), None),
    };
    json!({
        "schema": "curtail.calibrate/1",
        "arm": arm,
        "seed": plan.seed,
        "comparisons": plan.comparisons,
        "blocks": plan.blocks,
        "requests_per_block": requests,
        "shift_ratio": plan.shift,
        "level_ratio": plan.rule.level,
        "percentiles": rows.iter().map(row).collect::<Vec<_>>(),
        "any_alarm": rate(*any_alarm),
        "alarms_mann_whitney": rate(*alarms_mann_whitney),
    })
}

fn rate(rate: Rate) -> Value {
    json!({ "hits": rate.hits, "of": rate.of, "ratio": rate.ratio(), "interval": rate.interval() })
}

#[cfg(test)]
mod tests {
    use super::{Source, json, shift, table};
    use curtail_load::calibrate::{Calibration, Plan, Rate, Row};
    use expect_test::expect;

    fn calibration() -> Calibration {
        let rate = |hits| Rate { hits, of: 200 };
        let row = |name, alarms| Row {
            name,
            alarms: rate(alarms),
            alarms_alone: rate(11),
            alarms_bootstrap: rate(123),
            found: rate(177),
            design_effect: 20.9,
        };
        let none = Rate::default();
        let missing = Row {
            alarms: none,
            alarms_alone: none,
            alarms_bootstrap: none,
            found: none,
            design_effect: 0.0,
            name: "p99.99",
        };
        Calibration {
            plan: Plan::default(),
            rows: vec![row("p50", 0), row("p99", 200), missing],
            any_alarm: rate(8),
            alarms_mann_whitney: rate(161),
        }
    }

    #[test]
    fn the_table_says_everything_within_80_columns() {
        let table = table(&calibration(), &Source::Model);
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
        expect![[r#"
            200 comparisons of 80 blocks an arm, 15,000 requests a block, seed 1

                          A/A false alarms                          found, all x 1.1  design
                           verdicts (95 %)   alone bootstrap                  (95 %)  effect
            p50         0.0 % (0.0 to 1.9)   5.5 %    61.5 %   88.5 % (83.3 to 92.2)      21
            p99    100.0 % (98.1 to 100.0)   5.5 %    61.5 %   88.5 % (83.3 to 92.2)      21
            p99.99                       –       –         –                       –       –
            any         4.0 % (2.0 to 7.7)

            Mann-Whitney on all requests: 80.5 % (74.5 to 85.4)
            With enough requests for a verdict: p99.99 in 0
        "#]]
        .assert_eq(&table);
    }

    #[test]
    fn the_json_has_every_figure_under_its_name() {
        let json = json(&calibration(), &Source::Model);
        assert_eq!(json["schema"], "curtail.calibrate/1");
        assert_eq!(json["seed"], 1);
        assert_eq!(json["percentiles"][1]["percentile"], "p99");
        assert_eq!(json["percentiles"][1]["alarms"]["ratio"], 1.0);
        assert_eq!(json["percentiles"][0]["found"]["hits"], 177);
        assert_eq!(json["percentiles"][2]["alarms"]["ratio"], serde_json::Value::Null);
        assert_eq!(json["any_alarm"]["of"], 200);
        assert_eq!(json["alarms_mann_whitney"]["hits"], 161);
    }

    #[test]
    fn a_shift_is_a_factor() {
        assert_eq!(shift("1.1"), Ok(1.1));
        assert!(shift("0").is_err() && shift("NaN").is_err() && shift("ten").is_err());
    }
}

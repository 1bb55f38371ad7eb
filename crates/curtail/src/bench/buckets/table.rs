//! The report as tables of at most 80 columns.

use super::report::{BEYOND_MIN, Figure, Report, Row, SAMPLES};
use curtail_load::buckets::{Coarsest, Layout};
use curtail_units::{Duration, Quantile};
use std::fmt::Write as _;

/// Quantiles side by side.
const COLUMNS: usize = 4;

const NAME_LEN: usize = 17;
const CELL_LEN: usize = 14;
const NOTHING: &str = "–";

/// Most SDKs lower the scale until so many buckets are enough.
const SDK_BUCKETS: u64 = 160;

pub(super) fn render(report: &Report<'_>) -> String {
    let mut text = head(report);
    for (nth, quantiles) in report.wanted.quantiles.chunks(COLUMNS).enumerate() {
        text.push('\n');
        text.push_str(&table(report, nth * COLUMNS, quantiles));
    }
    text.push('\n');
    for note in notes(report) {
        writeln!(text, "{note}").expect("a text takes everything");
    }
    text
}

/// What the data are.
fn head(report: &Report<'_>) -> String {
    let count = report.data.values.len();
    match (&report.data.name, &report.data.drawn) {
        (_, Some((seed, _))) => format!(
            "{SAMPLES} samples of {count} values of Beta(2, 5) × 70 ms, as in Google's lab:\n\
             means, and ± two standard deviations of one sample; seed {seed}\n"
        ),
        (name, None) => format!("{}: {count} values\n", name.as_deref().unwrap_or("data")),
    }
}

fn table(report: &Report<'_>, first: usize, quantiles: &[Quantile]) -> String {
    let places = first..first + quantiles.len();
    let mut text = line(unit(report).0, "buckets", quantiles.iter().map(|at| name(*at)));
    text += &line("exact", "", report.exact[places.clone()].iter().map(|f| value(report, *f)));
    for Row { layout, buckets, reads, .. } in &report.rows {
        let reads = &reads[places.clone()];
        let values = reads.iter().map(|(figure, _)| value(report, *figure));
        text += &line(layout.name(), &buckets.to_string(), values);
        text += &line("", "", reads.iter().map(|(_, error)| error.map_or(NOTHING.into(), percent)));
    }
    text
}

fn line(name: &str, buckets: &str, cells: impl Iterator<Item = String>) -> String {
    let cells: String = cells.map(|cell| format!("{cell:>CELL_LEN$}")).collect();
    format!("{name:NAME_LEN$}{buckets:>7}{cells}\n")
}

/// What follows from it.
fn notes(report: &Report<'_>) -> Vec<String> {
    let enough = &report.enough;
    let at = name(report.wanted.error_at);
    let mut notes = vec![format!(
        "The coarsest that keep {at} within {}, wherever their bounds fall:",
        unsigned(report.wanted.error_max)
    )];
    let found = |found: &Option<Coarsest>| {
        found.as_ref().map_or(NOTHING.to_owned(), |Coarsest { layout, worst }| {
            format!("{layout} ({})", percent(*worst))
        })
    };
    let always = |layout: &Option<Layout>| layout.as_ref().map_or(NOTHING, Layout::name).to_owned();
    notes.push(format!("  these data  {}, {}", found(&enough.growth), found(&enough.scale)));
    notes.push(format!(
        "  any data    {}, {}",
        always(&enough.growth_always),
        always(&enough.scale_always)
    ));
    let thin: Vec<String> = report.thin().into_iter().map(name).collect();
    if !thin.is_empty() {
        let thin = thin.join(", ");
        notes.push(format!("Fewer than {BEYOND_MIN} values lie beyond {thin}: chance has a say."));
    }
    let is_wide =
        |row: &&Row| row.layout.name().starts_with("otel scale") && row.buckets > SDK_BUCKETS;
    for row in report.rows.iter().filter(is_wide) {
        notes.push(format!(
            "{}: {} buckets; most SDKs lower the scale at {SDK_BUCKETS}.",
            row.layout, row.buckets
        ));
    }
    notes
}

/// As people call it: p99.9.
pub(super) fn name(at: Quantile) -> String {
    // Rounded, so that 0.999 is not 99.90000000000001.
    let percent = (at.get() * 1e8).round() / 1e6;
    format!("p{percent}")
}

/// The largest unit, and its worth, in which the first of the true quantiles is at least 1.
fn unit(report: &Report<'_>) -> (&'static str, Duration) {
    let units =
        [("s", Duration::from_secs(1)), ("ms", Duration::from_ms(1)), ("us", Duration::from_us(1))];
    let first_ns = report.exact.first().map_or(0.0, |figure| figure.ns);
    let found = units.into_iter().find(|(_, unit)| first_ns >= unit.as_ns_f64());
    found.unwrap_or(("ns", Duration::from_ns(1)))
}

fn value(report: &Report<'_>, figure: Figure) -> String {
    let Figure { ns, spread_ns } = figure;
    let (_, unit) = unit(report);
    let (value, spread) = (ns / unit.as_ns_f64(), spread_ns.map(|ns| ns / unit.as_ns_f64()));
    let decimals = decimals(value);
    spread.map_or_else(
        || format!("{value:.decimals$}"),
        |spread| format!("{value:.decimals$} ±{spread:.decimals$}"),
    )
}

/// So many that four digits are left.
fn decimals(value: f64) -> usize {
    match value {
        0.0..9.9995 => 3,
        0.0..99.995 => 2,
        0.0..999.95 => 1,
        _ => 0,
    }
}

/// A share with its sign: +25.4 %.
pub(super) fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    let decimals = usize::from(percent.abs() < 99.95);
    // What rounds to nothing has no sign.
    if percent.abs() < 0.05 { "0.0 %".to_owned() } else { format!("{percent:+.decimals$} %") }
}

fn unsigned(ratio: f64) -> String {
    format!("{} %", (ratio * 1e6).round() / 1e4)
}

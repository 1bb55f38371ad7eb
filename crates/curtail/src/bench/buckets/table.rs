//! The report as tables of at most 80 columns.

use super::report::{BEYOND_MIN, Figure, Report, Row, SAMPLES};
use curtail_load::buckets::{Coarsest, Layout};
use curtail_text::numbers::{four_digits, percentile_name, short, signed_percent};
use curtail_text::{Columns, Left, Page, Right};
use curtail_units::{Duration, Quantile};

const COLUMNS: usize = 4;

const NOTHING: &str = "–";

/// The usual maximum of buckets; most SDKs lower the scale to stay within this maximum.
const SDK_BUCKETS: u64 = 160;

pub(super) fn render(report: &Report<'_>) -> String {
    let mut page = Page::default();
    head(report, &mut page);
    for (nth, quantiles) in report.wanted.quantiles.chunks(COLUMNS).enumerate() {
        page.blank();
        table(report, nth * COLUMNS, quantiles, &mut page);
    }
    page.blank();
    for note in notes(report) {
        page.line(note);
    }
    page.finish()
}

fn head(report: &Report<'_>, page: &mut Page) {
    let count = report.data.values.len();
    match (&report.data.name, &report.data.drawn) {
        (_, Some((seed, _))) => {
            page.line(format!(
                "{SAMPLES} samples of {count} values of Beta(2, 5) × 70 ms, as in Google's lab:"
            ));
            page.line(format!("means, ± two standard deviations between samples; seed {seed}"));
        }
        (name, None) => {
            page.line(format!("{}: {count} values", name.as_deref().unwrap_or("data")));
        }
    }
}

fn table(report: &Report<'_>, first: usize, quantiles: &[Quantile], page: &mut Page) {
    let places = first..first + quantiles.len();
    let columns = Columns::new([Left(17), Right(6), Right(13), Right(13), Right(13), Right(13)]);
    let mut row = |name: &str, buckets: &str, cells: Vec<String>| {
        let names = [name.to_owned(), buckets.to_owned()];
        page.row(&columns, names.into_iter().chain(cells));
    };
    let names = quantiles.iter().copied().map(percentile_name);
    row(unit(report).0, "buckets", names.collect());
    let exact = report.exact[places.clone()].iter();
    row("exact", "", exact.map(|figure| value(report, *figure)).collect());
    for Row { layout, buckets, reads, .. } in &report.rows {
        let reads = &reads[places.clone()];
        let values = reads.iter().map(|(figure, _)| value(report, *figure));
        row(layout.name(), &buckets.to_string(), values.collect());
        let errors = reads.iter().map(|(_, error)| error.map_or(NOTHING.into(), signed_percent));
        row("", "", errors.collect());
    }
}

fn notes(report: &Report<'_>) -> Vec<String> {
    let coarsest = &report.coarsest;
    let at = percentile_name(report.wanted.error_at);
    let mut notes = vec![format!(
        "The coarsest that keep {at} within {}, wherever their bounds fall:",
        format_args!("{} %", short(100.0 * report.wanted.error_max, 4))
    )];
    let found = |found: &Option<Coarsest>| {
        found.as_ref().map_or(NOTHING.to_owned(), |Coarsest { layout, worst }| {
            format!("{layout} ({})", signed_percent(*worst))
        })
    };
    let always = |layout: &Option<Layout>| layout.as_ref().map_or(NOTHING, Layout::name).to_owned();
    notes.push(format!("  these data  {}, {}", found(&coarsest.growth), found(&coarsest.scale)));
    notes.push(format!(
        "  any data    {}, {}",
        always(&coarsest.growth_always),
        always(&coarsest.scale_always)
    ));
    let thin: Vec<String> = report.thin().into_iter().map(percentile_name).collect();
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

/// The largest unit in which the first exact quantile is at least 1.
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
    let shown = four_digits(value);
    // As many decimals as the value has.
    let decimals = shown.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    match spread {
        None => shown,
        Some(spread) => format!("{shown} ±{spread:.decimals$}"),
    }
}

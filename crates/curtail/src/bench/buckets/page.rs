//! The report as a page: the tables, and the error along all quantiles as a plot in SVG. It needs no other file.

use super::report::{self, Report, Row, SHOWN_MAX};
use super::table;
use curtail_report::html::STYLE;
use curtail_report::html::svg::{COLOURS, colour, escaped};
use std::fmt::Write as _;

/// The plot within its margins.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 20.0;

pub(super) fn render(report: &Report<'_>) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>How wrong is a bucketed percentile?</title>\n<style>{STYLE}</style>\n<main>\n\
         <h1>How wrong is a bucketed percentile?</h1>\n<figure>\n{}</figure>\n<pre>{}</pre>\n</main>\n</html>\n",
        plot(&report.rows),
        escaped(&table::render(report)),
    )
}

fn plot(rows: &[Row]) -> String {
    let points = || rows.iter().flat_map(|row| &row.curve);
    let shown = |error: f64| error.clamp(-SHOWN_MAX, SHOWN_MAX);
    let low = points().map(|(_, error)| shown(*error)).fold(-0.01, f64::min);
    let high = points().map(|(_, error)| shown(*error)).fold(0.01, f64::max);
    let nines_max = points().map(|(nines, _)| *nines).fold(1.0, f64::max);
    let x = |nines: f64| LEFT + WIDTH * nines / nines_max;
    let y = |error: f64| TOP + HEIGHT * (high - shown(error)) / (high - low);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"Error by quantile\">\n",
        LEFT + WIDTH + 20.0,
        TOP + HEIGHT + 40.0 + 20.0 * rows.len().div_ceil(4) as f64,
    );
    let mut add = |args: std::fmt::Arguments<'_>| {
        svg.write_fmt(args).expect("a text takes everything");
        svg.push('\n');
    };
    let (bottom, right) = (TOP + HEIGHT, LEFT + WIDTH);
    for (error, class) in [(low, "grid"), (high, "grid"), (0.0, "zero")] {
        let (at, label) = (y(error), table::percent(error));
        add(format_args!(
            "<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 6.0,
            at + 4.0,
        ));
    }
    for (nines, name) in report::ticks(nines_max) {
        let at = x(nines);
        add(format_args!(
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
            bottom + 16.0,
        ));
    }
    for (nth, row) in rows.iter().enumerate() {
        let (curve, name) = (colour(nth), nth % COLOURS);
        let points =
            row.curve.iter().map(|(nines, error)| format!("{:.1},{:.1}", x(*nines), y(*error)));
        let points = points.collect::<Vec<_>>().join(" ");
        add(format_args!("<polyline class=\"{curve} thin\" points=\"{points}\"/>"));
        let (column, line) = ((nth % 4) as f64, (nth / 4) as f64);
        add(format_args!(
            "<text style=\"fill:var(--c{name})\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT + column * WIDTH / 4.0,
            bottom + 40.0 + 20.0 * line,
            escaped(row.layout.name()),
        ));
    }
    svg + "</svg>"
}

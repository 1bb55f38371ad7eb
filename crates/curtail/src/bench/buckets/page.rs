//! The report as a self-contained HTML page: the tables, and a plot of the error by quantile.

use super::report::{Report, Row, SHOWN_MAX};
use super::table;
use curtail_report::figures::nine_ticks;
use curtail_report::html;
use curtail_report::html::svg::{Frame, Picture, Svg, color, escaped};
use curtail_text::numbers::signed_percent;

const TITLE: &str = "How wrong is a bucketed percentile?";

const HEIGHT: f64 = 320.0;

pub(super) fn render(report: &Report<'_>) -> String {
    let figure = html::figure("", "", Some(plot(&report.rows)), &[]);
    let table = escaped(&table::render(report));
    html::page(TITLE, &format!("<h1>{TITLE}</h1>\n{figure}<pre>{table}</pre>\n"))
}

fn plot(rows: &[Row]) -> Picture {
    let points = || rows.iter().flat_map(|row| &row.curve);
    let shown = |error: f64| error.clamp(-SHOWN_MAX, SHOWN_MAX);
    let low = points().map(|(_, error)| shown(*error)).fold(-0.01, f64::min);
    let high = points().map(|(_, error)| shown(*error)).fold(0.01, f64::max);
    let nines_max = points().map(|(nines, _)| *nines).fold(1.0, f64::max);
    let share = |error: f64| (shown(error) - low) / (high - low);
    let frame = Frame::new(20.0, HEIGHT);
    let mut svg = Svg::new(frame.bottom + 44.0, "Error by quantile");
    for error in [low, high, 0.0] {
        frame.tick_y(&mut svg, share(error), &signed_percent(error));
    }
    let zero = frame.y(share(0.0));
    svg.line("zero", (frame.left, zero), (frame.right, zero));
    for (nines, name) in nine_ticks(nines_max) {
        frame.tick_x(&mut svg, nines / nines_max, name);
    }
    for (nth, row) in rows.iter().enumerate() {
        let points = row.curve.iter();
        let points =
            points.map(|(nines, error)| (frame.x(nines / nines_max), frame.y(share(*error))));
        svg.polyline(&class(nth), points.map(Some));
    }
    let legend = rows.iter().enumerate();
    let legend = legend.map(|(nth, row)| (class(nth), row.layout.name().to_owned()));
    Picture { svg: svg.finish(), legend: legend.collect() }
}

fn class(nth: usize) -> String {
    format!("{} thin", color(nth))
}

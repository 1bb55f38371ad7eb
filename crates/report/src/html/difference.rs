//! The plot of a comparison: the ratio of each percentile with its interval, on a logarithmic axis.

use super::svg::{Anchor, Frame, Picture, Svg};
use crate::difference::{Comparison, change};
use curtail_load::compare::{Difference, Percentile, Verdict};

const HEIGHT: f64 = 240.0;

/// The ratios above 1 that an axis may name; below 1, their inverses.
const STEPS: [f64; 12] = [1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0];

struct Point {
    name: &'static str,
    low: f64,
    ratio: f64,
    high: f64,
    verdict: Verdict,
}

impl Point {
    fn of(percentile: &Percentile) -> Option<Self> {
        let Difference { ratio, interval: (low, high), .. } = percentile.difference?;
        let is_drawn = [low, ratio, high].iter().all(|ratio| ratio.is_finite() && *ratio > 0.0);
        let Percentile { name, verdict, .. } = *percentile;
        is_drawn.then_some(Self { name, low, ratio, high, verdict })
    }
}

pub(super) fn draw(comparison: &Comparison) -> Option<Picture> {
    let points: Vec<Point> = comparison.percentiles.iter().filter_map(Point::of).collect();
    let farthest =
        points.iter().flat_map(|p| [p.low, p.ratio, p.high]).map(|ratio| ratio.ln().abs());
    let reach = farthest.fold(0.02_f64, f64::max) * 1.1;
    let count = points.len();
    if count == 0 {
        return None;
    }
    let frame = Frame::new(30.0, HEIGHT);
    let mut svg = Svg::new(frame.bottom + 58.0, "How much longer or shorter each percentile is");
    let y = |ratio: f64| (ratio.ln() / reach).mul_add(0.5, 0.5);
    for ratio in ticks(reach) {
        frame.tick_y(&mut svg, y(ratio), &label(ratio));
    }
    frame.outline(&mut svg);
    svg.line("zero", (frame.left, frame.y(0.5)), (frame.right, frame.y(0.5)));
    let x = |nth: usize| frame.x((nth as f64 + 0.5) / count as f64);
    let mut band = String::new();
    let upper = points.iter().enumerate().map(|(nth, p)| (x(nth), frame.y(y(p.high))));
    let lower = points.iter().enumerate().rev().map(|(nth, p)| (x(nth), frame.y(y(p.low))));
    for (nth, (x, y)) in upper.chain(lower).enumerate() {
        let command = if nth == 0 { 'M' } else { 'L' };
        band += &format!("{command}{x:.1} {y:.1}");
    }
    svg.path("band", &format!("{band}z"));
    svg.polyline(
        "neutral thin",
        points.iter().enumerate().map(|(nth, p)| Some((x(nth), frame.y(y(p.ratio))))),
    );
    for (nth, point) in points.into_iter().enumerate() {
        let Point { name, low, ratio, high, verdict } = point;
        let (top, bottom) = (frame.y(y(high)), frame.y(y(low)));
        svg.line("whisker", (x(nth), top), (x(nth), bottom));
        svg.line("whisker", (x(nth) - 5.0, top), (x(nth) + 5.0, top));
        svg.line("whisker", (x(nth) - 5.0, bottom), (x(nth) + 5.0, bottom));
        let about = format!("{}: {} ({} to {})", name, change(ratio), change(low), change(high));
        svg.dot("estimate", (x(nth), frame.y(y(ratio))), &about);
        let (word, class) = (verdict.name(), class(verdict));
        svg.text("tick", (x(nth), frame.bottom + 16.0), Anchor::Middle, name);
        svg.text(&format!("verdict {class}"), (x(nth), frame.bottom + 33.0), Anchor::Middle, word);
    }
    let Comparison { base, other, .. } = comparison;
    svg.text(
        "axis",
        (4.0, 16.0),
        Anchor::Start,
        &format!("latency of {other} against {base}; lower is better"),
    );
    svg.text("axis", (frame.right, frame.bottom + 52.0), Anchor::End, "percentile of requests");
    Some(Picture { svg: svg.finish(), legend: Vec::new() })
}

fn ticks(reach: f64) -> Vec<f64> {
    let room = STEPS.into_iter().filter(|step| step.ln() <= reach);
    // Those that would stand too near to the next one outwards are left out, beginning there.
    let mut shown: Vec<f64> = Vec::new();
    for step in room.rev() {
        let is_apart = |outer: &f64| outer.ln() - step.ln() > reach / 7.0;
        if shown.last().is_none_or(is_apart) && step.ln() > reach / 9.0 {
            shown.push(step);
        }
    }
    let below = shown.clone().into_iter().map(|step| 1.0 / step);
    below.chain([1.0]).chain(shown.iter().copied()).collect()
}

fn label(ratio: f64) -> String {
    let percent = 100.0 * (ratio - 1.0);
    if percent.abs() < 0.05 { "same".to_owned() } else { format!("{percent:+.0} %") }
}

const fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better | Verdict::Worse | Verdict::Equivalent => verdict.name(),
        Verdict::Undecided { .. } | Verdict::NotEnough { .. } | Verdict::Failed => "undecided",
    }
}

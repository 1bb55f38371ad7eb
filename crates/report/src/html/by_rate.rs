//! The plot of a sweep: latency against the planned rate, both axes logarithmic.
//!
//! A percentile with too few requests, or among the failures, is left out.

use super::svg::{Frame, LogScale, Picture, Svg, color};
use crate::figures::{ArmFigures, Figure, quantile};
use curtail_load::LatencyKind;
use curtail_text::numbers;

const DRAWN: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// Maximum number of rates that the axis names.
const NAMES_MAX: usize = 8;

const HEIGHT: f64 = 300.0;

pub(super) fn draw(arms: &[ArmFigures]) -> Option<Picture> {
    let rates: Vec<f64> = arms.iter().filter_map(|arm| arm.rate_wanted).collect();
    let (first, last) = (*rates.first()?, *rates.last()?);
    if rates.len() < arms.len() || last <= first {
        return None;
    }
    let of = |arm: &ArmFigures, q| {
        Figure::of(&arm.latencies, LatencyKind::Response, quantile(q)).latency()
    };
    let all = || DRAWN.iter().flat_map(|(_, q)| arms.iter().filter_map(move |arm| of(arm, *q)));
    let frame = Frame::new(26.0, HEIGHT);
    let scale = LogScale::new(all().min()?, all().max()?);
    let mut svg = Svg::new(frame.bottom + 40.0, "Latency against the rate of requests");
    for (share, label) in scale.ticks() {
        frame.tick_y(&mut svg, share, &label);
    }
    let share = |rate: f64| (rate / first).ln() / (last / first).ln();
    let mut named: Vec<f64> = Vec::new();
    for rate in &rates {
        let is_apart = |before: &f64| share(*rate) - share(*before) >= 1.0 / NAMES_MAX as f64;
        if named.last().is_none_or(is_apart) {
            frame.tick_x(&mut svg, share(*rate), &numbers::rate(*rate));
            named.push(*rate);
        }
    }
    frame.outline(&mut svg);
    let mut legend = Vec::new();
    for (nth, (name, q)) in DRAWN.into_iter().enumerate() {
        let class = format!("{} thick", color(nth));
        let points = arms
            .iter()
            .zip(&rates)
            .map(|(arm, rate)| Some((frame.x(share(*rate)), frame.y(scale.share(of(arm, q)?)))));
        svg.polyline(&class, points);
        legend.push((class, name.to_owned()));
    }
    frame.name_axes(&mut svg, "response", "requests a second that were wanted");
    Some(Picture { svg: svg.finish(), legend })
}

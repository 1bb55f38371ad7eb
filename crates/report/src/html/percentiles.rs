//! The plot of latency by percentile: every nine has the same width, and both axes are logarithmic.
//!
//! A line is dotted where fewer than ten requests are longer, and ends in a cross where the failures begin.

use super::svg::{Frame, LogScale, Picture, Svg, color};
use crate::figures::{ArmFigures, nine_ticks};
use curtail_load::compare::INDICATIVE_MIN;
use curtail_load::{Latencies, LatencyKind};
use curtail_units::Duration;

const HEIGHT: f64 = 340.0;

pub(super) fn draw(arms: &[ArmFigures]) -> Option<Picture> {
    let seen: Vec<&ArmFigures> =
        arms.iter().filter(|arm| arm.latencies.response.count() > 0).collect();
    let both = |arm: &&ArmFigures| [arm.latencies.response.clone(), arm.latencies.service.clone()];
    let histograms: Vec<_> = seen.iter().flat_map(both).collect();
    let low = histograms.iter().filter_map(curtail_sketch::Histogram::min).min()?;
    let high = histograms.iter().filter_map(curtail_sketch::Histogram::max).max()?;
    let most = seen.iter().map(|arm| arm.latencies.count()).max()?;
    let nines_max = (most as f64).log10().max(1.0);

    let frame = Frame::new(26.0, HEIGHT);
    let scale = LogScale::new(low, high);
    let mut svg =
        Svg::new(frame.bottom + 40.0, "Latency by percentile, for each arm on both clocks");
    for (share, label) in scale.ticks() {
        frame.tick_y(&mut svg, share, &label);
    }
    for (nines, label) in nine_ticks(nines_max) {
        frame.tick_x(&mut svg, nines / nines_max, label);
    }
    frame.outline(&mut svg);
    let plot = Plot { frame, scale, nines_max };
    let mut legend = Vec::new();
    for (nth, arm) in arms.iter().enumerate() {
        let color = color(nth);
        for (clock, kind) in [(LatencyKind::Response, "thick"), (LatencyKind::Service, "thin")] {
            plot.curve(&mut svg, &format!("{color} {kind}"), &arm.latencies, clock);
        }
        legend.push((format!("{color} thick"), arm.name.clone()));
    }
    let kinds = [("neutral thick", "response"), ("neutral thin", "service")];
    legend.extend(kinds.map(|(class, words)| (class.to_owned(), words.to_owned())));
    frame.name_axes(&mut svg, "latency", "percentile of requests");
    Some(Picture { svg: svg.finish(), legend })
}

struct Plot {
    frame: Frame,
    scale: LogScale,
    nines_max: f64,
}

impl Plot {
    fn point(&self, count: u64, above: f64, latency: Duration) -> (f64, f64) {
        let nines = (count as f64 / above).log10();
        let share = (nines / self.nines_max).min(1.0);
        (self.frame.x(share), self.frame.y(self.scale.share(latency)))
    }

    fn curve(&self, svg: &mut Svg, class: &str, latencies: &Latencies, clock: LatencyKind) {
        let responses = latencies.responses(clock);
        let count = latencies.count();
        let (mut sure, mut faint) = (Vec::new(), Vec::new());
        let mut above = count;
        let mut last = None;
        for bucket in responses.buckets() {
            above -= bucket.count;
            let middle = Duration::from_ns(bucket.lower.as_ns().midpoint(bucket.upper.as_ns()));
            // The longest of all has nothing above it: it stands for the last one in `count`.
            let point = self.point(count, above.max(1) as f64, middle);
            last = Some(point);
            if above >= INDICATIVE_MIN {
                push_apart(&mut sure, point);
            } else {
                if faint.is_empty() {
                    faint.extend(sure.last().copied());
                }
                push_apart(&mut faint, point);
            }
        }
        svg.polyline(class, sure.into_iter().map(Some));
        svg.polyline(&format!("{class} faint"), faint.into_iter().map(Some));
        if let Some(end) = last.filter(|_| latencies.failures.total() > 0) {
            svg.cross(&format!("{class} cross"), end);
        }
    }
}

/// Adds a point unless it is too near to the previous point.
fn push_apart(points: &mut Vec<(f64, f64)>, (x, y): (f64, f64)) {
    let is_near = |(before_x, before_y): &(f64, f64)| {
        (x - before_x).abs() < 0.6 && (y - before_y).abs() < 0.6
    };
    if !points.last().is_some_and(is_near) {
        points.push((x, y));
    }
}

//! The plot of latency over time, with events, and with the measures of the servers below it on the same axis.

use super::columns::{TimeColumns, at, end};
use super::svg::{Anchor, COLORS, Frame, LinearScale, LogScale, Picture, Svg, color};
use crate::Results;
use crate::parts::distinct;
use crate::results::{Event, Measure};
use curtail_load::Slot;
use curtail_text::numbers;
use curtail_units::{Duration, Instant, Quantile};

const HEIGHT: f64 = 260.0;
const PANEL: f64 = 72.0;
/// The distance from the bottom of one frame to the top of the next.
const GAP: f64 = 26.0;
/// Maximum number of events that the notes name; further events are only shaded.
const EVENTS_MAX: usize = 40;
/// Rows of event numbers above the plot.
const ROWS: f64 = 3.0;
/// Maximum number of measures that are drawn; further measures are in the results file only.
const PANELS_MAX: usize = 8;

pub(super) fn draw(results: &Results) -> Option<Picture> {
    let arms: Vec<Option<TimeColumns>> =
        (0..results.arms.len()).map(|arm| TimeColumns::of_arm(results, arm)).collect();
    let seen = || arms.iter().flatten().flat_map(|columns| &columns.columns);
    let low = seen().filter_map(|slot| slot.response.min()).min()?;
    let high = seen().filter_map(|slot| slot.response.max()).max()?;

    let panels = panels(results);
    let numbers = if results.events.is_empty() { 0.0 } else { 20.0 };
    let frame = Frame::new(26.0 + numbers, HEIGHT);
    let below = panels.len() as f64 * (PANEL + GAP);
    let time = Time { seconds: end(results).since(Instant::ZERO).as_secs_f64() };
    let scale = LogScale::new(low, high);
    let mut svg = Svg::new(
        frame.bottom + below + 44.0,
        "Latency over time, and what the servers say of themselves",
    );

    time.shade(&mut svg, results, &Frame { bottom: frame.bottom + below, ..frame });
    for (share, label) in scale.ticks() {
        frame.tick_y(&mut svg, share, &label);
    }
    time.ticks(&mut svg, &frame, panels.is_empty());
    frame.outline(&mut svg);
    for (nth, columns) in arms.iter().enumerate() {
        let Some(columns) = columns else { continue };
        let color = color(nth);
        let plot = Plot { frame, scale, time, columns };
        plot.longest(&mut svg, &color);
        plot.line(&mut svg, &format!("{color} thick"), Quantile::P99);
        plot.line(&mut svg, &format!("{color} dotted"), Quantile::P50);
        time.turns(&mut svg, results, nth, &frame);
    }
    svg.text("axis", (4.0, frame.top - 8.0), Anchor::Start, "response");
    for (nth, panel) in panels.iter().enumerate() {
        let top = frame.bottom + GAP + nth as f64 * (PANEL + GAP);
        draw_panel(&mut svg, Frame::new(top, PANEL), panel, (time, nth + 1 == panels.len()));
    }
    svg.text(
        "axis",
        (frame.right, frame.bottom + below + 34.0),
        Anchor::End,
        "seconds since the start of the run",
    );
    Some(Picture { svg: svg.finish(), legend: legend(results) })
}

fn legend(results: &Results) -> Vec<(String, String)> {
    let arms = results.arms.iter().enumerate();
    let arms = arms.map(|(nth, arm)| (format!("{} thick", color(nth)), arm.name.clone()));
    let mut kinds = vec![
        ("neutral thick", "p99"),
        ("neutral dotted", "p50"),
        ("neutral hair", "longest response"),
    ];
    if results.blocks.iter().any(|block| block.is_warm_up) {
        kinds.push(("area warm-up", "warming up, part of no percentile"));
    }
    if !results.events.is_empty() {
        kinds.push(("area event", "event"));
    }
    arms.chain(kinds.into_iter().map(|(class, words)| (class.to_owned(), words.to_owned())))
        .collect()
}

fn events(results: &Results) -> Vec<&Event> {
    let mut events: Vec<&Event> = results.events.iter().collect();
    events.sort_by_key(|event| event.at);
    events
}

/// The notes of the plot: numbered events, and omissions.
pub(super) fn notes(results: &Results) -> Vec<String> {
    let mut notes = Vec::new();
    for (nth, event) in (1..).zip(events(results)).take(EVENTS_MAX) {
        let at = event.at.since(Instant::ZERO).as_secs_f64();
        let lasted = if event.lasted == Duration::ZERO {
            String::new()
        } else {
            format!(", for {}", event.lasted)
        };
        notes.push(format!("{nth}: {} at {at:.1} s{lasted}", event.what));
    }
    if results.events.len() > EVENTS_MAX {
        notes.push(format!(
            "{} more events are in the results file",
            results.events.len() - EVENTS_MAX
        ));
    }
    let names = measure_names(results).len();
    if names > PANELS_MAX {
        notes.push(format!("{} more measures are in the results file", names - PANELS_MAX));
    }
    notes
}

#[derive(Clone, Copy)]
struct Time {
    seconds: f64,
}

impl Time {
    fn share(self, at: Instant) -> f64 {
        LinearScale::new(self.seconds).share(at.since(Instant::ZERO).as_secs_f64())
    }

    fn ticks(self, svg: &mut Svg, frame: &Frame, with_labels: bool) {
        let scale = LinearScale::new(self.seconds);
        for tick in scale.ticks(10.0) {
            let label = if with_labels { number(tick) } else { String::new() };
            frame.tick_x(svg, scale.share(tick), &label);
        }
    }

    /// Shades warm-ups and events, behind everything that is drawn later.
    fn shade(self, svg: &mut Svg, results: &Results, frame: &Frame) {
        let band = |svg: &mut Svg, class: &str, from: Instant, to: Instant| {
            let (left, right) = (frame.x(self.share(from)), frame.x(self.share(to)));
            svg.rect(class, (left, frame.top), ((right - left).max(2.0), frame.bottom - frame.top));
            left
        };
        for block in results.blocks.iter().filter(|block| block.is_warm_up) {
            band(svg, "area warm-up", block.began, block.began + block.lasted);
        }
        let mut before = f64::MIN;
        let mut row = 0.0;
        for (nth, event) in (1..).zip(events(results)) {
            let left = band(svg, "area event", event.at, event.at + event.lasted);
            // Numbers that would touch stand above each other, as long as there is room.
            row = if left - before < 16.0 { row + 1.0 } else { 0.0 };
            before = left;
            if row < ROWS {
                let place = (left + 1.0, frame.top - 8.0 - 11.0 * row);
                svg.text("note", place, Anchor::Middle, &format!("{nth}"));
            }
        }
    }

    /// Draws a strip along the lower edge during each block of an arm.
    fn turns(self, svg: &mut Svg, results: &Results, arm: usize, frame: &Frame) {
        let height = 4.0;
        for block in results.blocks.iter().filter(|block| block.arm == arm) {
            let (left, right) = (self.share(block.began), self.share(block.began + block.lasted));
            let (left, right) = (frame.x(left), frame.x(right));
            let class = format!("fill{}", arm % COLORS);
            svg.rect(&class, (left, frame.bottom - height), (right - left, height));
        }
    }
}

struct Plot<'a> {
    frame: Frame,
    scale: LogScale,
    time: Time,
    columns: &'a TimeColumns,
}

impl Plot<'_> {
    /// Each column with the middle of its time, as a position.
    fn columns(&self) -> impl Iterator<Item = (f64, &Slot)> {
        let columns = self.columns.columns.iter().enumerate();
        columns.map(|(nth, slot)| {
            let middle = self.columns.begins(nth) + self.columns.width.mul_f64(0.5);
            (self.frame.x(self.time.share(middle)), slot)
        })
    }

    /// Draws a percentile of each column; the line is interrupted where the percentile is a failed request.
    fn line(&self, svg: &mut Svg, class: &str, quantile: Quantile) {
        let points = self.columns().map(|(x, slot)| {
            let latency = at(slot, quantile)?;
            Some((x, self.frame.y(self.scale.share(latency))))
        });
        svg.polyline(class, points);
    }

    /// Draws the longest response of each column, and a cross where requests failed.
    fn longest(&self, svg: &mut Svg, class: &str) {
        let points = self.columns().map(|(x, slot)| {
            let longest = slot.response.max()?;
            Some((x, self.frame.y(self.scale.share(longest))))
        });
        svg.polyline(&format!("{class} hair"), points);
        for (x, _) in self.columns().filter(|(_, slot)| slot.failed > 0) {
            svg.cross(&format!("{class} cross"), (x, self.frame.top + 6.0));
        }
    }
}

/// Measures with the same name, of all servers that have such a measure.
struct Panel<'a> {
    name: &'a str,
    measures: Vec<&'a Measure>,
}

fn measure_names(results: &Results) -> Vec<&str> {
    distinct(results.measures.iter().map(|measure| measure.name.as_str()))
}

fn panels(results: &Results) -> Vec<Panel<'_>> {
    let of_name = |name| {
        let measures = results.measures.iter().filter(|measure| measure.name == name);
        Panel { name, measures: measures.collect() }
    };
    measure_names(results).into_iter().take(PANELS_MAX).map(of_name).collect()
}

/// The unit of a measure on the page, and its size in the unit of the measure.
fn unit(name: &str) -> (String, f64) {
    let units = [("_ns", "ms", 1e6), ("_bytes", "MiB", 1_048_576.0), ("_ratio", "%", 0.01)];
    let found = units.into_iter().find_map(|(ending, unit, size)| {
        name.strip_suffix(ending).map(|rest| (format!("{}, {unit}", rest.replace('_', " ")), size))
    });
    found.unwrap_or_else(|| (name.replace('_', " "), 1.0))
}

fn draw_panel(svg: &mut Svg, frame: Frame, panel: &Panel<'_>, (time, is_last): (Time, bool)) {
    let (words, size) = unit(panel.name);
    let points = || panel.measures.iter().flat_map(|measure| &measure.points);
    let high =
        points().map(|(_, value)| value / size).filter(|v| v.is_finite()).fold(0.0, f64::max);
    let scale = LinearScale::new(high * 1.05);
    for tick in scale.ticks(3.0) {
        frame.tick_y(svg, scale.share(tick), &number(tick));
    }
    time.ticks(svg, &frame, is_last);
    frame.outline(svg);
    svg.text("axis", (frame.left, frame.top - 6.0), Anchor::Start, &words);
    // Pauses are moments: each stands for itself, and nothing lies between two of them.
    let is_of_moments = panel.name.contains("pause");
    let mut named = frame.left + 14.0 + 6.6 * words.chars().count() as f64;
    for (nth, measure) in panel.measures.iter().enumerate() {
        let class = format!("m{} {}", nth % COLORS, if is_of_moments { "stem" } else { "line" });
        let place = |(at, value): &(Instant, f64)| {
            (frame.x(time.share(*at)), frame.y(scale.share(value / size)))
        };
        let points = measure.points.iter().map(|point| point.1.is_finite().then(|| place(point)));
        if is_of_moments {
            for (x, y) in points.flatten() {
                svg.line(&class, (x, frame.bottom), (x, y));
            }
        } else {
            svg.polyline(&class, points);
        }
        if named < frame.right - 60.0 {
            svg.text(
                &format!("note name{}", nth % COLORS),
                (named, frame.top - 6.0),
                Anchor::Start,
                &measure.of,
            );
            named += 14.0 + 6.6 * measure.of.chars().count() as f64;
        }
    }
}

fn number(value: f64) -> String {
    if value >= 1_000.0 {
        return numbers::thousands(Duration::from_ns_f64(value).as_ns());
    }
    numbers::short(value, 3)
}

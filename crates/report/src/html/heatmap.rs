//! The heatmap of an arm: time to the right, latency upwards by its logarithm, darkness by the number of requests.
//!
//! Steps of darkness are logarithmic, so a single slow request shows beside thousands of fast ones. Failures are above
//! the plot.

use super::columns::{TimeColumns, end};
use super::svg::{Anchor, Frame, LinearScale, LogScale, Picture, Svg, WIDTH};
use crate::Results;
use curtail_text::numbers;
use curtail_units::{Duration, Instant};

const HEIGHT: f64 = 170.0;
/// The height of a row.
const ROW: f64 = 5.0;
const ROWS: usize = 34;
const LEVELS: usize = 7;

pub(super) fn draw(results: &Results, arm: usize) -> Option<Picture> {
    let columns = TimeColumns::of_arm(results, arm)?;
    // The same axis for all arms, so that they can be compared by eye.
    let all: Vec<TimeColumns> =
        (0..results.arms.len()).filter_map(|arm| TimeColumns::of_arm(results, arm)).collect();
    let slots = || all.iter().flat_map(|columns| &columns.columns);
    let low = slots().filter_map(|slot| slot.response.min()).min()?;
    let high = slots().filter_map(|slot| slot.response.max()).max()?;
    let most =
        all.iter().flat_map(|columns| cells(columns, LogScale::new(low, high))).flatten().max()?;
    let map = Map {
        frame: Frame::new(40.0, HEIGHT),
        scale: LogScale::new(low, high),
        seconds: end(results).since(Instant::ZERO).as_secs_f64(),
        most: most.max(1),
    };
    let svg = map.draw(&columns, &results.arms[arm].name);
    Some(Picture { svg, legend: Vec::new() })
}

fn cells(columns: &TimeColumns, scale: LogScale) -> Vec<[u64; ROWS]> {
    let of_slot = |slot: &curtail_load::Slot| {
        let mut rows = [0; ROWS];
        for bucket in slot.response.buckets() {
            let middle = bucket.lower.as_ns().midpoint(bucket.upper.as_ns());
            rows[step(scale.share(Duration::from_ns(middle)), ROWS)] += bucket.count;
        }
        rows
    };
    columns.columns.iter().map(of_slot).collect()
}

/// The index of the step that contains `share`, of `steps` equal steps.
fn step(share: f64, steps: usize) -> usize {
    (1..steps).rfind(|step| share >= *step as f64 / steps as f64).unwrap_or(0)
}

struct Map {
    frame: Frame,
    scale: LogScale,
    seconds: f64,
    most: u64,
}

impl Map {
    fn draw(&self, columns: &TimeColumns, name: &str) -> String {
        let frame = &self.frame;
        let time = LinearScale::new(self.seconds);
        let mut svg = Svg::new(
            frame.bottom + 40.0,
            &format!("How many requests of {name} took how long, over time"),
        );
        svg.text("title", (frame.left, 16.0), Anchor::Start, name);
        self.legend(&mut svg);
        for (share, label) in self.scale.ticks() {
            frame.tick_y(&mut svg, share, &label);
        }
        for tick in time.ticks(10.0) {
            frame.tick_x(
                &mut svg,
                time.share(tick),
                &numbers::thousands(Duration::from_ns_f64(tick).as_ns()),
            );
        }
        self.paint(&mut svg, columns, time);
        frame.outline(&mut svg);
        frame.name_axes(&mut svg, "response", "seconds since the start of the run");
        svg.finish()
    }

    fn paint(&self, svg: &mut Svg, columns: &TimeColumns, time: LinearScale) {
        let mut levels = [const { String::new() }; LEVELS];
        let mut failed = String::new();
        let width = columns.width.as_secs_f64();
        let cell = |path: &mut String, nth: usize, y: f64, height: f64| {
            let from = self.frame.x(time.share(nth as f64 * width));
            let wide = self.frame.x(time.share((nth + 1) as f64 * width)) - from;
            // A hair wider and higher than its place, so that no gap shows between two.
            let wide = wide + 0.2;
            *path += &format!("M{from:.1} {y:.1}h{wide:.1}v{height:.1}h-{wide:.1}z");
        };
        for (nth, rows) in cells(columns, self.scale).iter().enumerate() {
            for (row, count) in rows.iter().enumerate().filter(|(_, count)| **count > 0) {
                let y = self.frame.y((row + 1) as f64 / ROWS as f64);
                cell(&mut levels[self.level(*count)], nth, y, ROW + 0.2);
            }
            if columns.columns[nth].failed > 0 {
                cell(&mut failed, nth, self.frame.top - 7.0, 5.0);
            }
        }
        for (level, path) in levels.iter().enumerate() {
            svg.path(&format!("heat h{level}"), path);
        }
        svg.path("failed", &failed);
    }

    fn level(&self, count: u64) -> usize {
        let share = (count as f64).ln() / (self.most as f64 + 1.0).ln();
        step(share, LEVELS)
    }

    /// Draws the steps of darkness, with the least and the most requests of a cell.
    fn legend(&self, svg: &mut Svg) {
        let most = numbers::thousands(self.most);
        let right = WIDTH - 16.0;
        let words = format!("{most} requests in a cell");
        let left = right - 6.4 * words.chars().count() as f64 - 8.0;
        svg.text("legend", (right, 16.0), Anchor::End, &words);
        let step = 16.0;
        for level in 0..LEVELS {
            let x = left - (LEVELS - level) as f64 * step;
            svg.path(&format!("heat h{level}"), &format!("M{x:.1} 6h{step}v11h-{step}z"));
        }
        let first = left - LEVELS as f64 * step;
        svg.text("legend", (first - 6.0, 16.0), Anchor::End, "1");
        svg.rect("failed", (first - 90.0, 9.0), (14.0, 5.0));
        svg.text("legend", (first - 70.0, 16.0), Anchor::Start, "failed");
    }
}

//! The text of SVG pictures, and the scales and axes of plots.
//!
//! Plots are 900 units wide. Colors come from the page's style sheet by class (`s0`, `s1`, … for the arms), so a
//! picture follows the light or dark mode of the browser.

use curtail_units::Duration;

pub(super) const WIDTH: f64 = 900.0;

/// The number of colors; further arms have the same colors, dashed.
pub(crate) const COLORS: usize = 6;

/// `text`, escaped for HTML.
#[must_use]
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}

/// The part of a text that is placed at a given point.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture that is being drawn.
#[derive(Debug)]
pub struct Svg {
    text: String,
}

impl Svg {
    /// An empty picture; screen readers read `about` instead.
    #[must_use]
    pub fn new(height: f64, about: &str) -> Self {
        let about = escaped(about);
        let text = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{about}\">\n"
        );
        Self { text }
    }

    /// The text of the picture.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    fn push(&mut self, args: std::fmt::Arguments<'_>) {
        self.text += &args.to_string();
    }

    /// Draws a line between two points.
    pub fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
        ));
    }

    /// Draws a rectangle from its upper left corner and its size.
    pub(crate) fn rect(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\n",
            width.max(0.0),
            height.max(0.0)
        ));
    }

    /// Draws a dot; `about` appears when the pointer is over the dot.
    pub(crate) fn dot(&mut self, class: &str, (x, y): (f64, f64), about: &str) {
        self.push(format_args!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\">"));
        self.push(format_args!("<title>{}</title></circle>\n", escaped(about)));
    }

    /// Draws a small cross, the mark of failures.
    pub(crate) fn cross(&mut self, class: &str, (x, y): (f64, f64)) {
        self.push(format_args!(
            "<path class=\"{class}\" d=\"M{:.1} {:.1}l6 6m0 -6l-6 6\"/>\n",
            x - 3.0,
            y - 3.0
        ));
    }

    /// Draws a text at a point.
    pub(crate) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>\n",
            escaped(text)
        ));
    }

    /// Draws a path from its commands.
    pub(crate) fn path(&mut self, class: &str, commands: &str) {
        if !commands.is_empty() {
            self.push(format_args!("<path class=\"{class}\" d=\"{commands}\"/>\n"));
        }
    }

    /// Draws lines through points. [`None`] interrupts the lines; a single point becomes a short dash.
    pub fn polyline(&mut self, class: &str, points: impl IntoIterator<Item = Option<(f64, f64)>>) {
        let mut commands = String::new();
        let mut is_down = false;
        for point in points {
            if let Some((x, y)) = point {
                let command = if is_down { 'L' } else { 'M' };
                // The dash that a lone point is drawn as; under a line it is not seen.
                let dash = if is_down { "" } else { "h.1" };
                commands += &format!("{command}{x:.1} {y:.1}{dash}");
            }
            is_down = point.is_some();
        }
        self.path(class, &commands);
    }
}

/// The rectangle of a plot within its picture.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The left edge.
    pub left: f64,
    /// The right edge.
    pub right: f64,
    /// The upper edge.
    pub top: f64,
    /// The lower edge.
    pub bottom: f64,
}

impl Frame {
    /// A frame with room for the labels of both axes.
    #[must_use]
    pub const fn new(top: f64, height: f64) -> Self {
        Self { left: 74.0, right: WIDTH - 16.0, top, bottom: top + height }
    }

    /// The position at a share of the width.
    #[must_use]
    pub fn x(&self, share: f64) -> f64 {
        self.left + share * (self.right - self.left)
    }

    /// The position at a share of the height from below.
    #[must_use]
    pub fn y(&self, share: f64) -> f64 {
        self.bottom - share * (self.bottom - self.top)
    }

    /// Draws the edges of the frame.
    pub(crate) fn outline(&self, svg: &mut Svg) {
        let size = (self.right - self.left, self.bottom - self.top);
        svg.rect("frame", (self.left, self.top), size);
    }

    /// Draws a line of the grid at a share of the height, with its label to the left.
    pub fn tick_y(&self, svg: &mut Svg, share: f64, label: &str) {
        let y = self.y(share);
        svg.line("grid", (self.left, y), (self.right, y));
        svg.text("tick", (self.left - 6.0, y + 4.0), Anchor::End, label);
    }

    /// Draws a line of the grid at a share of the width, with its label below unless the label is empty.
    pub fn tick_x(&self, svg: &mut Svg, share: f64, label: &str) {
        let x = self.x(share);
        svg.line("grid", (x, self.top), (x, self.bottom));
        if !label.is_empty() {
            // Half the width of the label, so that the last one is not cut off by the edge.
            let half = 3.4 * label.chars().count() as f64;
            svg.text("tick", (x.min(WIDTH - half), self.bottom + 16.0), Anchor::Middle, label);
        }
    }

    /// Writes the names of both axes: that of `y` above, that of `x` below.
    pub(crate) fn name_axes(&self, svg: &mut Svg, y: &str, x: &str) {
        svg.text("axis", (4.0, self.top - 8.0), Anchor::Start, y);
        svg.text("axis", (self.right, self.bottom + 32.0), Anchor::End, x);
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LogScale {
    low: f64,
    high: f64,
}

impl LogScale {
    /// A scale from slightly below `low` to slightly above `high`, over at least a factor of four.
    pub(super) fn new(low: Duration, high: Duration) -> Self {
        let low = low.max(Duration::from_ns(100)).as_ns_f64();
        let high = high.as_ns_f64().max(low);
        let (low, high) = (low.log10() - 0.05, high.log10() + 0.05);
        let missing = (4.0_f64.log10() - (high - low)).max(0.0);
        Self { low: low - missing / 2.0, high: high + missing / 2.0 }
    }

    /// The share of a duration; durations beyond the scale are at its edge.
    pub(super) fn share(&self, duration: Duration) -> f64 {
        let log = duration.as_ns_f64().max(1.0).log10();
        ((log - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let steps: &[u64] = match self.high - self.low {
            0.0..2.2 => &[1, 2, 5],
            0.0..4.2 => &[1, 3],
            _ => &[1],
        };
        let decades = (0..12).map(|decade| 10_u64.pow(decade));
        let all = decades
            .flat_map(|decade| steps.iter().map(move |step| Duration::from_ns(decade * step)));
        let shown = all.filter(|tick| (self.low..=self.high).contains(&tick.as_ns_f64().log10()));
        shown.map(|tick| (self.share(tick), tick.to_string())).collect()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LinearScale {
    high: f64,
}

impl LinearScale {
    pub(super) fn new(high: f64) -> Self {
        Self { high: if high > 0.0 { high } else { 1.0 } }
    }

    pub(super) fn share(&self, value: f64) -> f64 {
        (value / self.high).clamp(0.0, 1.0)
    }

    /// About `count` round numbers from zero on.
    pub(super) fn ticks(&self, count: f64) -> Vec<f64> {
        let rough = self.high / count;
        let decade = 10.0_f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * decade).find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        (0..100)
            .map(|nth| f64::from(nth) * step)
            .take_while(|tick| *tick <= self.high * 1.000_1)
            .collect()
    }
}

/// A picture with its legend.
#[derive(Debug)]
pub struct Picture {
    /// The picture.
    pub svg: String,
    /// The entries of the legend: the class of the sample, and the words for it.
    pub legend: Vec<(String, String)>,
}

/// The class of an arm's color. Further arms have the colors of the first arms, dashed.
#[must_use]
pub fn color(arm: usize) -> String {
    let again = if arm < COLORS { "" } else { " again" };
    format!("s{}{again}", arm % COLORS)
}

/// The legend of a picture: small samples with their words.
pub(super) fn legend(entries: &[(String, String)]) -> String {
    let mut legend = String::new();
    for (class, words) in entries {
        let words = escaped(words);
        // The sample of a shaded area is an area.
        let sample = if class.starts_with("area") {
            format!("<rect class=\"{class}\" width=\"26\" height=\"12\"/>")
        } else {
            format!("<path class=\"{class}\" d=\"M2 6h22\"/>")
        };
        legend += &format!("<span><svg viewBox=\"0 0 26 12\">{sample}</svg>{words}</span>\n");
    }
    if legend.is_empty() { legend } else { format!("<p class=\"legend\">\n{legend}</p>\n") }
}

//! The report as one HTML page with its plots, for browsers, printers and archives.
//!
//! **Order**: validity of the run, figures, comparison, plots, queries and tenants, and the plan of the run.
//! **Invariant**: the page loads no script, font or picture, and its content security policy forbids loading them.
//! Every text of a run is escaped. Colors can be distinguished without seeing red or green (Okabe & Ito, "Color
//! universal design", 2008), and follow the light or dark mode of the browser.
//! **Limits**: heatmaps of the first six arms. The size of a page depends on its plots, not on its requests.

mod by_rate;
mod columns;
mod difference;
mod heatmap;
mod over_time;
mod percentiles;
pub mod svg;
mod tables;

#[cfg(test)]
mod tests;

use super::difference::Comparison;
use super::parts::PartKind;
use super::{figures, servers};
use crate::Results;
use crate::results::State;
use curtail_text::numbers;
use svg::{Picture, escaped};

/// Maximum number of arms that have a heatmap.
const HEATMAPS_MAX: usize = 6;

/// The style sheet of a page, with light and dark colors.
const STYLE: &str = include_str!("html/style.css");

/// The page.
#[must_use]
pub fn render(results: &Results, comparisons: &[Comparison]) -> String {
    let arms = figures::of_arms(results);
    let mut body = head(results);
    body += &tables::of_arms(&arms);
    if results.is_sweep() {
        let about = "What users waited at each rate that was wanted.";
        body += &figure("Latency against rate", about, by_rate::draw(&arms), &[]);
    }
    if let Some(why) = super::difference::no_verdict(results) {
        body += &format!("<p>{}</p>\n", escaped(&why));
    }
    for comparison in comparisons.iter().filter(|comparison| comparison.of.is_none()) {
        let title = format!("{} against {}", comparison.other, comparison.base);
        let about = "A bar is the interval of a percentile's difference. The verdict below it counts: a bar without one \
                     (`not enough`) comes from too few requests or blocks, whether or not it touches the line.";
        body += &figure(&title, about, difference::draw(comparison), &[]);
        body += &tables::of_comparison(comparison);
    }
    for by in PartKind::ALL {
        body += &tables::of_parts_compared(by, comparisons);
    }
    body += &figure(
        "Latency by percentile",
        "A step to the right is ten times rarer. Dotted: fewer than 10 requests are longer. A cross: the \
         requests beyond it failed.",
        percentiles::draw(&arms),
        &[],
    );
    body += &figure(
        "Latency over time",
        "A request counts at the time at which it was to be sent. The strip at the lower edge says which arm had its \
         turn. Crosses at the upper edge: requests failed; a percentile among those interrupts its line.",
        over_time::draw(results),
        &over_time::notes(results),
    );
    body += &tables::of_servers(&servers::of(results), results);
    for arm in 0..results.arms.len().min(HEATMAPS_MAX) {
        let title = if arm == 0 { "How many requests took how long" } else { "" };
        body += &figure(title, "", heatmap::draw(results, arm), &[]);
    }
    if results.arms.len() > HEATMAPS_MAX {
        body += &format!("<p>Heatmaps are drawn for the first {HEATMAPS_MAX} arms.</p>\n");
    }
    for by in PartKind::ALL {
        body += &tables::of_parts(by, results);
    }
    body += &about(results);
    page(&format!("{}: latencies", results.name), &body)
}

/// A page with light and dark colors, which loads no other resource.
#[must_use]
pub fn page(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// The head of the page: validity and load of the run.
fn head(results: &Results) -> String {
    let name = escaped(&results.name);
    let mut banner = match &results.state {
        State::Complete => String::new(),
        State::Partial { why } => banner("partial", "Partial run", why),
        State::Void { why } => banner("void", "Void: do not use these figures", why),
    };
    if let Some((_, why)) = super::difference::no_verdict_from(results) {
        banner += &self::banner("partial", "", &why);
    }
    let load = escaped(&results.load);
    let began = numbers::utc(results.began_unix_ns);
    format!("{banner}<h1>{name}</h1>\n<p class=\"lead\">{load}; began {began}</p>\n")
}

fn banner(class: &str, words: &str, why: &str) -> String {
    let why = escaped(why);
    format!("<p class=\"banner {class}\"><strong>{words}</strong> {why}</p>\n")
}

/// A picture with its title above and its notes below; empty without a picture.
#[must_use]
pub fn figure(title: &str, about: &str, picture: Option<Picture>, notes: &[String]) -> String {
    let Some(picture) = picture else { return String::new() };
    let title =
        if title.is_empty() { String::new() } else { format!("<h2>{}</h2>\n", escaped(title)) };
    let notes: String = notes.iter().map(|note| format!("<li>{}</li>", escaped(note))).collect();
    let notes =
        if notes.is_empty() { notes } else { format!("<ul class=\"notes\">{notes}</ul>\n") };
    let about =
        if about.is_empty() { String::new() } else { format!("<p class=\"about\">{about}</p>\n") };
    let Picture { svg, legend } = picture;
    let legend = svg::legend(&legend);
    format!("{title}{about}{legend}<figure>\n{svg}</figure>\n{notes}")
}

/// The command, the seed, the generator and the arms of the run.
fn about(results: &Results) -> String {
    let machine = &results.machine;
    let machine = format!("{}, {} cores, {}", machine.cpu, machine.cores, machine.kernel);
    let seed = results.seed.to_string();
    let mut rows = String::new();
    for (name, value) in [("Command", &results.command), ("Seed", &seed), ("Generator", &machine)] {
        rows += &format!("<dt>{name}</dt><dd><code>{}</code></dd>\n", escaped(value));
    }
    for arm in &results.arms {
        rows += &format!("<dt>Arm {}</dt><dd>{}</dd>\n", escaped(&arm.name), escaped(&arm.about));
    }
    format!("<h2>What was run</h2>\n<dl>\n{rows}</dl>\n")
}

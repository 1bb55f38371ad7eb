//! Reports of a run: a table, a page with plots, and files for programs and other tools.
//!
//! | task | module |
//! |---|---|
//! | write and read results | [`mod@file`] |
//! | merge the results of several generators | [`merge()`] |
//! | print a table | [`table::render`] |
//! | write a page with plots | [`html::render`] |
//! | export to `HdrHistogram`'s tools | `hgrm`, `hlog` |
//! | export to Prometheus | `prometheus` |
//! | write the requested files | [`Outputs`], [`write()`] |
//!
//! All reports come from [`Results`] and, with two arms, from [`Comparison`]s. [`figures`] alone
//! computes the percentiles, and decides which are shown.

pub mod difference;
pub mod figures;
pub mod file;
mod hdr;
mod hgrm;
mod hlog;
pub mod html;
pub mod merge;
mod parts;
mod prometheus;
pub mod results;
#[cfg(test)]
mod sample;
mod servers;
pub mod table;
#[cfg(test)]
mod tests;

pub use difference::Comparison;
pub use merge::merge;
pub use results::Results;

use clap::Args;
use std::io;
use std::path::{Path, PathBuf};

/// The files to write.
#[derive(Args, Clone, Debug, Default)]
pub struct Outputs {
    /// Write the results as JSON. `curtail bench report` makes the other formats from this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write an HTML page with plots.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write percentile distributions in `HdrHistogram`'s format, two files for each arm (measured service).
    /// For `run.hgrm`: `run.ARM.response.hgrm` (from the planned send time), `run.ARM.service.hgrm` (from the actual).
    #[arg(long, value_name = "FILE")]
    pub hgrm: Option<PathBuf>,
    /// Write an interval log in `HdrHistogram`'s format (.hlog).
    #[arg(long, value_name = "FILE")]
    pub hlog: Option<PathBuf>,
    /// Write the figures as metrics in Prometheus' text format.
    #[arg(long, value_name = "FILE")]
    pub prometheus: Option<PathBuf>,
}

/// Writes the requested files, the results first.
///
/// # Errors
/// When a file cannot be written. The error names this file, and later files are not written.
pub fn write(results: &Results, comparisons: &[Comparison], outputs: &Outputs) -> io::Result<()> {
    let Outputs { json, html, hgrm, hlog, prometheus } = outputs;
    let json = json.iter().map(|path| (path.clone(), file::to_json(results)));
    let html = html.iter().map(|path| (path.clone(), html::render(results, comparisons)));
    let hgrm = hgrm.iter().flat_map(|path| distributions(results, path));
    let hlog = hlog.iter().map(|path| (path.clone(), hlog::render(results)));
    let prometheus = prometheus.iter().map(|path| (path.clone(), prometheus::render(results)));
    let mut files = json.chain(html).chain(hgrm).chain(hlog).chain(prometheus);
    files.try_for_each(|(path, text)| file::replace(&path, text.as_bytes()))
}

/// The distribution of each arm on each clock, with its file.
fn distributions(results: &Results, path: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for (nth, arm) in figures::of_arms(results).iter().enumerate() {
        for (word, clock) in figures::CLOCKS {
            let about = format!("{}: {}, {word}, latencies in ms", results.name, arm.name);
            let text = hgrm::render(&arm.latencies, clock, &about);
            files.push((
                path.with_extension(format!("{}.{word}.hgrm", in_a_path(results, nth))),
                text,
            ));
        }
    }
    files
}

/// The name of an arm as part of a file name, with the arm's number if two arms have the same name there.
fn in_a_path(results: &Results, arm: usize) -> String {
    let safe = |name: &str| -> String {
        name.chars()
            .map(|c| if c.is_alphanumeric() || c == '-' { c } else { '_' })
            .take(80)
            .collect()
    };
    let name = safe(&results.arms[arm].name);
    let alike = results.arms.iter().filter(|other| safe(&other.name) == name).count();
    if alike > 1 { format!("{name}-{}", arm + 1) } else { name }
}

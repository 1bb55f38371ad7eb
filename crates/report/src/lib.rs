//! Reports of a run: a table for people, one page with plots, and files for programs and other tools.
//!
//! | to | look at |
//! |---|---|
//! | keep a run, and have it back | [`mod@file`] |
//! | put the results of several generators together | [`merge()`] |
//! | show it at a terminal | [`table::render`] |
//! | show it with plots | [`html::render`] |
//! | hand it to `HdrHistogram`'s tools | [`hgrm`], [`hlog`] |
//! | hand it to Prometheus | [`prometheus`] |
//! | write the files that were asked for | [`Outputs`], [`write()`] |
//!
//! All of them are made of [`Results`] and, where two arms were compared, of [`Comparison`]s. [`figures`] decides which
//! percentiles are given; nothing else does.

pub mod difference;
pub mod figures;
pub mod file;
mod hdr;
pub mod hgrm;
pub mod hlog;
pub mod html;
pub mod merge;
pub mod parts;
pub mod prometheus;
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
use curtail_load::Clock;
use std::io;
use std::path::{Path, PathBuf};

/// The files that are written of a run.
#[derive(Args, Clone, Debug, Default)]
pub struct Outputs {
    /// Write the results, from which every report can be made again (JSON).
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write one page with plots.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write percentile distributions for `HdrHistogram`'s plotter: of `run.hgrm`, `run.ARM.response.hgrm` and
    /// `run.ARM.service.hgrm` for each arm.
    #[arg(long, value_name = "FILE")]
    pub hgrm: Option<PathBuf>,
    /// Write an interval log of `HdrHistogram`.
    #[arg(long, value_name = "FILE")]
    pub hlog: Option<PathBuf>,
    /// Write the final figures as Prometheus text.
    #[arg(long, value_name = "FILE")]
    pub prometheus: Option<PathBuf>,
}

/// Writes the files that are asked for; the results first, because everything else can be made of them.
///
/// # Errors
/// When one cannot be written; it is named, and those after it are not written.
pub fn write(results: &Results, comparisons: &[Comparison], outputs: &Outputs) -> io::Result<()> {
    let Outputs { json, html, hgrm, hlog, prometheus } = outputs;
    if let Some(path) = json {
        file::write(results, path)?;
    }
    if let Some(path) = html {
        file::replace(path, html::render(results, comparisons).as_bytes())?;
    }
    if let Some(path) = hgrm {
        for (path, text) in distributions(results, path) {
            file::replace(&path, text.as_bytes())?;
        }
    }
    if let Some(path) = hlog {
        file::replace(path, hlog::render(results).as_bytes())?;
    }
    if let Some(path) = prometheus {
        file::replace(path, prometheus::render(results).as_bytes())?;
    }
    Ok(())
}

/// A distribution for each arm and clock, each with the file that it goes to.
fn distributions(results: &Results, path: &Path) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    for (nth, arm) in figures::of_arms(results).iter().enumerate() {
        for (word, clock) in [("response", Clock::Response), ("service", Clock::Service)] {
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

/// The name of an arm as part of a file's; its number as well where that leaves two alike.
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

//! Suites: a whole experiment as data, from starting a cluster to the verdict and back to nothing.
//!
//! **Order**: setup, links, processes (each when the one before is ready), preparation, validation, warming up, interleaved
//! blocks of load on the arms with faults in each, validation, teardown.

mod ask;
mod batches;
mod cluster;
mod command;
pub mod config;
mod faults;
mod gc;
mod group;
mod links;
mod measures;
mod problem;
mod run;
mod usage;
mod watchdog;

pub use config::SuiteConfig;
pub use problem::{LogExcerpt, SuiteError};
pub use run::{Outcome, Suite, SuiteObserver};

use curtail_config::{ConfigErrors, Key};

/// What the names mean that a suite need not define.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltinParameters {
    /// The running program.
    pub curtail: String,
    /// The folder of this run.
    pub dir: String,
    /// The folder of the suite's file.
    pub suite: String,
    /// What everything random follows from.
    pub seed: u64,
}

impl SuiteConfig {
    /// Reads the suite in `text`, which was written in `file`, after each of `sets` has been put into it.
    ///
    /// # Errors
    /// All errors.
    pub fn from_yaml(
        file: &str,
        text: &str,
        sets: &[String],
        given: &BuiltinParameters,
    ) -> Result<Self, ConfigErrors> {
        let BuiltinParameters { curtail, dir, suite, seed } = given;
        let given = [
            ("curtail", curtail.clone()),
            ("dir", dir.clone()),
            ("suite", suite.clone()),
            ("seed", seed.to_string()),
        ];
        curtail_config::read_with_parameters(file, text, sets, ("parameters", &given), Self::read)
    }

    /// Every key of a suite.
    #[must_use]
    pub fn keys() -> Vec<Key> {
        curtail_config::describe(Self::read)
    }
}

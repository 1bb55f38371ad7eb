//! Suites: a whole experiment as data, from starting a cluster to the verdict and the teardown.
//!
//! **Order**: setup, links, processes (each when the previous one is ready), preparation, validation, warm-up, interleaved
//! blocks of load with faults, validation, teardown.

mod ask;
mod batches;
mod cluster;
mod config;
mod faults;
mod gc;
mod group;
mod links;
mod measures;
mod problem;
mod profiles;
mod run;
mod watchdog;

pub use config::{ArmConfig, SuiteConfig};
pub use problem::{LogExcerpt, SuiteError};
pub use run::{Outcome, Suite, SuiteObserver};

use curtail_config::{ConfigErrors, Key};

/// The values of parameters that every suite has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltinParameters {
    /// The running program.
    pub curtail: String,
    /// The folder of this run.
    pub dir: String,
    /// The folder of the suite's file.
    pub suite: String,
    /// The seed of everything random.
    pub seed: u64,
}

impl SuiteConfig {
    /// Reads the suite in `text` of the file `file`, after applying `sets` (`key=value`).
    ///
    /// # Errors
    /// All errors of the text and of the sets.
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

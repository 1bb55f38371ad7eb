//! A scenario: which models are simulated with which policies, and for how long.

use crate::model::Model;
use crate::tally::Stop;
use curtail_policy::UpstreamConfig;
use curtail_units::Duration;

/// What one run of the simulator compares.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The models; each is simulated with every arm.
    pub variants: Vec<Variant>,
    /// The policies under test.
    pub arms: Vec<Arm>,
    /// Thresholds of latency: the share of requests above each is reported.
    pub above: Vec<Duration>,
    /// When a run ends.
    pub stop: Stop,
}

/// A model and its name; the name may be empty when there is only one.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The name.
    pub name: String,
    /// The model.
    pub model: Model,
}

/// A policy under test.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Its name.
    pub name: String,
    /// How every upstream is treated.
    pub policy: UpstreamConfig,
}

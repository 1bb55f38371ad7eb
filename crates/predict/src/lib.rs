//! Predict: what each remedy would do to the tail of a service, from a recording of the service.
//!
//! ```text
//! recording ──fit──> model ──simulate, with the policies of the proxy──> prediction with a band
//! ```
//!
//! | to | look at |
//! |---|---|
//! | read a recording | [`Recording`], [`SpanReader`] |
//! | fit a model | [`Fit`] |
//! | predict every remedy | [`Prediction`] |
//! | write a policy as configuration | [`policy_yaml()`] |
//!
//! There is no clock, no file and no socket here: readers take any [`std::io::BufRead`]. Everything random follows from a
//! seed.

mod break_even;
mod candidate;
mod core_limit;
mod executions;
mod fit;
mod intrinsic;
mod json_zero;
#[cfg(test)]
mod lab;
mod pace;
mod policy_yaml;
mod prediction;
mod recommendation;
mod recording;
mod report;
mod scorecard;
mod world;

pub use candidate::Candidate;
pub use core_limit::{CORES, CoreLimit};
pub use curtail_sim::Cancelled;
pub use fit::{Fit, FitOverrides, Note, REQUESTS_MIN, SAMPLES_MAX};
pub use intrinsic::{Evidence, Intrinsic};
pub use pace::SlowPeriod;
pub use policy_yaml::policy_yaml;
pub use prediction::{LatencyBand, Prediction, REQUESTS_MAX, RemedyPrediction};
pub use recommendation::Recommendation;
pub use recording::{
    AttemptEnd, FanOut, FanOutRequest, ROWS_MAX, RecordedAttempt, RecordedRequest, Recording,
    RecordingError, SpanReader, UNKNOWN,
};
pub use report::Timeouts;
pub use scorecard::{
    EffectOnAll, MeasuredEffect, PredictedEffect, SCHEMA as SCORECARD_SCHEMA, ScoreVerdict,
    Scorecard, ScorecardEntry, ScorecardEvent, VerdictCounts, has_hedges_or_ties,
};

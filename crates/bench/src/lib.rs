//! Bench: sends load, runs suites, compares A against B, and writes reports.

pub mod arrivals;
mod clock;

pub mod expect;
pub mod generator;
pub mod report;
pub mod results;
pub mod rows;
pub mod session;
pub mod suite;
pub mod sweep;
pub mod target;
pub mod template;
pub mod trust;
pub mod workload;

pub use clock::Clock;
pub use results::Results;
pub use session::Session;

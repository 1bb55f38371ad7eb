//! Bench: sends load, runs suites, compares A against B, and writes reports.

mod clock;
pub mod data;
pub mod expect;
pub mod generator;
pub mod report;
pub mod results;
pub mod session;
pub mod target;
pub mod template;
pub mod workload;

pub use clock::Clock;
pub use results::Results;
pub use session::Session;

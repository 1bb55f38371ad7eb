//! Bench: sends load, runs suites, compares A against B, and writes reports.

pub mod results;

pub use results::Results;

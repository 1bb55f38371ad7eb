//! Model: a service without the policies in front of it.
//!
//! `curtail-sim` simulates the service, `curtail-testbed` starts it as real HTTP servers. Both read the same keys, and
//! with the same seed the same servers are slow at the same instants.
//!
//! | module | content |
//! |---|---|
//! | [`mod@distribution`] | durations and factors: service times, the times between faults |
//! | [`server_factors`] | servers of different speed |
//! | [`arrivals`] | rate and spacing of requests, bursts, rates that change |
//! | [`fault`] | recipes: the cause of slowness, and the affected servers |
//! | [`faults`] | running faults: the pace of each server, failed executions, requests of noisy neighbors |
//! | [`timeline`] | the instants at which faults change, for drivers without an event queue |
//! | [`processor`] | executions in service, which share the pace and the cores of their server |
//!
//! There is no clock, no file and no socket here: time and randomness are arguments.

pub mod arrivals;
pub mod distribution;
pub mod fault;
pub mod faults;
pub mod processor;
pub mod server_factors;
pub mod timeline;

pub use arrivals::{ArrivalProcess, Arrivals, Bursts, Rate, RateChange, RateCurve, Spacing};
pub use distribution::{Amount, Distribution, Part, Point, draw_weighted};
pub use fault::{Affected, Fault, Recipe};
pub use faults::{ExecutionOutcome, FaultEffect, FaultStep, Faults};
pub use processor::{Cores, Pace, Processor};
pub use server_factors::ServerFactors;
pub use timeline::{FaultEvent, FaultTimeline, PaceChange};

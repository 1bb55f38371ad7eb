//! Model: what a service is like, apart from the policies in front of it.
//!
//! One description serves two drivers: `curtail-sim` simulates it, `curtail-testbed` starts it as real HTTP servers.
//! Both read the same keys, and with the same seed the same servers are slow at the same instants.
//!
//! | module | holds |
//! |---|---|
//! | [`mod@distribution`] | durations: service times, the times between faults |
//! | [`arrivals`] | how many requests arrive, and how they are spaced |
//! | [`fault`] | recipes: what makes servers slow, and which servers |
//! | [`faults`] | faults as they happen: the pace of each server, failed executions, requests of noisy neighbors |
//! | [`timeline`] | when faults change something, for drivers without an event queue of their own |
//! | [`processor`] | executions in service, which share the pace and the cores of their server |
//!
//! There is no clock, no file and no socket here: time and randomness come in as arguments.

pub mod arrivals;
pub mod distribution;
pub mod fault;
pub mod faults;
pub mod processor;
pub mod timeline;

pub use arrivals::{Arrivals, Rate, Spacing};
pub use distribution::{Distribution, Part, Point};
pub use fault::{Affected, Fault, Recipe};
pub use faults::{ExecutionOutcome, FaultEffect, FaultStep, Faults};
pub use processor::{Cores, Pace, Processor};
pub use timeline::{FaultEvent, FaultTimeline, PaceChange};

//! Sim: a discrete-event simulator that drives the policy machines.
//!
//! It predicts the effect of a policy on the latencies of a service. The machines of `curtail-policy` run over a model
//! of arrivals, networks, queues, servers and faults. They are those of the proxy, so a journal of the proxy can be
//! replayed here.
//!
//! | to | look at |
//! |---|---|
//! | describe what is simulated | [`Scenario`], [`Model`]; `curtail-model` has distributions, arrivals and faults |
//! | run it | [`run()`], which gives a [`Report`] |
//! | replay a journal | [`replay()`] |
//! | lay data on servers | [`Sharding`] |
//!
//! There is no clock, no file and no socket here. The same seed gives the same run, event for event.

mod alarm;
mod batches;
mod model;
mod network;
mod queue;
mod replay;
mod report;
mod run;
mod scenario;
mod sharding;
mod slab;
mod tally;
mod warm_up;
mod world;

pub use batches::{BEYOND_MIN, Estimate, MEAN_REQUESTS_MIN, REQUESTS_MIN};
pub use model::{Cancelled, Model};
pub use replay::{Difference, End, Replayed, Unreadable, replay};
pub use report::{ArmReport, Comparison, Report};
pub use run::{SimulationProgress, run};
pub use scenario::{Arm, Described, Scenario, Variant};
pub use sharding::{Placed, Placement, Rule, Sharding, ShardingReport, ShardingRow};
pub use tally::{Precision, Stop};
pub use world::StopReason;

//! Sim: a discrete-event simulator that drives the state machines of the policies.
//!
//! The simulator predicts the effect of a policy on the latencies of a service. The machines of `curtail-policy` run
//! over a model of arrivals, networks, queues, servers and faults. The proxy runs the same machines, so a journal of
//! the proxy can be replayed here.
//!
//! | to | look at |
//! |---|---|
//! | describe a simulation | [`Scenario`], [`Model`]; `curtail-model` has distributions, arrivals and faults |
//! | run a scenario | [`run()`], which returns a [`Report`] |
//! | simulate recorded arrivals and slow periods | [`RecordedTimeline`] |
//! | see single requests | [`run_recorded`], which also returns [`RequestRecord`]s; [`SpanWriter`] writes their spans |
//! | replay a journal | [`replay()`] |
//! | read a journal | [`JournalLines`] |
//! | distribute data over servers | [`Sharding`] |
//!
//! There is no clock, no file and no socket here. The same seed gives the same run, event for event.

mod alarm;
mod batches;
mod connections;
mod journal_lines;
mod model;
mod network;
mod queue;
mod record;
mod recorded;
mod replay;
mod report;
mod run;
mod scenario;
mod sharding;
mod slab;
mod spans;
mod tally;
mod warm_up;
mod world;

pub use batches::{BEYOND_MIN, Estimate, MEAN_REQUESTS_MIN, REQUESTS_MIN};
pub use connections::ConnectionModel;
pub use journal_lines::{JournalLines, Unreadable};
pub use model::{Cancelled, ClientRetries, ClosedLoop, Model, RequestType, Tier};
pub use record::{AttemptEnd, AttemptRecord, CallRecord, RequestRecord};
pub use recorded::{RecordedSlowPeriod, RecordedTimeline};
pub use replay::{Difference, End, Replayed, replay};
pub use report::{ArmReport, Comparison, Report, TypeReport};
pub use run::{Recording, SimulationProgress, run, run_recorded};
pub use scenario::{Arm, Described, Scenario, Variant};
pub use sharding::{Placed, Placement, Rule, Sharding, ShardingReport, ShardingRow};
pub use spans::SpanWriter;
pub use tally::{Precision, Stop};
pub use world::StopReason;

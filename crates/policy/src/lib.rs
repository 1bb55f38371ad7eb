//! The techniques that cut the latency tail, as machines without I/O.
//!
//! # The one shape
//!
//! A machine decides; a driver acts. The crate is `no_std`: no clock, socket or entropy can be named here. Every
//! machine is driven the same way:
//!
//! - `handle(now, event)`: something happened;
//! - `poll_effect()`: what to do about it; [`Decided`] pairs each effect with its reason and the compared numbers;
//! - `poll_timeout()`: when to call again with a `Woke` event if nothing else happens. A [`Leaf`] never waits.
//!
//! A driver keeps this contract: `now` never goes back; it drains the effects before the next `handle`; a wake-up comes
//! at or after the polled instant. The simulator and the proxy are the two drivers, and each can replay a journal of
//! the other.
//!
//! # The machines
//!
//! - [`Upstream`]: the state that requests to one upstream share: replicas, balance and group. One for each root.
//! - [`Group`]: the recent latencies and the budget of one upstream, or of several that share them.
//! - [`Call`]: one request at the root; it composes [`hedge`], [`tie`] and [`retry`].
//! - [`Gather`]: one request that needs several calls, such as one to each shard. Its driver owns the calls.
//! - [`Leaf`]: the queue in front of one server, with its classes, its side of a tie, and its load.
#![no_std]

extern crate alloc;

pub mod balance;
pub mod budget;
mod call;
mod class;
mod decided;
mod fair_queue;
mod gather;
mod group;
pub mod hedge;
pub mod journal;
mod label;
mod leaf;
mod load;
mod reason;
mod replica;
mod replica_map;
pub mod retry;
pub mod tie;
mod upstream;

pub use balance::{BalanceConfig, Choice, PrequalConfig};
pub use budget::BudgetConfig;
pub use call::{ATTEMPTS_MAX, Call, Event, Failure, Outcome, Request};
pub use class::Class;
pub use decided::{AttemptId, Decided, Effect, ReplicaId, RequestFailure};
pub use fair_queue::FairQueue;
pub use gather::{
    CALLS_MAX, CallId, Gather, GatherConfig, GatherEffect, GatherEvent, GatherOutcome,
    GatherReason, RestMode,
};
pub use group::{Group, GroupConfig, SAMPLES_MIN};
pub use hedge::HedgeConfig;
pub use leaf::{Leaf, LeafConfig, LeafEffect, LeafEvent, LeafReason, LeafRequestId};
pub use load::{Load, LoadTracker};
pub use reason::Reason;
pub use replica::REPLICAS_MAX;
pub use replica_map::ReplicaMap;
pub use retry::{OverdueConfig, RetryConfig};
pub use tie::{Tie, TieConfig, TieId, TieRole};
pub use upstream::{Upstream, UpstreamConfig, UpstreamEvent};

//! The techniques that cut the latency tail, as machines without I/O.
//!
//! # The one shape
//!
//! A machine decides; a driver acts. Nothing here reads a clock, opens a socket, draws entropy or
//! blocks: the crate is `no_std`, so none of these can even be named. Every machine is driven the
//! same way:
//!
//! - `handle(now, event)`: something happened;
//! - `poll_effect()`: what to do about it, and why ([`Decided`] pairs each effect with its reason and
//!   the numbers that were compared);
//! - `poll_timeout()`: when to call again with a `Woke` event if nothing else happens.
//!
//! The contract of a driver: `now` never goes back; effects are drained before the next `handle`; a
//! wake-up comes at or after the polled instant. Two drivers exist, the simulator and the proxy, so
//! what is simulated is what runs, and a journal of one can be replayed by the other.
//!
//! # Who holds what
//!
//! - [`Upstream`] holds the state that requests to one upstream share: replicas, balance and group. Each root has
//!   one for each upstream.
//! - [`Group`] holds the recent latencies and the budget of one upstream, or of several that share them.
//! - [`Call`] is one request at the root: it composes [`hedge`], [`tie`] and [`retry`], and sees to it
//!   that there is exactly one response and that every other attempt is cancelled.
//! - [`Gather`] is one request that needs several calls, such as one to each shard. It owns none of them: their
//!   driver starts and abandons them, and reports their ends.
//! - [`Leaf`] stands in front of one server: its queue, its classes, its side of a tie, its load.
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
pub use decided::{AttemptId, Decided, Effect, ProbeId, ReplicaId, RequestFailure};
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

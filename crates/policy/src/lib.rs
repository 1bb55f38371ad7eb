//! The techniques that cut the latency tail, as state machines without I/O.
//!
//! # How a driver runs a machine
//!
//! A machine decides, and its driver acts. The crate is `no_std`, so a machine has no clock, socket or entropy of its
//! own. The driver calls three methods:
//!
//! - `handle(now, event)` hands an event to the machine.
//! - `poll_effect()` returns the next action. [`Decided`] pairs each action with its reason and the compared numbers.
//! - `poll_timeout()` returns the instant at which the driver sends `Woke`, unless another event comes first. A
//!   [`Leaf`] is never woken.
//!
//! The driver never lets `now` go back, drains the effects before the next `handle`, and sends `Woke` at or after the
//! polled instant. The drivers are the proxy and the simulator; servers of the testbed drive a [`Leaf`]. The proxy
//! writes journals ([`journal`]), and the simulator replays them.
//!
//! # The machines
//!
//! - [`Upstream`]: the state that the requests of one root to one upstream share: replicas, balance and group.
//! - [`Group`]: the recent latencies and the budget of one upstream, or of several that share them.
//! - [`Call`]: one request at the root; it composes [`hedge`], [`tie`] and [`retry`].
//! - [`Remedy`]: whether hedges and ties are sent, if their measured effect decides (`remedy: auto`); its [`Upstream`] owns it.
//! - [`Gather`]: one request that needs several calls, such as one to each shard. Its driver owns the calls.
//! - [`Leaf`]: the queue in front of one server, with its classes, its side of ties, and its load.
//! - [`RequestLimiter`]: whether a request of a route, tenant or client may start. It has no effects: its driver asks.
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
mod quantile_delay;
mod reason;
pub mod remedy;
mod replica;
mod replica_map;
mod request_limit;
pub mod retry;
pub mod tie;
mod upstream;
mod weight;
mod zone;

pub use balance::{BalanceConfig, Choice, PrequalConfig};
pub use budget::BudgetConfig;
pub use call::{ATTEMPTS_MAX, Call, Event, Failure, Outcome, Request};
pub use class::Class;
pub use decided::{AttemptId, Decided, Effect, ReplicaId, RequestFailure};
pub use fair_queue::FairQueue;
pub use gather::{
    CALLS_MAX, CallId, Gather, GatherConfig, GatherEffect, GatherEvent, GatherOutcome,
    GatherReason, GatherRule, RestMode,
};
pub use group::{Group, GroupConfig, SAMPLES_MIN};
pub use hedge::HedgeConfig;
pub use leaf::{Leaf, LeafConfig, LeafEffect, LeafEvent, LeafReason, LeafRequestId};
pub use load::{Load, LoadTracker};
pub use quantile_delay::QuantileDelay;
pub use reason::Reason;
pub use remedy::{
    Remedy, RemedyEstimate, RemedyEvent, RemedyMode, RemedyState, RemedyStatus, SlowCount,
    SlowShares,
};
pub use replica::{Circuit, CircuitChange, CircuitState, EjectionReason, REPLICAS_MAX};
pub use replica_map::ReplicaMap;
pub use request_limit::{LimitRejection, RateLimit, RequestLimit, RequestLimiter};
pub use retry::RetryConfig;
pub use tie::{Tie, TieConfig, TieId, TieRole};
pub use upstream::{Upstream, UpstreamConfig, UpstreamEvent};
pub use weight::Weight;

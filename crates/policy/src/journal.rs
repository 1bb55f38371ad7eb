//! The journal: everything a machine was told and what it decided, in order.
//!
//! A driver writes one [`Entry`] for each machine it makes and one for each event it hands to it, with
//! the effects that came out. Replaying the events into a new machine must give the same effects, byte for
//! byte: that is how the proxy is held to the simulator.
//!
//! The entries are written as JSON, one a line, by the driver. `F` is the form of the effects: a list when
//! written, the bare bytes when read, so that they are compared as they stand in the file.

use crate::{Event, LeafConfig, LeafEvent, Request, UpstreamConfig, UpstreamEvent};
use alloc::string::String;
use curtail_units::{Instant, Rng};
use serde::{Deserialize, Serialize};

/// The `schema` of the first entry.
pub const SCHEMA: &str = "curtail.journal/1";

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "entry")]
#[expect(clippy::large_enum_variant, reason = "an entry is written or read at once, never kept")]
pub enum Entry<F> {
    /// The first line.
    Journal {
        /// [`SCHEMA`].
        schema: String,
    },
    /// A root's machine for one upstream was made.
    Upstream {
        /// Its number in this journal.
        machine: u32,
        /// Its name in the configuration.
        name: String,
        /// How it is treated.
        config: UpstreamConfig,
        /// How many replicas it has.
        replicas: u16,
        /// The randomness that it was given.
        rng: Rng,
    },
    /// A leaf's machine was made.
    Leaf {
        /// Its number in this journal.
        machine: u32,
        /// Its name in the configuration.
        name: String,
        /// How it queues.
        config: LeafConfig,
    },
    /// A request arrived at an upstream; its first event follows.
    Request {
        /// The upstream.
        machine: u32,
        /// Its number, unique within the upstream.
        call: u64,
        /// What the policies know of it.
        request: Request,
    },
    /// An event of a request.
    Call {
        /// The upstream.
        machine: u32,
        /// The request.
        call: u64,
        /// When.
        now: Instant,
        /// What happened.
        event: Event,
        /// What was decided.
        effects: F,
    },
    /// An event of an upstream.
    UpstreamEvent {
        /// The upstream.
        machine: u32,
        /// When.
        now: Instant,
        /// What happened.
        event: UpstreamEvent,
        /// What was decided.
        effects: F,
    },
    /// An event of a leaf.
    LeafEvent {
        /// The leaf.
        machine: u32,
        /// When.
        now: Instant,
        /// What happened.
        event: LeafEvent,
        /// What was decided.
        effects: F,
    },
    /// The writer could not keep up and entries are missing: a replay ends here.
    Cut {
        /// How many entries are missing.
        lost: u64,
    },
}

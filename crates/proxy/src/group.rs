//! Groups: the budget and the recent latencies that several upstreams share, under one lock.
//!
//! An upstream takes its own lock first, then that of its group, and holds both for one event, some hundred
//! nanoseconds. Its line in the journal is written under both, so the order of the lines is the order in which the
//! upstreams changed what they share.

use crate::config::NamedUpstream;
use crate::journal::Journal;
use curtail_policy::journal::Entry;
use curtail_policy::{Group as Machine, GroupConfig};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the upstreams of a group share.
#[derive(Debug)]
pub(crate) struct Group {
    name: String,
    config: GroupConfig,
    machine: Mutex<Machine>,
    /// Its number in the journal.
    number: Option<u32>,
}

impl Group {
    /// A group of the given name for `upstream` and others that agree with it.
    pub(crate) fn new(
        name: &str,
        upstream: &NamedUpstream,
        journal: Option<&Arc<Journal>>,
    ) -> Self {
        let config = GroupConfig::from(&upstream.policy);
        let number = journal.map(|journal| {
            let machine = journal.machine();
            journal.write(&Entry::<()>::Group { machine, name: name.to_owned(), config });
            machine
        });
        Self { name: name.to_owned(), config, machine: Mutex::new(Machine::new(config)), number }
    }

    /// Whether `upstream` is one of its members.
    pub(crate) fn has(&self, upstream: &NamedUpstream) -> bool {
        upstream.group.as_ref() == Some(&self.name)
            && GroupConfig::from(&upstream.policy) == self.config
    }

    /// Its number in the journal, if there is one.
    pub(crate) const fn number(&self) -> Option<u32> {
        self.number
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Machine> {
        // A machine never blocks and fails only by a bug; what it knows is then still the best there is.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

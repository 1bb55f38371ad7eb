//! Groups: the budget and the recent latencies that several upstreams share, under one lock.
//!
//! An event locks its upstream, then the group, and holds both locks for some hundred nanoseconds. It writes its
//! journal line under both locks, so the lines have the order in which the upstreams changed the shared state.

use crate::config::NamedUpstream;
use crate::journal::Journal;
use curtail_policy::journal::Entry;
use curtail_policy::{Group as Machine, GroupConfig};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub(crate) struct Group {
    name: String,
    config: GroupConfig,
    machine: Mutex<Machine>,
    /// The group's number in the journal.
    number: Option<u32>,
}

impl Group {
    /// The group `name`, with the shared keys of `upstream`.
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

    /// Whether `upstream` is a member.
    pub(crate) fn has(&self, upstream: &NamedUpstream) -> bool {
        upstream.group.as_ref() == Some(&self.name)
            && GroupConfig::from(&upstream.policy) == self.config
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn number(&self) -> Option<u32> {
        self.number
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Machine> {
        // A machine never blocks, and its panics are caught before the lock is released.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

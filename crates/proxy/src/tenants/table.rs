//! The requests of one worker in one hour by tenant: Space-Saving, with a histogram for each tenant.
//!
//! In a full table, a new tenant replaces the one with the smallest weight, and inherits this weight. Every tenant with more
//! than 1/`max` of the requests is therefore in the table, whatever names clients invent. The requests of a replaced tenant
//! stay in the decade of their number.
//! **Source**: Metwally, Agrawal and El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams",
//! 2005, with a heap in place of their list.
//! **Limits**: `max` tenants of 256 bytes for each power of two between the shortest and the longest latency: some 2 KiB,
//! at most 10 KiB.
//! **Cost**: a tenant of the table costs one lookup. A new tenant in a full table also costs a few steps in the heap, and
//! the merge of one histogram.
//! **Hurts when** more than `max` tenants are active: a replaced tenant that comes back counts as another one in the
//! decades, and its own requests begin again.

use super::Name;
use curtail_sketch::{Histogram, Precision};
use curtail_units::Duration;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

#[derive(Debug)]
pub(super) struct Table {
    max: usize,
    /// The index of each tenant. The hasher has random keys, so no client can choose names that collide.
    indexes: HashMap<Name, usize>,
    tenants: Vec<Tenant>,
    /// Each index with a weight that the tenant had, the smallest first. Weights only grow.
    smallest: BinaryHeap<Reverse<(u64, usize)>>,
    replaced: Decades,
    unnamed: u64,
}

/// The requests of one tenant.
#[derive(Clone, Debug)]
pub(super) struct Tenant {
    pub(super) name: Name,
    pub(super) requests: Requests,
    /// The weight of the tenant that it replaced.
    inherited: u64,
}

/// The latencies of some requests, and the number of errors among them.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    pub(super) durations: Histogram,
    pub(super) errors: u64,
}

/// The tenants of one decade of size.
#[derive(Clone, Debug, Default)]
pub(super) struct Decade {
    pub(super) tenants: u64,
    pub(super) requests: Requests,
}

/// The decades by the smallest number of requests of their tenants: 1, 10, 100, and so on.
#[derive(Clone, Debug, Default)]
pub(super) struct Decades(pub(super) BTreeMap<u64, Decade>);

impl Table {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            indexes: HashMap::new(),
            tenants: Vec::new(),
            smallest: BinaryHeap::new(),
            replaced: Decades::default(),
            unnamed: 0,
        }
    }

    /// Records a request. An empty name stands for none.
    pub(super) fn record(&mut self, name: &[u8], duration: Duration, is_error: bool) {
        if name.is_empty() {
            self.unnamed += 1;
            return;
        }
        let index = match self.indexes.get(name) {
            Some(index) => *index,
            None => self.admit(name.into()),
        };
        self.tenants[index].requests.record(duration, is_error);
    }

    /// Adds a tenant; returns its index.
    fn admit(&mut self, name: Name) -> usize {
        let index = if self.tenants.len() < self.max {
            let (requests, inherited) = (Requests::default(), 0);
            self.tenants.push(Tenant { name: Name::clone(&name), requests, inherited });
            self.smallest.push(Reverse((0, self.tenants.len() - 1)));
            self.tenants.len() - 1
        } else {
            let index = self.find_smallest();
            let tenant = &mut self.tenants[index];
            self.indexes.remove(&tenant.name);
            self.replaced.add(&tenant.requests);
            tenant.inherited = tenant.weight();
            tenant.requests.clear();
            tenant.name = Name::clone(&name);
            index
        };
        self.indexes.insert(name, index);
        index
    }

    /// The index of the tenant with the smallest weight. Each outdated weight on the way is renewed.
    fn find_smallest(&mut self) -> usize {
        loop {
            let mut top = self.smallest.peek_mut().expect("a table has room for a tenant");
            let Reverse((weight, index)) = &mut *top;
            let present = self.tenants[*index].weight();
            if *weight == present {
                return *index;
            }
            *weight = present;
        }
    }

    pub(super) fn tenants(&self) -> &[Tenant] {
        &self.tenants
    }

    /// The requests of tenants that others have replaced.
    pub(super) const fn replaced(&self) -> &Decades {
        &self.replaced
    }

    /// The number of requests without a tenant.
    pub(super) const fn unnamed(&self) -> u64 {
        self.unnamed
    }
}

impl Tenant {
    /// At least the number of its requests.
    pub(super) const fn weight(&self) -> u64 {
        self.inherited + self.requests.count()
    }
}

impl Default for Requests {
    fn default() -> Self {
        Self { durations: Histogram::new(Precision::ROUGH), errors: 0 }
    }
}

impl Requests {
    fn record(&mut self, duration: Duration, is_error: bool) {
        self.durations.record(duration);
        self.errors += u64::from(is_error);
    }

    pub(super) const fn count(&self) -> u64 {
        self.durations.count()
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.durations.merge(&other.durations);
        self.errors += other.errors;
    }

    fn clear(&mut self) {
        self.durations.clear();
        self.errors = 0;
    }
}

impl Decades {
    /// Adds all requests of a tenant, if it has any.
    pub(super) fn add(&mut self, requests: &Requests) {
        let Some(exponent) = requests.count().checked_ilog10() else { return };
        let decade = self.0.entry(10_u64.pow(exponent)).or_default();
        decade.tenants += 1;
        decade.requests.merge(requests);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (requests_min, other) in &other.0 {
            let decade = self.0.entry(*requests_min).or_default();
            decade.tenants += other.tenants;
            decade.requests.merge(&other.requests);
        }
    }
}

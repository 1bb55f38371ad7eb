//! Latency by tenant, and by the decade of a tenant's size: 1 to 9 requests, 10 to 99, and so on.
//!
//! A tenant is whose request it is, by the header that the key `tenants.header` names ([`Trail::tenant`]). Requests of clients
//! count: not the calls of a fan-out, and not requests at a leaf, which are attempts of another proxy.
//! **Window**: this hour and the one before, counted from the start of the process.
//! **Limits**: each worker has a [`Table`] for each of the two hours, with at most `tenants.max` tenants. Names are cut off
//! after [`NAME_BYTES_MAX`] bytes.
//! **Cost**: a request looks up its tenant and adds to a histogram, under a lock of its worker. A reader takes that lock for
//! [`COPIED_AT_ONCE`] tenants at a time.
//! **Hurts when** `tenants.max` is large: once an hour, a worker frees the table of an hour, between two requests.

mod report;
mod table;

pub(crate) use report::{DecadeSnapshot, TenantsReport};

use crate::config::TenantsConfig;
use crate::trail::Trail;
use curtail_units::{Duration, Instant};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use table::{Requests, Table, Tenant};

/// The name of a tenant as the header has it.
type Name = Arc<[u8]>;

const HOUR: Duration = Duration::from_secs(3_600);

/// Maximum length of a name. Names that differ only in later bytes are one tenant.
const NAME_BYTES_MAX: usize = 128;

/// The number of tenants that a reader copies under the lock of a worker: some microseconds.
const COPIED_AT_ONCE: usize = 16;

/// The latencies of all tenants.
#[derive(Debug)]
pub(crate) struct Tenants {
    config: TenantsConfig,
    started: Instant,
    /// By worker.
    shards: Box<[Mutex<Shard>]>,
}

/// The requests of one worker; aligned, so that no two workers write to one cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Shard {
    /// The number of the hour since the start of the process.
    hour: u64,
    table: Table,
    /// The hour before; shared, so that a reader holds no lock for it.
    before: Arc<Table>,
}

impl Tenants {
    pub(crate) fn new(config: &TenantsConfig, workers: usize, now: Instant) -> Self {
        let empty = || Table::new(config.max);
        let shard = || Mutex::new(Shard { hour: 0, table: empty(), before: Arc::new(empty()) });
        let shards = std::iter::repeat_with(shard).take(workers).collect();
        Self { config: config.clone(), started: now, shards }
    }

    pub(crate) const fn config(&self) -> &TenantsConfig {
        &self.config
    }

    /// Records a request of this worker that is over.
    pub(crate) fn record(&self, worker: usize, trail: &Trail) {
        let Some(end) = trail.end.filter(|_| !trail.is_call && !trail.is_at_leaf) else { return };
        let name = trail.tenant(&self.config.header).unwrap_or_default();
        let name = &name[..name.len().min(NAME_BYTES_MAX)];
        let mut shard = lock(&self.shards[worker]);
        shard.advance(end.at, self.config.max);
        shard.table.record(name, end.at.since(trail.started), trail.is_failure(&end));
    }

    /// Merges the requests of all workers. That takes milliseconds if there are thousands of tenants.
    pub(crate) fn read(&self, now: Instant) -> TenantsReport {
        let mut report = TenantsReport::new(self, self.window(now));
        let mut merged: HashMap<Name, Requests> = HashMap::new();
        let mut add = |tenant: &Tenant| {
            merged.entry(Arc::clone(&tenant.name)).or_default().merge(&tenant.requests);
        };
        for shard in &self.shards {
            let (hour, before) = {
                let mut shard = lock(shard);
                shard.advance(now, self.config.max);
                report.add_rest(&shard.table);
                (shard.hour, Arc::clone(&shard.before))
            };
            report.add_rest(&before);
            before.tenants().iter().for_each(&mut add);
            let mut copied = 0;
            loop {
                let next: Vec<Tenant> = {
                    let shard = lock(shard);
                    // The hour may have ended meanwhile.
                    let table = if shard.hour == hour { &shard.table } else { &*shard.before };
                    let tenants = table.tenants().iter();
                    tenants.skip(copied).take(COPIED_AT_ONCE).cloned().collect()
                };
                if next.is_empty() {
                    break;
                }
                copied += next.len();
                next.iter().for_each(&mut add);
            }
        }
        report.add_tenants(merged, self.config.max);
        report
    }

    /// The length of the window that ends now.
    fn window(&self, now: Instant) -> Duration {
        let before = (now.as_ns() / HOUR.as_ns()).saturating_sub(1);
        now.since(self.started.max(Instant::from_ns(before * HOUR.as_ns())))
    }
}

impl Shard {
    /// Begins a new table if the hour is over.
    fn advance(&mut self, now: Instant, max: usize) {
        let hour = now.as_ns() / HOUR.as_ns();
        // Instants of requests may be slightly out of order.
        if hour <= self.hour {
            return;
        }
        let over = std::mem::replace(&mut self.table, Table::new(max));
        let is_before = hour == self.hour + 1;
        self.before = Arc::new(if is_before { over } else { Table::new(max) });
        self.hour = hour;
    }
}

/// Nothing panics while it holds one of these locks; should it ever, counting goes on.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

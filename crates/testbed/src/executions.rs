//! Executions: how often servers worked, which is what an extra attempt costs.
//!
//! **Holds** a count for each server and one for each tenant (the `x-tenant` of a request), over all
//! servers. An execution is counted when the work begins: a request that is cancelled while it is
//! queued, or while its server is stalled, has cost nothing and is not counted.
//! **Limits**: [`TENANTS_MAX`] tenants by name; those that come later are counted together as `other`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most tenants that are counted by name.
pub const TENANTS_MAX: usize = 64;

/// The name under which all further tenants are counted.
pub(crate) const OTHER: &str = "other";

/// Counts of executions.
#[derive(Debug)]
pub(crate) struct Executions {
    servers: Vec<AtomicU64>,
    tenants: Mutex<BTreeMap<String, u64>>,
}

impl Executions {
    pub(crate) fn new(servers: usize) -> Self {
        Self {
            servers: (0..servers).map(|_| AtomicU64::new(0)).collect(),
            tenants: Mutex::default(),
        }
    }

    /// Counts one.
    pub(crate) fn count(&self, server: usize, tenant: Option<&str>) {
        if let Some(tenant) = tenant {
            let mut tenants = self.tenants.lock().expect("nothing panics while it is held");
            let known = tenants.len() < TENANTS_MAX || tenants.contains_key(tenant);
            let name = if known { tenant } else { OTHER };
            match tenants.get_mut(name) {
                Some(count) => *count += 1,
                None => drop(tenants.insert(name.to_owned(), 1)),
            }
        }
        self.servers[server].fetch_add(1, Relaxed);
    }

    /// Those of one server.
    pub(crate) fn of_server(&self, server: usize) -> u64 {
        self.servers[server].load(Relaxed)
    }

    /// Those of one tenant, on all servers.
    pub(crate) fn of_tenant(&self, tenant: &str) -> u64 {
        let tenants = self.tenants.lock().expect("nothing panics while it is held");
        tenants.get(tenant).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Executions, OTHER, TENANTS_MAX};

    #[test]
    fn tenants_beyond_the_bound_are_counted_together() {
        let executions = Executions::new(2);
        for nth in 0..TENANTS_MAX + 3 {
            executions.count(nth % 2, Some(&format!("tenant-{nth}")));
        }
        executions.count(0, Some("tenant-0"));
        executions.count(0, None);
        assert_eq!(executions.of_tenant("tenant-0"), 2);
        assert_eq!(executions.of_tenant(&format!("tenant-{TENANTS_MAX}")), 0);
        assert_eq!(executions.of_tenant(OTHER), 3);
        assert_eq!(executions.of_server(0) + executions.of_server(1), TENANTS_MAX as u64 + 5);
    }
}

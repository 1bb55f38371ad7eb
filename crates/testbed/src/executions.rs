//! Counts of executions, which are the cost of extra attempts: by server, and by tenant (`x-tenant`) over all servers.
//!
//! An execution counts when its work begins. A request that is cancelled in the queue, or while its server is stopped,
//! does not count.
//! **Limits**: [`TENANTS_MAX`] tenants by name; later tenants count together as `other`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maximum number of tenants that are counted by name.
pub const TENANTS_MAX: usize = 64;

pub(crate) const OTHER: &str = "other";

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

    pub(crate) fn of_server(&self, server: usize) -> u64 {
        self.servers[server].load(Relaxed)
    }

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

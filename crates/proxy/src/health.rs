//! Health checks: the proxy asks each replica whether it can serve requests, beside what their responses show.
//!
//! A replica of the start counts as healthy until its first check ends. One that joins later gets no requests before its
//! first check passes. A process that replaces another one waits for the first results. The first result decides; later
//! changes need `unhealthy_after` or `healthy_after` equal results in a row. If no replica is healthy, the proxy uses all
//! of them.
//!
//! One thread checks all replicas, so that a busy worker fails no check. Each replica has a connection of its own for
//! checks: the limits of the connections for requests fail no check either.
//! **Limits**: [`CHECKS_MAX`] checks of an upstream at once; responses of [`LIMITS`].

mod request;

use crate::config::HealthCheckConfig;
use crate::driver::Upstream;
use crate::replica::Replica;
use crate::trace_context::entropy_rng;
use crate::worker::Shared;
use bytes::Bytes;
use curtail_http::client::{Client, ClientLimits};
use curtail_http::connect::Connector;
use curtail_policy::ReplicaId;
use curtail_units::{Duration, Instant, Rng};
use http_body_util::Full;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Semaphore, watch};

/// Maximum number of checks of an upstream at once: a start with many replicas must not open a connection to all of them
/// together. Checks that hang delay no other upstream.
const CHECKS_MAX: usize = 64;

const LIMITS: ClientLimits = ClientLimits { body_bytes_max: 1 << 20, idle_max: 1 };

/// Maximum time for which a process that replaces another one waits for the first results.
const FIRST_RESULTS_MAX: std::time::Duration = std::time::Duration::from_secs(5);

/// The wait after a check that panicked, which is a bug, and may repeat.
const AFTER_PANIC: std::time::Duration = std::time::Duration::from_secs(1);

/// The interval between two checks of a replica varies by this ratio, so that many proxies do not check together.
const JITTER: f64 = 0.1;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckResult {
    Passed,
    Failed,
}

curtail_units::labels!(CheckResult {
    Passed => "passed",
    Failed => "failed",
});

/// What all checks share.
#[derive(Debug, Default)]
pub(crate) struct HealthChecks {
    /// Changes when replicas or keys may have changed.
    changes: watch::Sender<()>,
}

/// The permits of the checks of one upstream.
#[derive(Debug)]
pub(crate) struct CheckPermits(Semaphore);

impl Default for CheckPermits {
    fn default() -> Self {
        Self(Semaphore::new(CHECKS_MAX))
    }
}

impl HealthChecks {
    /// Looks at the replicas and the keys again.
    pub(crate) fn wake(&self) {
        self.changes.send_replace(());
    }
}

/// The health of one replica, and its connection for checks.
#[derive(Debug)]
pub(crate) struct ReplicaHealth {
    connector: Connector,
    client: Client<Full<Bytes>>,
    state: Mutex<HealthState>,
    /// Whether a task checks the replica.
    is_watched: AtomicBool,
}

#[derive(Debug, Default)]
struct HealthState {
    status: HealthStatus,
    /// Results in a row that are the opposite of the status.
    opposite_results: u32,
    last_checked: Option<Instant>,
    /// Why the last check failed; absent: it passed.
    last_error: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HealthStatus {
    /// No check has ended; the replica gets requests.
    #[default]
    Unchecked,
    /// The replica has joined, and gets no requests before its first check passes.
    Joining,
    Healthy,
    Unhealthy,
}

/// The health of a replica, for metrics and `/state`.
#[derive(Clone, Debug)]
pub(crate) struct HealthSnapshot {
    /// Absent: no check has ended.
    pub(crate) is_healthy: Option<bool>,
    pub(crate) last_check_age: Option<Duration>,
    pub(crate) last_error: Option<String>,
}

impl HealthSnapshot {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "healthy": self.is_healthy,
            "last_check_age_s": self.last_check_age.map(Duration::as_secs_f64),
            "error": self.last_error,
        })
    }
}

impl HealthState {
    /// Takes the result of a check; returns whether the replica is healthy, if that has changed.
    fn take(
        &mut self,
        now: Instant,
        result: Result<(), String>,
        config: &HealthCheckConfig,
    ) -> Option<bool> {
        let has_passed = result.is_ok();
        self.last_checked = Some(now);
        self.last_error = result.err();
        let needed = match (self.status, has_passed) {
            (HealthStatus::Unchecked | HealthStatus::Joining, _) => 1,
            (HealthStatus::Healthy, false) => config.unhealthy_after,
            (HealthStatus::Unhealthy, true) => config.healthy_after,
            (HealthStatus::Healthy, true) | (HealthStatus::Unhealthy, false) => {
                self.opposite_results = 0;
                return None;
            }
        };
        self.opposite_results += 1;
        if self.opposite_results < needed {
            return None;
        }
        self.opposite_results = 0;
        self.status = if has_passed { HealthStatus::Healthy } else { HealthStatus::Unhealthy };
        Some(has_passed)
    }
}

impl ReplicaHealth {
    pub(crate) fn new(connector: &Connector) -> Self {
        Self {
            connector: connector.clone(),
            client: Client::new(connector.clone(), LIMITS),
            state: Mutex::default(),
            is_watched: AtomicBool::new(false),
        }
    }

    /// Waits for the first check to pass.
    pub(crate) fn join(&self) {
        *self.lock() = HealthState { status: HealthStatus::Joining, ..HealthState::default() };
    }

    /// Forgets all checks.
    pub(crate) fn forget(&self) {
        *self.lock() = HealthState::default();
    }

    /// Whether the replica gets requests.
    pub(crate) fn is_usable(&self) -> bool {
        matches!(self.lock().status, HealthStatus::Unchecked | HealthStatus::Healthy)
    }

    pub(crate) fn read(&self, now: Instant) -> HealthSnapshot {
        let state = self.lock();
        HealthSnapshot {
            is_healthy: match state.status {
                HealthStatus::Unchecked | HealthStatus::Joining => None,
                HealthStatus::Healthy => Some(true),
                HealthStatus::Unhealthy => Some(false),
            },
            last_check_age: state.last_checked.map(|at| now.since(at)),
            last_error: state.last_error.clone(),
        }
    }

    /// Takes the result of a check; returns whether the replica is healthy, if that has changed.
    pub(crate) fn take(
        &self,
        now: Instant,
        result: Result<(), String>,
        config: &HealthCheckConfig,
    ) -> Option<bool> {
        self.lock().take(now, result, config)
    }

    /// When the next check is due.
    fn due(&self, config: &HealthCheckConfig, rng: &mut Rng) -> Instant {
        let factor = 1.0 - JITTER + 2.0 * JITTER * rng.unit();
        let last_checked = self.lock().last_checked;
        last_checked.map_or(Instant::ZERO, |at| at + config.interval.mul_f64(factor))
    }

    fn lock(&self) -> MutexGuard<'_, HealthState> {
        // Nothing panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until each replica has been checked once, at most for [`FIRST_RESULTS_MAX`].
pub(crate) fn wait_for_results(upstreams: &[Arc<Upstream>]) {
    let deadline = std::time::Instant::now() + FIRST_RESULTS_MAX;
    let is_checked =
        |replica: &Arc<Replica>| replica.health.read(Instant::ZERO).is_healthy.is_some();
    let are_checked = |upstream: &Arc<Upstream>| {
        !upstream.has_health_check() || upstream.replicas.load().values().all(is_checked)
    };
    while !upstreams.iter().all(are_checked) && std::time::Instant::now() < deadline {
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}

/// Checks all replicas when they are due, until it is dropped.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut changes = shared.health_checks.changes.subscribe();
    let mut watchers = tokio::task::JoinSet::new();
    loop {
        changes.mark_unchanged();
        for upstream in &shared.snapshot.load().upstreams {
            if !upstream.has_health_check() {
                continue;
            }
            for (id, replica) in upstream.replicas.load().iter() {
                if !replica.health.is_watched.swap(true, Ordering::Relaxed) {
                    let watched = (Arc::downgrade(upstream), id, Arc::downgrade(replica));
                    watchers.spawn(watch(Arc::clone(&shared), watched));
                }
            }
        }
        tokio::select! {
            // The sender lives as long as this task.
            _ = changes.changed() => {}
            Some(ended) = watchers.join_next() => if ended.is_err() {
                tracing::error!("a health check panicked: its replica is checked again");
                tokio::time::sleep(AFTER_PANIC).await;
            },
        }
    }
}

/// A replica that a task checks. A panic of the task drops it, so that another one begins.
struct Watched(Weak<Replica>);

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(replica) = self.0.upgrade().filter(|_| std::thread::panicking()) {
            replica.health.is_watched.store(false, Ordering::Relaxed);
        }
    }
}

/// Checks one replica until it has left, or is not to be checked any more.
async fn watch(
    shared: Arc<Shared>,
    (upstream, id, replica): (Weak<Upstream>, ReplicaId, Weak<Replica>),
) {
    let (mut rng, clock) = (entropy_rng(), shared.process_state.clock);
    let _watched = Watched(Weak::clone(&replica));
    let mut changes = shared.health_checks.changes.subscribe();
    loop {
        changes.mark_unchanged();
        // Neither is held between checks: an upstream that a reload has replaced ends with its last request.
        let (Some(upstream), Some(replica)) = (upstream.upgrade(), replica.upgrade()) else {
            return;
        };
        let config =
            upstream.health_check().filter(|_| is_present(&shared, &upstream, id, &replica));
        let Some(config) = config else {
            replica.health.is_watched.store(false, Ordering::Relaxed);
            // A reload may have added the key again meanwhile, and seen that the replica is watched.
            return shared.health_checks.wake();
        };
        let due = replica.health.due(&config, &mut rng);
        if due <= clock.now() {
            let result = {
                // It is never closed.
                let _permit = upstream.check_permits.0.acquire().await;
                request::check(&replica.health, &config, &clock).await
            };
            upstream.health_checked(id, &replica, &config, result);
            continue;
        }
        drop((upstream, replica));
        let due = clock.deadline(due).unwrap_or_else(tokio::time::Instant::now);
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            _ = changes.changed() => {}
        }
    }
}

/// Whether an upstream is that of the configuration, and still has this replica.
fn is_present(
    shared: &Shared,
    upstream: &Arc<Upstream>,
    id: ReplicaId,
    replica: &Arc<Replica>,
) -> bool {
    let replicas = upstream.replicas.load();
    replicas.get(id).is_some_and(|present| Arc::ptr_eq(present, replica))
        && shared.snapshot.load().upstreams.iter().any(|present| Arc::ptr_eq(present, upstream))
}

#[cfg(test)]
pub(crate) mod tests;

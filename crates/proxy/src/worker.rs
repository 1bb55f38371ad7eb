//! Workers: one thread each, with a runtime of its own and its own connections to the replicas.
//!
//! A request stays on the worker that accepted its connection. Workers share the machines' state, each under a short
//! lock.
//! **Limits**: at most [`REST_CALLS_MAX`] calls of a worker are open after their requests are done.

use crate::access_log::AccessRecord;
use crate::client::Client;
use crate::discovery::Discoveries;
use crate::finished;
use crate::health::HealthChecks;
use crate::metrics::ListenerMetrics;
use crate::snapshot::{ConfigSnapshot, ProcessState};
use crate::trace_context::{self, SpanId, TraceContext};
use crate::trail::{RequestEnd, Trail};
use arc_swap::ArcSwap;
use curtail_http::drain::DrainSignal;
use curtail_http::head::{Fault, Fields};
use curtail_http::timers::Timers;
use curtail_http::websocket;
use curtail_units::{Ratio, Rng};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;

/// Maximum number of calls of a worker that continue after their request is done (`fan_out.rest`).
pub(crate) const REST_CALLS_MAX: u32 = 4_096;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) snapshot: ArcSwap<ConfigSnapshot>,
    pub(crate) process_state: ProcessState,
    pub(crate) discoveries: Discoveries,
    pub(crate) health_checks: HealthChecks,
    /// Begins when the proxy stops.
    pub(crate) drain: Arc<DrainSignal>,
}

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) timers: Arc<Timers>,
    /// For IDs and samples, which must differ between proxies with the same seed.
    rng: Mutex<Rng>,
    jitter: Mutex<Rng>,
    /// A permit for each further call that may continue after its request is done.
    pub(crate) rest_calls: Arc<Semaphore>,
}

impl Worker {
    pub(crate) fn new(index: usize, shared: Arc<Shared>) -> Self {
        let rng = Mutex::new(trace_context::entropy_rng());
        let jitter = shared.process_state.rng.split("jitter").split_index(index as u64);
        let rest_calls = Arc::new(Semaphore::new(REST_CALLS_MAX as usize));
        Self { index, shared, timers: Arc::default(), rng, jitter: Mutex::new(jitter), rest_calls }
    }

    /// Records a finished request: the latency of its tenant at once, its spans and its line in the access log soon, if
    /// these are configured.
    pub(crate) fn record(&self, mut trail: Box<Trail>) {
        trail.end_with_fan_out();
        if self.shared.drain.is_aborting() {
            trail.note_drain_timeout();
        }
        let snapshot = self.shared.snapshot.load();
        if let Some(tenants) = &snapshot.tenants {
            tenants.record(self.index, &trail);
        }
        finished::record(&self.shared, &snapshot, self.index, trail);
    }

    /// Logs a malformed request.
    pub(crate) fn log_malformed(&self, client: &Client, fault: Fault) {
        if let Some(log) = &self.shared.snapshot.load().access_log {
            let clock = &self.shared.process_state.clock;
            let end = RequestEnd {
                at: clock.now(),
                status: Some(fault.status),
                error: Some(fault.error),
                reason: None,
            };
            let draw = self.rng().next_u64();
            log.record(
                self.index,
                &AccessRecord::of_malformed(client, end, (fault.why, draw)),
                clock,
            );
        }
    }

    pub(crate) fn new_span_id(&self) -> SpanId {
        trace_context::new_span_id(&mut self.rng())
    }

    pub(crate) fn new_websocket_key(&self) -> String {
        let mut rng = self.rng();
        let random = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        websocket::encode_key(random.to_ne_bytes())
    }

    /// A random number from 0 to 1, so that workers and replicas that start together do not act together.
    pub(crate) fn jitter(&self) -> f64 {
        self.jitter.lock().unwrap_or_else(PoisonError::into_inner).unit()
    }

    /// True with this probability.
    pub(crate) fn draw(&self, probability: Ratio) -> bool {
        self.rng().chance(probability.get())
    }

    pub(crate) fn trace_context(&self, fields: &Fields) -> TraceContext {
        TraceContext::from_fields(fields, &mut self.rng())
    }

    fn rng(&self) -> MutexGuard<'_, Rng> {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client connection; counted until dropped.
#[derive(Debug)]
pub(crate) struct ConnectionCount(Arc<ListenerMetrics>);

impl ConnectionCount {
    pub(crate) fn new(listener: &Arc<ListenerMetrics>) -> Self {
        listener.accepted.add(1);
        Self(Arc::clone(listener))
    }
}

impl Drop for ConnectionCount {
    fn drop(&mut self) {
        self.0.closed.add(1);
    }
}

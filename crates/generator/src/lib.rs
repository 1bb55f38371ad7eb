//! The generator: sends a workload by a schedule, and records each request.
//!
//! **Open loop**: the plan alone decides the send times. A request that finds all connections in use waits, and the
//! wait is part of its response time.
//! **Threads** share nothing while they run: each has its own part of the plan, connections and recordings.
//! **Limits**: [`Load::connections_max`] connections, 2^20 waiting requests of a thread (the wait of further requests
//! counts as lag), responses of the size that [`Expect`](crate::expect::Expect) allows.
//! **Invariant**: every request of the plan counts once; one without a response at the end of the run has failed.
//! **Hurts when** the machine is short of CPU time: the generator is then late, and the recorded lag shows how late
//! ([`curtail_load::lag`]).

pub mod arrivals;
mod connections;
pub mod expect;
mod flight;
mod http1;
mod http2;
mod pace;
mod recording;
mod rows;
pub mod session;
pub mod sweep;
pub mod target;
mod template;
mod worker;
pub mod workload;

#[cfg(test)]
mod tests;

pub use curtail_http::clock::Clock;
pub use recording::{FailureExample, Recording};
pub use session::Session;

use crate::target::{Protocol, Target};
use crate::workload::Workload;
use curtail_http::connect::Connector;
use curtail_load::{Schedule, Share, Slot};
use curtail_metrics::process::Usage;
use curtail_units::{Duration, Instant, Rng};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use worker::{Run, Worker};

/// A load: requests, target and schedule.
#[derive(Clone, Debug)]
pub struct Load {
    /// The target.
    pub target: Target,
    /// The connector that opens the connections.
    pub connector: Connector,
    /// The protocol.
    pub protocol: Protocol,
    /// Whether connections are reused.
    pub keep_alive: bool,
    /// Maximum number of connections of all threads, at least one each.
    pub connections_max: usize,
    /// Maximum time from when the generator is ready to send a request to the end of its response.
    pub timeout: Duration,
    /// The requests.
    pub workload: Workload,
    /// The schedule.
    pub schedule: Arc<Schedule>,
    /// The source of everything random.
    pub rng: Rng,
    /// The part of the plan that this generator sends.
    pub share: Share,
    /// Number of sending threads.
    pub threads: usize,
}

/// A handle that ends a run early, from any thread.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Stops sending.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the run was stopped.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The time from the call of [`run`] to the start of the plan, in which all threads start.
pub const BEGINS_AFTER: Duration = Duration::from_ms(20);

/// The rate, in requests a second, that one thread can send on time.
const RATE_OF_THREAD: f64 = 20_000.0;

/// The number of threads for a rate, at most the cores of this machine.
#[must_use]
pub fn threads_for(rate_max: f64) -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    (1..cores).find(|threads| rate_max <= RATE_OF_THREAD * *threads as f64).unwrap_or(cores)
}

/// The interval of progress reports.
pub const PROGRESS_EVERY: Duration = Duration::from_ms(500);

/// Sends all of `load` and returns the recording. `progress` gets the recording of each thread since its last report,
/// twice a second, and the time on the run's clock.
///
/// # Errors
/// When the system gives no thread or no timer.
pub fn run(
    load: &Arc<Load>,
    clock: Clock,
    stop: &Stop,
    mut progress: impl FnMut(Instant, &Slot),
) -> io::Result<Recording> {
    let threads = load.threads.max(1);
    let used = Usage::now().cpu;
    let began = clock.now() + BEGINS_AFTER;
    // Far more than the progress reports that wait for this thread.
    let (progress_sender, reports) = mpsc::sync_channel(16 * threads);
    let run = Run { began, clock, stop: stop.clone(), progress: progress_sender };
    let mut seen = thread::scope(|scope| {
        let mut running = Vec::new();
        for nth in 0..threads {
            let (load, run) = (Arc::clone(load), run.clone());
            let builder = thread::Builder::new().name(format!("generator-{nth}"));
            running.push(builder.spawn_scoped(scope, move || Worker::run(load, nth, &run))?);
        }
        drop(run);
        while let Ok(part) = reports.recv() {
            progress(clock.now(), &part);
        }
        let mut all = Recording::new(load.workload.series().len(), began);
        for thread in running {
            let seen = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            all.merge(&seen);
        }
        Ok::<_, io::Error>(all)
    })?;
    seen.cpu = Usage::now().cpu.zip(used).map_or(Duration::ZERO, |(now, before)| now - before);
    Ok(seen)
}

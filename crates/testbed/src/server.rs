//! One server: a queue, some slots, and what is wrong with it.
//!
//! **Decides** when a request is worked on and for how long: it waits for a slot, then until the server is
//! running; that is when the execution is counted and its service time drawn; then it waits until the
//! server's own clock has moved on by that time.
//! **Limits**: `slots` requests at once, `queue_len_max` that wait, first come first served; one more is
//! refused. Whoever goes away leaves the queue, or gives the slot back, at once.

use crate::alarm::Alarm;
use crate::config::ServerConfig;
use crate::distribution::Distribution;
use crate::executions::Executions;
use crate::server_clock::ServerClock;
use curtail_units::{Duration, Rng};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{Semaphore, SemaphorePermit};

/// One of the testbed's servers.
#[derive(Debug)]
pub(crate) struct Server {
    /// Its place among all.
    pub(crate) place: Place,
    pub(crate) executions: Arc<Executions>,
    alarm: Arc<Alarm>,
    config: ServerConfig,
    collections: Vec<Collection>,
    slots: Semaphore,
    waiting: AtomicU32,
    state: Mutex<State>,
}

/// Where a server stands among all.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Its number.
    pub(crate) number: usize,
    /// The shard that it holds.
    pub(crate) shard: usize,
    /// Which of the shard's replicas it is.
    pub(crate) replica: usize,
}

/// A garbage collection: executions from one pause to the next, and how long each pause is.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    pub(crate) executions: u32,
    pub(crate) lasts: Distribution,
}

#[derive(Debug)]
struct State {
    clock: ServerClock,
    service_rng: Rng,
    collection_rng: Rng,
}

/// What a request spent its time on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    /// Waiting for a slot.
    pub(crate) queue: Duration,
    /// Being worked on, as long as it takes when nothing is wrong.
    pub(crate) service: Duration,
    /// What was wrong with the server.
    pub(crate) fault: Duration,
}

/// The queue is full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoRoom;

impl Server {
    /// A server with an empty queue; `clock` and `collections` are what is wrong with it.
    pub(crate) fn new(
        place: Place,
        config: ServerConfig,
        (clock, collections): (ServerClock, Vec<Collection>),
        (alarm, executions): (Arc<Alarm>, Arc<Executions>),
        rng: &Rng,
    ) -> Self {
        let state = State {
            clock,
            service_rng: rng.split("service"),
            collection_rng: rng.split("collection"),
        };
        Self {
            place,
            executions,
            alarm,
            slots: Semaphore::new(config.slots as usize),
            config,
            collections,
            waiting: AtomicU32::new(0),
            state: Mutex::new(state),
        }
    }

    /// Works on one request.
    pub(crate) async fn execute(&self, tenant: Option<&str>) -> Result<Spent, NoRoom> {
        let arrived = self.alarm.now();
        let _slot = self.slot().await?;
        let queue = self.alarm.now().since(arrived);
        self.running().await;
        let service = self.begin(tenant);
        self.work(service).await;
        let fault = self.alarm.now().since(arrived) - queue - service;
        Ok(Spent { queue, service, fault })
    }

    /// Works on what somebody else asked for.
    pub(crate) async fn execute_for_neighbour(&self, service: Duration) -> Result<(), NoRoom> {
        let _slot = self.slot().await?;
        self.running().await;
        self.work(service).await;
        Ok(())
    }

    /// Waits until the server is not stopped.
    pub(crate) async fn running(&self) {
        loop {
            let now = self.alarm.now();
            let Some(at) = self.state().clock.wait_to_run(now) else { return };
            self.alarm.until(at).await;
        }
    }

    async fn slot(&self) -> Result<SemaphorePermit<'_>, NoRoom> {
        if let Ok(slot) = self.slots.try_acquire() {
            return Ok(slot);
        }
        let waiting = Waiting::begin(&self.waiting);
        if waiting.nth > self.config.queue_len_max {
            return Err(NoRoom);
        }
        Ok(self.slots.acquire().await.expect("the slots are never closed"))
    }

    /// Counts the execution, collects garbage if it is time, and gives the service time.
    fn begin(&self, tenant: Option<&str>) -> Duration {
        let nth = self.executions.count(self.place.number, tenant);
        let now = self.alarm.now();
        let mut state = self.state();
        for collection in &self.collections {
            if nth.is_multiple_of(u64::from(collection.executions)) {
                let pause = collection.lasts.draw_work(&mut state.collection_rng);
                state.clock.pause(now, pause);
            }
        }
        self.config.service.draw_work(&mut state.service_rng)
    }

    /// Waits until the server's own clock has moved on by `service`.
    async fn work(&self, service: Duration) {
        let due = self.state().clock.read(self.alarm.now()) + service;
        loop {
            let now = self.alarm.now();
            let Some(at) = self.state().clock.wait_for(now, due) else { return };
            self.alarm.until(at).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while the lock is held")
    }
}

/// Somebody waits for a slot; on drop, no longer.
struct Waiting<'a> {
    count: &'a AtomicU32,
    /// How many wait, this one included.
    nth: u32,
}

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicU32) -> Self {
        Self { count, nth: count.fetch_add(1, Relaxed) + 1 }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Relaxed);
    }
}

//! A receiver with a log on a disk in memory.

use crate::disk::Disk;
use curtail_ingest::{
    Committer, Config, DurableBatch, IngestMetrics, Running, Sink, StallReason, start,
};
use curtail_store::log::{self, Log, Record};
use curtail_store::recent::{BatchKey, RecentBatches};
use curtail_units::Rng;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Keeps what it is handed.
struct Into {
    taken: Arc<Mutex<Vec<DurableBatch>>>,
    room: Arc<Room>,
}

/// Whether it may be handed something.
#[derive(Default)]
pub(crate) struct Room {
    /// Why it is full, if it is, and whether somebody waits.
    state: Mutex<(Option<StallReason>, bool)>,
    changed: Condvar,
}

impl Room {
    pub(crate) fn fill(&self, full: Option<StallReason>) {
        self.state.lock().expect("no panic").0 = full;
        self.changed.notify_all();
    }

    pub(crate) fn is_waited_for(&self) -> bool {
        self.state.lock().expect("no panic").1
    }
}

impl Sink for Into {
    fn wait(&mut self, report: &mut dyn FnMut(StallReason)) {
        let mut state = self.room.state.lock().expect("no panic");
        while let Some(why) = state.0 {
            report(why);
            state.1 = true;
            state = self.room.changed.wait(state).expect("no panic");
        }
        state.1 = false;
    }

    fn take(&mut self, _: u64, taken: Vec<DurableBatch>) -> bool {
        self.taken.lock().expect("no panic").extend(taken);
        false
    }

    fn ended(&mut self, _: u64) {}
}

pub(crate) struct Receiver {
    pub(crate) disk: Disk,
    pub(crate) room: Arc<Room>,
    running: Option<Running>,
    address: SocketAddr,
    pub(crate) metrics: Arc<IngestMetrics>,
    taken: Arc<Mutex<Vec<DurableBatch>>>,
    log: Option<JoinHandle<()>>,
}

impl Receiver {
    pub(crate) fn start(change: impl FnOnce(&mut Config)) -> Self {
        let disk = Disk::default();
        let taken = Arc::new(Mutex::new(Vec::new()));
        let room = Arc::<Room>::default();
        let into = Into { taken: Arc::clone(&taken), room: Arc::clone(&room) };
        let log = Log::open(Arc::new(disk.clone()), 0, Rng::new(1)).expect("an empty disk");
        let recent = Arc::new(RecentBatches::new(BatchKey::new([7; 32])));
        let (committer, log) = Committer::start(log, recent, into).expect("a thread");
        let mut config = Config {
            addresses: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
            workers: 2,
            ..Config::default()
        };
        // A test that holds the disk states itself how long senders wait for it.
        config.limits.full_for = Duration::from_secs(3_600);
        change(&mut config);
        let running = start(&config, &committer).expect("it starts");
        let (address, metrics) = (running.addresses()[0], Arc::clone(running.metrics()));
        Self { disk, room, running: Some(running), address, metrics, taken, log: Some(log) }
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// What was handed on since.
    pub(crate) fn taken(&self) -> Vec<DurableBatch> {
        std::mem::take(&mut self.taken.lock().expect("no panic"))
    }

    /// What the log holds.
    pub(crate) fn logged(&self) -> Vec<Record> {
        let segments = log::segments(&self.disk).expect("a list");
        let read = segments.into_iter().map(|segment| log::read(&self.disk, segment));
        read.flat_map(|segment| segment.expect("it is there").records).collect()
    }

    /// Stops in order, from a thread of its own: it waits.
    pub(crate) fn stop(mut self) -> JoinHandle<Self> {
        std::thread::spawn(move || {
            self.running.take().expect("it runs").stop(crate::DEADLINE);
            self.log.take().expect("it runs").join().expect("the log has not panicked");
            self
        })
    }
}

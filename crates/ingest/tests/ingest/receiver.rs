//! A receiver with a log on a disk in memory.

use crate::disk::Disk;
use curtail_ingest::{Committer, Config, Counts, Running, Sink, Taken, start};
use curtail_store::log::{self, Log, Record};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Keeps what it is handed.
struct Into(Arc<Mutex<Vec<Taken>>>);

impl Sink for Into {
    fn wait(&mut self) {}

    fn take(&mut self, _: u64, taken: Vec<Taken>) -> bool {
        self.0.lock().expect("no panic").extend(taken);
        false
    }

    fn ended(&mut self, _: u64) {}
}

pub(crate) struct Receiver {
    pub(crate) disk: Disk,
    running: Option<Running>,
    address: SocketAddr,
    counts: Arc<Counts>,
    taken: Arc<Mutex<Vec<Taken>>>,
    log: Option<JoinHandle<()>>,
}

impl Receiver {
    pub(crate) fn start(change: impl FnOnce(&mut Config)) -> Self {
        let disk = Disk::default();
        let taken = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&taken);
        let log = Log::open(Arc::new(disk.clone()), 0).expect("an empty disk");
        let (committer, log) = Committer::start(log, Into(into)).expect("a thread");
        let mut config = Config {
            addresses: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
            workers: 2,
            ..Config::default()
        };
        change(&mut config);
        let running = start(&config, &committer).expect("it starts");
        let (address, counts) = (running.addresses()[0], Arc::clone(running.counts()));
        Self { disk, running: Some(running), address, counts, taken, log: Some(log) }
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What was handed on since.
    pub(crate) fn taken(&self) -> Vec<Taken> {
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

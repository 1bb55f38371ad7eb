//! Files in memory for tests, which fail as planned and lose unsynced bytes.

use super::{Files, GrowingFile};
use curtail_units::Rng;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard};

/// Files whose operations are counted. Each operation may be made to fail.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failing(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, Held>,
    operations: usize,
    /// The numbers of the operations that fail.
    fails: std::ops::Range<usize>,
    /// Whether appends fail until a file is removed.
    is_full: bool,
}

#[derive(Clone, Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    synced: usize,
}

#[derive(Debug)]
struct Growing {
    all: Failing,
    name: String,
}

impl Failing {
    /// Lets the operations with these numbers fail, counted from zero.
    pub(crate) fn fail(&self, operations: std::ops::Range<usize>) {
        self.lock().fails = operations;
    }

    /// Fills the disk: appends fail until a non-empty file is removed.
    pub(crate) fn fill(&self) {
        self.lock().is_full = true;
    }

    /// The number of operations.
    pub(crate) fn operations(&self) -> usize {
        self.lock().operations
    }

    /// The files after a power cut: the synced bytes, and any part of the rest.
    pub(crate) fn after_power_cut(&self, rng: &mut Rng) -> Self {
        let mut files = self.lock().files.clone();
        for file in files.values_mut() {
            file.bytes.truncate(file.synced + rng.below(file.bytes.len() - file.synced + 1));
            // Blocks need not reach the disk in their order.
            if rng.chance(0.5) && file.bytes.len() > file.synced {
                let at = file.synced + rng.below(file.bytes.len() - file.synced);
                file.bytes[at] = 0;
            }
        }
        Self(Arc::new(Mutex::new(State { files, ..State::default() })))
    }

    /// Flips a bit in one byte of a file.
    pub(crate) fn damage(&self, name: &str, at: usize) {
        self.lock().files.get_mut(name).expect("it is there").bytes[at] ^= 0x40;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test has panicked here")
    }

    /// Counts an operation, which fails if that is planned.
    fn begin(&self) -> (MutexGuard<'_, State>, io::Result<()>) {
        let mut state = self.lock();
        let fails = state.fails.contains(&state.operations);
        state.operations += 1;
        let outcome = if fails { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) };
        (state, outcome)
    }
}

impl Files for Failing {
    fn create(&self, name: &str) -> io::Result<Box<dyn GrowingFile>> {
        let (mut state, outcome) = self.begin();
        outcome?;
        assert!(state.files.insert(name.to_owned(), Held::default()).is_none(), "{name} is there");
        Ok(Box::new(Growing { all: self.clone(), name: name.to_owned() }))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let (state, outcome) = self.begin();
        outcome?;
        state.files.get(name).map(|file| file.bytes.clone()).ok_or(io::ErrorKind::NotFound.into())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let (state, outcome) = self.begin();
        outcome.map(|()| state.files.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let (mut state, outcome) = self.begin();
        outcome?;
        let file = state.files.remove(name).ok_or(io::Error::from(io::ErrorKind::NotFound))?;
        state.is_full &= file.bytes.is_empty();
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (mut state, outcome) = self.begin();
        outcome?;
        let file = state.files.remove(from).ok_or(io::Error::from(io::ErrorKind::NotFound))?;
        state.files.insert(to.to_owned(), file);
        Ok(())
    }
}

impl GrowingFile for Growing {
    fn append(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let (mut state, outcome) = self.all.begin();
        if state.is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        // A write that fails has written a part.
        let len = if outcome.is_ok() { bytes.len() } else { bytes.len() / 2 };
        // The file of a segment that was removed can still be written.
        if let Some(file) = state.files.get_mut(&self.name) {
            file.bytes.extend_from_slice(&bytes[..len]);
        }
        outcome
    }

    fn sync(&mut self) -> io::Result<()> {
        let (mut state, outcome) = self.all.begin();
        if let Some(file) = state.files.get_mut(&self.name).filter(|_| outcome.is_ok()) {
            file.synced = file.bytes.len();
        }
        outcome
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        let (mut state, outcome) = self.all.begin();
        let len = usize::try_from(len).expect("short");
        if let Some(file) = state.files.get_mut(&self.name).filter(|_| outcome.is_ok()) {
            file.bytes.truncate(len);
            file.synced = file.synced.min(len);
        }
        outcome
    }
}

//! A disk in memory that fails or blocks on demand.

use curtail_store::{Files, files::GrowingFile};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

#[derive(Clone, Debug, Default)]
pub(crate) struct Disk(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, Vec<u8>>,
    syncs: usize,
    is_held: bool,
    fails: Option<io::ErrorKind>,
}

#[derive(Debug)]
struct Growing(Disk, String);

impl Disk {
    /// Lets syncs wait until they are let go.
    pub(crate) fn hold(&self) {
        self.lock().is_held = true;
    }

    pub(crate) fn let_go(&self) {
        self.lock().is_held = false;
        self.0.changed.notify_all();
    }

    /// Lets writes fail, or succeed again.
    pub(crate) fn fail(&self, with: Option<io::ErrorKind>) {
        self.lock().fails = with;
    }

    /// How many syncs there were, or have begun to wait.
    pub(crate) fn syncs(&self) -> usize {
        self.lock().syncs
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no panic")
    }
}

impl Files for Disk {
    fn create(&self, name: &str) -> io::Result<Box<dyn GrowingFile>> {
        self.lock().files.insert(name.to_owned(), Vec::new());
        Ok(Box::new(Growing(self.clone(), name.to_owned())))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        Ok(self.lock().files[name].clone())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.lock().files.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.lock().files.remove(name);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        let file = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.files.insert(to.to_owned(), file);
        Ok(())
    }
}

impl GrowingFile for Growing {
    fn append(&mut self, parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut state = self.0.lock();
        if let Some(kind) = state.fails {
            return Err(kind.into());
        }
        let file = state.files.get_mut(&self.1).expect("it was created");
        parts.iter().for_each(|part| file.extend_from_slice(part));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.syncs += 1;
        let waited = self.0.0.changed.wait_while(state, |state| state.is_held);
        drop(waited.expect("no panic"));
        Ok(())
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        let len = usize::try_from(len).expect("short");
        state.files.get_mut(&self.1).expect("it was created").truncate(len);
        Ok(())
    }
}

//! The runs of a table that queries see.

use super::{StoredRun, Unread};
use crate::schema::Table;
use object_store::ObjectStore;
use object_store::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// The runs of the newest known version of a table.
#[derive(Debug)]
pub struct RunSet {
    table: &'static Table,
    objects: Arc<dyn ObjectStore>,
    /// Where the table is.
    root: Path,
    /// Runs of more rows are not merged into larger ones.
    final_rows: u64,
    version: RwLock<RunVersion>,
}

/// The runs of one version of a table.
#[derive(Debug, Default)]
pub(super) struct RunVersion {
    pub(super) version: u64,
    /// The position of our log up to which rows are in these runs.
    pub(super) committed: u64,
    pub(super) runs: Arc<[Arc<StoredRun>]>,
    /// Runs whose footer cannot be read, so their content is unknown.
    pub(super) unopened: Vec<Unread>,
}

impl RunSet {
    /// No runs yet.
    pub(super) fn new(
        table: &'static Table,
        objects: Arc<dyn ObjectStore>,
        root: Path,
        final_rows: u64,
    ) -> Self {
        Self { table, objects, root, final_rows, version: RwLock::default() }
    }

    /// The runs.
    #[must_use]
    pub fn runs(&self) -> Vec<Arc<StoredRun>> {
        let runs = Arc::clone(&self.read().runs);
        runs.to_vec()
    }

    /// Where the runs are.
    #[must_use]
    pub const fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    /// The table.
    pub(super) const fn table(&self) -> &'static Table {
        self.table
    }

    pub(super) const fn final_rows(&self) -> u64 {
        self.final_rows
    }

    /// Where a file of the table is.
    pub(crate) fn path(&self, below: &str) -> Path {
        Path::from(format!("{}/{below}", self.root))
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, RunVersion> {
        self.version.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a version visible, unless another writer of this process has published a later one meanwhile.
    pub(super) fn publish(&self, new: RunVersion) {
        let known = &mut *self.version.write().unwrap_or_else(PoisonError::into_inner);
        if new.version >= known.version {
            *known = new;
        }
    }
}

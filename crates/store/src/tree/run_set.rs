//! The runs of a table that queries see.

use super::compact::CompactError;
use super::{StoredRun, Unread};
use crate::columns::Columns;
use crate::merge::{Merge, Step};
use crate::schema::Table;
use object_store::ObjectStore;
use object_store::path::Path;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// The runs of the newest known version of a table.
#[derive(Debug)]
pub struct RunSet {
    table: &'static Table,
    objects: Arc<dyn ObjectStore>,
    /// The path of the table.
    root: Path,
    /// Runs of more rows are not merged into larger ones.
    pub(super) final_rows: u64,
    version: RwLock<RunVersion>,
}

/// The runs of one version of a table.
#[derive(Debug, Default)]
pub(super) struct RunVersion {
    pub(super) version: u64,
    /// The segment of our log up to which all rows are in these runs.
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

    /// The object store of the runs.
    pub(crate) const fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    /// The table.
    pub(crate) const fn table(&self) -> &'static Table {
        self.table
    }

    /// The path of a file of the table.
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

    /// Merges fields of runs and passes the rows to `each` in their common order, a row group at a time. `pick` gets
    /// the number of a run, counted from zero, and a row group, and selects rows. Returns the number of rows that were
    /// dropped as copies: zero unless all fields are merged.
    ///
    /// `fields` must have those by which runs are sorted. Memory holds the selected rows of a row group of each run,
    /// and the row group that is made.
    pub(crate) async fn in_order<E: From<CompactError>>(
        &self,
        runs: &[Arc<StoredRun>],
        fields: &[usize],
        mut pick: impl FnMut(usize, Columns) -> Columns,
        mut each: impl AsyncFnMut(Columns) -> Result<(), E>,
    ) -> Result<u64, E> {
        let is_all = fields.len() == self.table.schema().fields().len();
        let mut merge = Merge::new(self.table, runs.len(), is_all);
        let mut next = vec![0; runs.len()];
        loop {
            match merge.step() {
                Step::Needs(nth) => {
                    let (run, group) = (&runs[nth], next[nth]);
                    if group == run.run().groups() {
                        merge.end(nth);
                        continue;
                    }
                    next[nth] += 1;
                    let rows = run.row_group(&self.objects, group, fields).await?;
                    merge.give(nth, pick(nth, rows));
                }
                Step::Made(group) => {
                    each(group).await?;
                    // Several row groups may be made between two reads. A flush on this thread should not wait for all.
                    tokio::task::yield_now().await;
                }
                Step::Done => return Ok(merge.copies()),
            }
        }
    }
}

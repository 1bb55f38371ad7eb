//! A run in the object store.

use super::compact::CompactError;
use super::end::End;
use crate::columns::Columns;
use crate::delta::Add;
use crate::run::{Run, RunError, Wanted};
use crate::schema::Table;
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The number of bytes at the end of a file that are fetched first. Most runs need no more.
const FOOTER_BYTES: u64 = 256 << 10;

/// The tag of files that have the [tail](crate::tail) of the files that they replaced.
pub(super) const TAIL: &str = "curtail.tail";

/// The tag of files with a range of the IDs of the runs that they replaced.
pub(crate) const RANGE: &str = "curtail.range";

/// A run in the object store.
#[derive(Debug)]
pub struct StoredRun {
    path: Path,
    /// Its entry in the table.
    pub(super) add: Add,
    run: Run,
    /// Whether damage was found in a read part.
    is_damaged: AtomicBool,
}

/// Why a run cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The store failed.
    #[error("it cannot be fetched")]
    Store(#[from] object_store::Error),
    /// The run is damaged.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// A run that could not be read.
#[derive(Clone, Debug)]
pub struct Unread {
    /// The path of the run.
    pub path: Path,
    /// The error.
    pub error: Arc<ReadError>,
}

impl StoredRun {
    pub(super) const fn new(path: Path, add: Add, run: Run) -> Self {
        Self { path, add, run, is_damaged: AtomicBool::new(false) }
    }

    /// Opens a run: fetches and parses the end of its file.
    pub(super) async fn open(
        objects: &dyn ObjectStore,
        table: &'static Table,
        path: Path,
        add: &Add,
    ) -> Result<Self, ReadError> {
        let len = add.size;
        let end = End::of_file(add);
        let mut wanted = FOOTER_BYTES.max(end.map_or(0, |end| end.bytes));
        loop {
            let range = len.saturating_sub(wanted)..len;
            let options = GetOptions { range: Some(range.into()), ..GetOptions::default() };
            let end_bytes = objects.get_opts(&path, options).await?.bytes().await?;
            if end.is_some_and(|end| !end.is(&end_bytes)) {
                return Err(RunError::End.into());
            }
            match Run::open(table, &end_bytes, len) {
                Ok(run) => return Ok(Self::new(path, add.clone(), run)),
                Err(RunError::Longer(bytes)) if bytes as u64 > wanted && wanted < len => {
                    wanted = bytes as u64;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The path of the run.
    #[must_use]
    pub const fn path(&self) -> &Path {
        &self.path
    }

    /// Its entry in the table.
    pub(crate) const fn add(&self) -> &Add {
        &self.add
    }

    /// The day of its rows, as in 2026-11-22.
    #[must_use]
    pub fn day(&self) -> &str {
        self.add.partition_values.get("day").and_then(Option::as_deref).unwrap_or_default()
    }

    /// Whether it has the tail of other runs: its rows have weights.
    pub(crate) fn is_tail(&self) -> bool {
        self.add.has_tag(TAIL)
    }

    /// Whether it has all rows of the replaced runs for a range of IDs. Such a run is not merged again.
    pub(crate) fn is_range(&self) -> bool {
        self.add.has_tag(RANGE)
    }

    /// Whether damage was found in it. Queries still read it, and report it.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_damaged.load(Ordering::Relaxed)
    }

    /// The number of rows.
    pub(crate) fn row_count(&self) -> u64 {
        (0..self.run.groups()).map(|group| self.run.rows(group) as u64).sum()
    }

    /// The run as one that could not be read.
    pub(crate) fn unread(&self, error: ReadError) -> Unread {
        Unread { path: self.path.clone(), error: error.into() }
    }

    /// The metadata at the end of the file.
    pub(crate) const fn run(&self) -> &Run {
        &self.run
    }

    /// Fetches fields of rows of a row group.
    pub(crate) async fn rows(
        &self,
        objects: &dyn ObjectStore,
        group: usize,
        fields: &[usize],
        rows: Range<usize>,
    ) -> Result<Columns, ReadError> {
        self.read(objects, &self.run.want(group, fields, rows)).await
    }

    /// Fetches fields of all rows of a row group.
    pub(crate) async fn row_group(
        &self,
        objects: &dyn ObjectStore,
        group: usize,
        fields: &[usize],
    ) -> Result<Columns, CompactError> {
        let rows = self.rows(objects, group, fields, 0..self.run.rows(group)).await;
        rows.map_err(|source| CompactError::Read { path: self.path.clone(), source })
    }

    /// Fetches and decodes the wanted rows of the [run](Self::run).
    pub(crate) async fn read(
        &self,
        objects: &dyn ObjectStore,
        wanted: &Wanted,
    ) -> Result<Columns, ReadError> {
        let fetched = objects.get_ranges(&self.path, &wanted.ranges).await?;
        // A local file is always ready, so this yields once to let a caller with a timeout run. Waking the waker at
        // once would not do: a stream of several futures then polls this one again in the same turn.
        tokio::task::yield_now().await;
        let read = self.run.read(wanted, &fetched);
        if read.is_err() {
            self.is_damaged.store(true, Ordering::Relaxed);
        }
        Ok(read?)
    }

    /// Reads fields of the rows with an ID in the field by which the run is sorted. Each part has its row group, and
    /// the number of its first row in the row group.
    pub(super) async fn pages_with_id(
        &self,
        objects: &dyn ObjectStore,
        (field, id): (usize, u128),
        fields: &[usize],
    ) -> Result<Vec<(usize, usize, Columns)>, ReadError> {
        let mut with_ids = fields.to_vec();
        with_ids.push(field);
        let mut found = Vec::new();
        for group in 0..self.run.groups() {
            for page in self.run.rows_between(group, field, id, id) {
                let rows = self.rows(objects, group, &with_ids, page.clone()).await?;
                let ids = rows.wide(field);
                let from = ids.partition_point(|each| *each < id);
                let to = ids.partition_point(|each| *each <= id);
                if from < to {
                    found.push((group, page.start + from, rows.part(from..to)));
                }
            }
        }
        Ok(found)
    }
}

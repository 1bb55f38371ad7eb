//! Opening a tree: what the table says, then what only the log has.

use super::flush::Flusher;
use super::stored::StoredRun;
use super::trace::Unread;
use super::{State, Tree};
use crate::delta::{self, CommitError, Format, Metadata, Table};
use crate::files::Files;
use crate::log::{self, Damage};
use crate::schema::spans::SPANS;
use curtail_otlp::{Limits, Signal, Spans};
use object_store::ObjectStore;
use object_store::path::Path;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, RwLock};

/// Where a tree is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder of the log.
    pub files: Arc<dyn Files>,
    /// Where runs and the table's log are.
    pub objects: Arc<dyn ObjectStore>,
    /// The table, from the root of the object store.
    pub root: Path,
    /// Which writer of the table this is: the folder of the log, and no other, has this name.
    pub writer: String,
    /// A memtable of this many bytes is full.
    pub memtable_bytes: usize,
}

/// What was found when a tree was opened.
#[derive(Debug, Default)]
pub struct Found {
    /// How many spans the log had that are in no run.
    pub spans: usize,
    /// Segments with bytes that are no record. The end of the last one was being written, mostly; another is
    /// kept, as `damaged-…`, when what is whole in it is in a run.
    pub damaged: Vec<(u64, Damage)>,
    /// Records that are whole and no batch of traces: how many.
    pub undecoded: usize,
    /// Runs that cannot be read. They are part of the table, and are not asked.
    pub unread: Vec<Unread>,
}

/// Why a tree cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The log's folder.
    #[error("the log cannot be read")]
    Log(#[from] io::Error),
    /// The table.
    #[error(transparent)]
    Table(#[from] delta::OpenError),
    /// The table cannot be made.
    #[error(transparent)]
    Create(#[from] CommitError),
}

impl Tree {
    /// Opens a tree, or makes it. What the log has and no run is in sealed memtables after it, so that
    /// it is flushed at once. It is `now_ms`, milliseconds since 1970; `id` is a UUID, for a table that is
    /// made.
    ///
    /// # Errors
    /// When the log or the table cannot be read. A run that cannot be is [`Found`].
    pub async fn open(
        settings: Settings,
        now_ms: i64,
        id: &str,
    ) -> Result<(Flusher, Found), OpenError> {
        let Settings { files, objects, root, writer, memtable_bytes } = settings;
        let table = match Table::open(Arc::clone(&objects), root.clone()).await? {
            Some(table) => table,
            None => {
                let objects = Arc::clone(&objects);
                Table::create(objects, root.clone(), metadata(id, now_ms), now_ms, id).await?
            }
        };
        let mut found = Found::default();
        let mut state = State::default();
        for add in table.snapshot().files() {
            let path = Path::from(format!("{root}/{}", add.path));
            match StoredRun::open(&*objects, SPANS.schema(), path.clone(), add.size).await {
                Ok(run) => state.runs.push(Arc::new(run)),
                Err(error) => found.unread.push(Unread { path, error }),
            }
        }
        let tree = Arc::new(Self { objects, memtable_bytes, state: RwLock::new(state) });
        let written = table.snapshot().transaction(&writer);
        let written = written.and_then(|last| u64::try_from(last).ok()).unwrap_or_default();
        let last = tree.replay(&*files, written, &mut found)?;
        let damaged = found.damaged.iter().map(|(segment, _)| *segment);
        // The end of the last one was being written.
        let damaged = damaged.filter(|segment| *segment != last).collect();
        Ok((Flusher { tree, files, table, root, writer, damaged, last }, found))
    }

    /// Takes in what the log has after the segment `written`, and removes what it has up to it. Returns the
    /// last segment that there was.
    fn replay(&self, files: &dyn Files, written: u64, found: &mut Found) -> io::Result<u64> {
        let mut last = written;
        for segment in log::segments(files)? {
            last = last.max(segment);
            if segment <= written {
                // What cannot be removed is passed over again.
                log::remove(files, segment).ok();
                continue;
            }
            let log::Segment { records, damage } = log::read(files, segment)?;
            found.damaged.extend(damage.map(|damage| (segment, damage)));
            for record in records.iter().filter(|record| record.signal == Signal::Traces) {
                match Spans::decode(&record.batch, &TAKEN) {
                    Ok((rows, _)) => {
                        found.spans += rows.spans.len();
                        self.insert(segment, record, &rows);
                    }
                    Err(_) => found.undecoded += 1,
                }
            }
            if self.is_full() {
                self.seal();
            }
        }
        self.seal();
        Ok(last)
    }
}

/// What is in the log was within the limits when it came.
const TAKEN: Limits =
    Limits { batch_bytes: u32::MAX, attributes: u32::MAX, events: u32::MAX, depth: 62 };

/// The table of spans.
fn metadata(id: &str, now_ms: i64) -> Metadata {
    Metadata {
        id: id.to_owned(),
        name: Some("spans".to_owned()),
        format: Format { provider: "parquet".to_owned(), options: BTreeMap::new() },
        schema_string: SPANS.schema().delta(&[("day", "date")]),
        partition_columns: vec!["day".to_owned()],
        configuration: BTreeMap::from([("delta.checkpointInterval".to_owned(), "100".to_owned())]),
        created_time: Some(now_ms),
    }
}

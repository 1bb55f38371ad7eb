//! Opens a tree.

use super::run_set::RunSet;
use super::stored::Unread;
use super::table_writer::TableWriter;
use super::{State, Tree};
use crate::delta::{self, Change, CommitError, Format, Metadata, Table, TableVersion};
use crate::schema::{self, Schema};
use object_store::ObjectStore;
use object_store::path::Path;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, RwLock};

/// The location of a tree.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The object store of the runs and the table's log.
    pub objects: Arc<dyn ObjectStore>,
    /// The folder of the tables, from the root of the object store.
    pub root: Path,
    /// The name of this writer of the table, which is unique to the folder of a log.
    pub writer: String,
    /// Runs of more rows are not merged into larger ones: [`FINAL_ROWS`](super::FINAL_ROWS), except in tests.
    pub final_rows: u64,
    /// The last known version of each table, by name; an older table is an error.
    pub known: BTreeMap<String, TableVersion>,
}

/// Why a tree cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The table cannot be read.
    #[error(transparent)]
    Table(#[from] delta::OpenError),
    /// The commit that creates the table, adds columns to it or fences it has failed.
    #[error(transparent)]
    Create(#[from] CommitError),
}

impl Tree {
    /// Opens a tree, or creates it at `now_ms`, milliseconds since 1970; `id` is the UUID of a new table. Returns also
    /// the runs that cannot be read, which every query result names.
    ///
    /// `last_segment` is the last segment of the log. If a [logged](schema::Table::is_logged) table has committed less,
    /// the commit of a process that died may still be on its way to the store. Then that commit is
    /// [fenced](Table::fence) off.
    pub(crate) async fn open(
        settings: &Settings,
        table: &'static schema::Table,
        last_segment: u64,
        now_ms: i64,
        id: &str,
    ) -> Result<(Arc<Self>, TableWriter, Vec<Unread>), OpenError> {
        let mut writer = TableWriter::open(settings, table, now_ms, id).await?;
        if table.is_logged() && last_segment > writer.table.snapshot().position(&settings.writer) {
            writer.table.fence(now_ms, id).await?;
        }
        let written = writer.table.snapshot().position(&settings.writer);
        let unread = writer.publish(None).await;
        let state = RwLock::new(State { active: None, sealed: Vec::new(), sealed_to: written });
        let tree = Self { runs: Arc::clone(writer.runs()), written, state };
        Ok((Arc::new(tree), writer, unread))
    }

    /// The last segment of the log whose rows were in runs when the tree was opened.
    pub(crate) const fn written(&self) -> u64 {
        self.written
    }
}

impl TableWriter {
    /// Opens a table, or creates it. Its runs are not visible yet.
    pub(crate) async fn open(
        settings: &Settings,
        table: &'static schema::Table,
        now_ms: i64,
        id: &str,
    ) -> Result<Self, OpenError> {
        let Settings { objects, root, writer, final_rows, known } = settings.clone();
        let (name, schema, root) = (table.name, table.schema(), root.join(table.name));
        let opened = Table::open(Arc::clone(&objects), root.clone()).await?;
        match (&opened, known.get(name)) {
            (Some(table), Some(known)) => table.check(known)?,
            (None, Some(TableVersion { id, .. })) => {
                return Err(delta::OpenError::Another { root, known: id.clone() }.into());
            }
            (_, None) => {}
        }
        let delta = if let Some(mut delta) = opened {
            if let Some(metadata) = with_new_columns(&delta, schema) {
                let (operation, metadata) = ("ADD COLUMNS", Some(metadata));
                let change = Change { operation, metadata, ..Change::default() };
                delta.commit(&change, now_ms, id).await?;
            }
            delta
        } else {
            let metadata = metadata(name, schema, id, now_ms);
            Table::create(Arc::clone(&objects), root.clone(), metadata, now_ms, id).await?
        };
        let runs = Arc::new(RunSet::new(table, objects, root, final_rows));
        Ok(Self { runs, table: delta, damaged: HashMap::new(), source: writer })
    }
}

/// The metadata of a table with the columns that it lacks; [`None`] if it has all. Unknown columns of other
/// writers remain.
fn with_new_columns(table: &Table, schema: &Schema) -> Option<Metadata> {
    let metadata = table.snapshot().metadata()?;
    let mut there: Value = serde_json::from_str(&metadata.schema_string).ok()?;
    let ours: Value = serde_json::from_str(&schema.delta(&[])).expect("it was just made");
    let fields = there["fields"].as_array_mut()?;
    let is_new = |field: &&Value| !fields.iter().any(|known| known["name"] == field["name"]);
    let new: Vec<_> = ours["fields"].as_array()?.iter().filter(is_new).cloned().collect();
    if new.is_empty() {
        return None;
    }
    fields.extend(new);
    Some(Metadata { schema_string: there.to_string(), ..metadata.clone() })
}

fn metadata(name: &str, schema: &Schema, id: &str, now_ms: i64) -> Metadata {
    let properties = [
        ("delta.checkpointInterval", "100"),
        // A commit a second is 86,400 a day.
        ("delta.logRetentionDuration", "interval 1 day"),
        ("delta.deletedFileRetentionDuration", "interval 1 day"),
    ];
    let text = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    Metadata {
        id: id.to_owned(),
        name: Some(name.to_owned()),
        format: Format { provider: "parquet".to_owned(), options: BTreeMap::new() },
        schema_string: schema.delta(&[("day", "date")]),
        partition_columns: vec!["day".to_owned()],
        configuration: properties.map(text).into(),
        created_time: Some(now_ms),
    }
}

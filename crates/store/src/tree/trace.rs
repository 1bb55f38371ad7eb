//! A trace by its ID.

use super::Tree;
use super::stored::ReadError;
use crate::batch::write_span;
use crate::columns::Columns;
use crate::memtable::{Memtable, SpanRows};
use crate::schema::envelope::TENANT;
use crate::schema::spans::SPANS;
use crate::sort::Place;
use curtail_otlp::{BadRow, TracesWriter};
use object_store::path::Path;
use std::sync::Arc;

/// The spans of a trace.
#[derive(Debug, Default)]
pub struct Trace {
    /// Rows of one tenant; the table's columns.
    pub rows: Vec<Columns>,
    /// Runs that may have more of it.
    pub unread: Vec<Unread>,
}

/// A run that was not read.
#[derive(Debug)]
pub struct Unread {
    /// Which one.
    pub path: Path,
    /// Why.
    pub error: ReadError,
}

impl Tree<SpanRows> {
    /// The spans that a tenant has of a trace, with those that came a moment ago. Where a run cannot be read,
    /// it is said, and the others answer.
    pub async fn trace(&self, tenant: &str, trace_id: u128) -> Trace {
        let (mut rows, runs) = {
            let state = self.read();
            let sealed = state.sealed.iter().map(Arc::as_ref);
            let memtables = sealed.chain(&state.active).map(|filling| &filling.memtable);
            let rows: Vec<_> = memtables.map(|memtable| rows_of(memtable, trace_id)).collect();
            (rows, state.runs.clone())
        };
        let mut unread = Vec::new();
        for run in runs {
            match run.trace(&*self.objects, trace_id).await {
                Ok(found) => rows.extend(found),
                Err(error) => unread.push(Unread { path: run.path().clone(), error }),
            }
        }
        let rows = rows.iter().map(|rows| of_tenant(rows, tenant)).filter(|rows| !rows.is_empty());
        Trace { rows: rows.collect(), unread }
    }
}

impl Trace {
    /// How many spans there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.iter().map(Columns::len).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The spans as a batch of OTLP, in protobuf.
    ///
    /// # Errors
    /// When what should be JSON in a row is none.
    pub fn batch(&self) -> Result<Vec<u8>, BadRow> {
        let mut writer = TracesWriter::new();
        for rows in &self.rows {
            for row in 0..rows.len() {
                write_span(&mut writer, rows, row)?;
            }
        }
        Ok(writer.finish())
    }
}

fn rows_of(memtable: &Memtable<SpanRows>, trace_id: u128) -> Columns {
    let row = |row| Place { batch: 0, row: u32::try_from(row).expect("memory is bounded") };
    let places: Vec<_> = memtable.with_id(trace_id).map(row).collect();
    Columns::gather(SPANS.schema(), &[memtable.columns()], &places)
}

fn of_tenant(rows: &Columns, tenant: &str) -> Columns {
    let tenants = rows.coded(TENANT);
    let is_theirs = |row: &usize| tenants.text(*row) == tenant;
    let row = |row| Place { batch: 0, row: u32::try_from(row).expect("memory is bounded") };
    let places: Vec<_> = (0..rows.len()).filter(is_theirs).map(row).collect();
    Columns::gather(SPANS.schema(), &[rows], &places)
}

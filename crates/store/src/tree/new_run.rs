//! A run that is being written, and its entry in the Delta table.

use super::end::End;
use crate::columns::Columns;
use crate::delta::Add;
use crate::run::{Run, RunError, RunWriter};
use crate::schema::{Field, Form, Kind, Presence, Table};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A run in memory. Its finished parts may be taken before it is complete.
#[derive(Debug)]
pub(super) struct NewRun {
    table: &'static Table,
    writer: RunWriter,
    /// The extremes of the zone columns that are numbers.
    extremes: Vec<Extremes>,
}

#[derive(Clone, Copy, Debug)]
struct Extremes {
    field: usize,
    name: &'static str,
    least: i64,
    greatest: i64,
}

impl NewRun {
    /// A run without rows.
    pub(super) fn new(table: &'static Table) -> Self {
        let zones = table.zones.iter().map(|field| (*field, table.schema().fields()[*field]));
        let numbers = zones.filter(|(_, of)| of.form == Form::One(Kind::Long, Presence::Required));
        let extremes = numbers.map(|(field, Field { name, .. })| Extremes {
            field,
            name,
            least: i64::MAX,
            greatest: i64::MIN,
        });
        Self { table, writer: RunWriter::new(table), extremes: extremes.collect() }
    }

    /// Adds a row group.
    pub(super) fn push(&mut self, group: &Columns) {
        for Extremes { field, least, greatest, .. } in &mut self.extremes {
            for number in group.longs(*field) {
                (*least, *greatest) = ((*least).min(*number), (*greatest).max(*number));
            }
        }
        self.writer.write(group);
    }

    /// Takes the bytes of the file since the last call.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.writer.take()
    }

    /// Completes the file. `part` has the last bytes that were taken, after `before` others; `below` is the path below
    /// the table's root. Returns the last part with the file's end, the run, and its entry in the table.
    pub(super) fn finish(
        self,
        mut part: Vec<u8>,
        before: u64,
        (below, day): (String, &str),
    ) -> Result<(Bytes, Run, Add), RunError> {
        let rows = self.writer.rows();
        let each = |of: fn(&Extremes) -> i64| {
            let pairs = self.extremes.iter().map(|each| (each.name.to_owned(), of(each).into()));
            Value::Object(pairs.collect())
        };
        let stats = json!({
            "numRecords": rows,
            "minValues": each(|of| of.least),
            "maxValues": each(|of| of.greatest),
            "nullCount": each(|_| 0),
        });
        part.append(&mut self.writer.finish());
        let (len, part) = (before + part.len() as u64, Bytes::from(part));
        let run = Run::open(self.table, &part, len)?;
        let add = Add {
            path: below,
            partition_values: BTreeMap::from([("day".to_owned(), Some(day.to_owned()))]),
            size: len,
            modification_time: 0,
            data_change: true,
            stats: Some(stats.to_string()),
            tags: Some(End::of(&run, &part, len).tags()),
        };
        Ok((part, run, add))
    }
}

//! A run that is being written, and what Delta says about its rows.

use crate::columns::Columns;
use crate::run::RunWriter;
use crate::schema::{Form, Kind, Presence, Schema};
use serde_json::{Value, json};

/// A run in memory. Its finished parts may be taken before it is complete.
#[derive(Debug)]
pub(super) struct NewRun {
    writer: RunWriter<Vec<u8>>,
    /// Of numbers that every row has.
    extremes: Vec<Extremes>,
}

#[derive(Clone, Copy, Debug)]
struct Extremes {
    field: usize,
    name: &'static str,
    least: i64,
    greatest: i64,
}

const IN_MEMORY: &str = "memory can be written to";

impl NewRun {
    /// One with no rows.
    pub(super) fn new(schema: &'static Schema) -> Self {
        let writer = RunWriter::new(schema, Vec::new()).expect(IN_MEMORY);
        let fields = schema.fields().iter().enumerate();
        let longs =
            fields.filter(|(_, field)| field.form == Form::One(Kind::Long, Presence::Required));
        let extremes = longs.map(|(nth, field)| Extremes {
            field: nth,
            name: field.name,
            least: i64::MAX,
            greatest: i64::MIN,
        });
        Self { writer, extremes: extremes.collect() }
    }

    /// Adds a row group.
    pub(super) fn push(&mut self, group: &Columns) {
        for Extremes { field, least, greatest, .. } in &mut self.extremes {
            for number in group.longs(*field) {
                (*least, *greatest) = ((*least).min(*number), (*greatest).max(*number));
            }
        }
        self.writer.write(group).expect(IN_MEMORY);
    }

    /// Takes what there is of the file, but for what was taken before.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.writer.take().expect(IN_MEMORY)
    }

    /// The rest of the file; and what Delta says: how many rows there are, and the extremes of numbers.
    pub(super) fn finish(self) -> (Vec<u8>, String) {
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
        (self.writer.finish().expect(IN_MEMORY), stats.to_string())
    }
}

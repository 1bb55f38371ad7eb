//! Rows of each table as batches.

use crate::metrics_writer::MetricsWriter;
use crate::write_point::write_point;
use curtail_otlp::{BadRow, BatchWriter, Decoded, Limits, Signal};
use curtail_store::batch::{write_log, write_span};
use curtail_store::schema::{Table, logs::LOGS, points::POINTS, spans::SPANS};
use curtail_store::{Columns, Memtable};

/// A table whose rows are decoded from batches and written to batches again.
#[derive(Clone, Copy)]
pub(crate) struct BatchRows {
    signal: Signal,
    pub(crate) table: fn() -> &'static Table,
    pub(crate) batch: fn(&[Columns]) -> Vec<u8>,
}

pub(crate) const SPAN_ROWS: BatchRows =
    BatchRows { signal: Signal::Traces, table: || &SPANS, batch: |rows| batch(rows, write_span) };

pub(crate) const LOG_ROWS: BatchRows =
    BatchRows { signal: Signal::Logs, table: || &LOGS, batch: |rows| batch(rows, write_log) };

pub(crate) const POINT_ROWS: BatchRows = BatchRows {
    signal: Signal::Metrics,
    table: || &POINTS,
    batch: |rows| {
        let mut writer = MetricsWriter::new();
        write_all(rows, |rows, row| write_point(&mut writer, rows, row));
        writer.finish()
    },
};

impl BatchRows {
    /// The rows of batches.
    pub(crate) fn memtable(self, batches: &[Vec<u8>]) -> Memtable {
        let mut memtable = Memtable::new((self.table)());
        for batch in batches {
            let rows = Decoded::of(self.signal, batch, &Limits::default());
            memtable.insert("shop", batch, &rows.expect("a good batch").0);
        }
        memtable
    }
}

fn batch(
    rows: &[Columns],
    write: fn(&mut BatchWriter, &Columns, usize) -> Result<(), BadRow>,
) -> Vec<u8> {
    let mut writer = BatchWriter::new();
    write_all(rows, |rows, row| write(&mut writer, rows, row));
    writer.finish()
}

fn write_all(all: &[Columns], mut write: impl FnMut(&Columns, usize) -> Result<(), BadRow>) {
    for rows in all {
        (0..rows.len()).for_each(|row| write(rows, row).expect("plain JSON"));
    }
}

//! The way of rows from batches and back to batches.

use curtail_otlp::{BadRow, BatchWriter, Limits, Logs, MetricsWriter, Points, Spans};
use curtail_store::batch::{write_log, write_point, write_span};
use curtail_store::{Columns, LogRows, PointRows, Rows, SpanRows};

/// Rows of a table that are decoded from batches, and written to batches again.
pub(crate) trait BatchRows: Rows {
    fn decode(batch: &[u8]) -> Self::Batch;
    fn batch(rows: &[Columns]) -> Vec<u8>;
}

fn write_all(all: &[Columns], mut write: impl FnMut(&Columns, usize) -> Result<(), BadRow>) {
    for rows in all {
        (0..rows.len()).for_each(|row| write(rows, row).expect("plain JSON"));
    }
}

impl BatchRows for SpanRows {
    fn decode(batch: &[u8]) -> Spans {
        Spans::decode(batch, &Limits::default()).expect("a good batch").0
    }

    fn batch(rows: &[Columns]) -> Vec<u8> {
        let mut writer = BatchWriter::new();
        write_all(rows, |rows, row| write_span(&mut writer, rows, row));
        writer.finish()
    }
}

impl BatchRows for LogRows {
    fn decode(batch: &[u8]) -> Logs {
        Logs::decode(batch, &Limits::default()).expect("a good batch").0
    }

    fn batch(rows: &[Columns]) -> Vec<u8> {
        let mut writer = BatchWriter::new();
        write_all(rows, |rows, row| write_log(&mut writer, rows, row));
        writer.finish()
    }
}

impl BatchRows for PointRows {
    fn decode(batch: &[u8]) -> Points {
        Points::decode(batch, &Limits::default()).expect("a good batch").0
    }

    fn batch(rows: &[Columns]) -> Vec<u8> {
        let mut writer = MetricsWriter::new();
        write_all(rows, |rows, row| write_point(&mut writer, rows, row));
        writer.finish()
    }
}

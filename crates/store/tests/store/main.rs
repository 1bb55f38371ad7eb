//! The store, from batches to files and back.

mod accuracy;
mod batch_rows;
#[path = "../../../otlp/tests/support/metrics_writer.rs"]
mod metrics_writer;
mod random;
mod ranges;
mod round_trip;
mod write_point;

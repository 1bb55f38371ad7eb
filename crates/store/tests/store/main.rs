//! The store, from batches to files and back.

mod accuracy;
mod batch_rows;
mod random;
mod ranges;
mod round_trip;
mod write_point;

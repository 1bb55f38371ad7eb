//! The store, from batches to files and back.

mod accuracy;
mod random;
mod ranges;
mod round_trip;

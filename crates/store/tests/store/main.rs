//! The store, from batches to files and back.

mod accuracy;
mod random;
mod round_trip;

//! The store, from batches to files and back.

mod random;
mod round_trip;

//! sketch

//! The testbed over real sockets, compared with its own configuration.
//!
//! Lower bounds are exact (no server may be faster than its faults allow), upper bounds are medians or
//! shares of many, so that a busy machine alone fails nothing. Every test prints its seed when it fails.

mod app;
mod client;
mod configuration;
mod faults;
mod queue;
mod responses;
mod service;

//! The command as people and scripts use it: arguments in; output, files and exit codes out.

mod bench_load;
mod bench_report;
mod bench_tls;
mod buckets;
mod calibrate;
mod command;
mod config;
mod demo;
mod durability;
mod explain;
mod google_app;
mod import;
mod log;
mod predict;
mod query;
mod reference;
mod running;
mod scorecard;
mod server;
mod server_tls;
mod sql;
mod suite;
mod testbed;

//! Testbed: real HTTP servers with a tail of known cause.
//!
//! A [`TestbedConfig`] describes hundreds of servers and their faults, and a seed decides the times of the faults and
//! the service times. Distributions and faults are those of the simulator (`curtail-model`).
//!
//! | module | content |
//! |---|---|
//! | `config` | the YAML file as typed values |
//! | `machine` | one server: queue, executions, faults |
//! | `server` | drives one machine in real time |
//! | `executions` | counts of executions, by server and tenant |
//! | `respond` | the HTTP responses |
//! | `listener` | connections |
//! | `running` | all servers, and their thread |
//! | `name_server` | a name server, whose records and faults a test changes |
//! | [`app`] | another testbed: an app of three servers, with causes of a tail that keys switch on |
//!
//! **Limits**: except in [`app`], servers wait instead of computing, so they cost little more than sockets. All servers
//! share one thread, which is the bottleneck beyond some ten thousand requests a second.
//! **Hurts when** the machine is busy: a busy machine adds a tail of its own to every server.

pub mod app;
mod config;
mod executions;
mod listener;
mod machine;
mod name_server;
mod respond;
mod running;
mod server;

pub use config::{File, ServerConfig, TestbedConfig};
pub use executions::TENANTS_MAX;
pub use name_server::{NameRecord, NameServer, NameServerFault};
pub use running::{Running, StartError};

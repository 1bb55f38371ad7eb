//! Testbed: real HTTP servers that make their own tail.
//!
//! A remedy is believed when it works on real sockets, against servers whose slowness is known: when each
//! of them stalls, how long its reads take, what else it is busy with. This crate starts such servers, by
//! the hundred, in one process and on one thread; a [`TestbedConfig`] says how many there are and what is
//! wrong with them, and a seed decides when. Distributions and faults are those of the simulator (`curtail-model`), so
//! what is simulated can be started.
//!
//! | module | holds |
//! |---|---|
//! | `file`, `config` | the YAML file as typed values |
//! | `machine` | one server: its queue, its executions, its faults |
//! | `server` | drives one machine in real time |
//! | `executions` | how often servers worked, and for whom |
//! | `respond` | the HTTP that they speak |
//! | `alarm` | a timer that is exact to some hundred microseconds |
//! | `listener` | connections, accepted and served |
//! | `running` | the servers, and the thread that serves them |
//! | [`app`] | another testbed: an app of three servers with a cause of tails to switch on |
//!
//! **Limits**: but in [`app`], work is waited for, never computed, so the servers cost little but sockets, and what is
//! measured is the tail that was asked for. All of them share one thread: beyond some ten thousand
//! requests a second it is the thread that is slow.
//! **Hurts when** the machine is busy with something else: that adds a tail of its own to every server.

mod alarm;
pub mod app;
mod config;
mod executions;
mod file;
mod listener;
mod machine;
mod respond;
mod running;
mod server;

pub use alarm::Alarm;
pub use config::{ServerConfig, TestbedConfig};
pub use executions::TENANTS_MAX;
pub use file::File;
pub use running::{Running, StartError};

//! `curtail testbed FILE`: starts the servers of a file, and prints their addresses.

use crate::output::{NamedValue, one_of};
use crate::stop::StopSignals;
use crate::{input, open_files};
use clap::{Args, ValueEnum};
use curtail_testbed::app::{self, Role};
use curtail_testbed::{File, Running, TestbedConfig};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// Start real HTTP servers that make their own tail
///
/// They serve `GET /keys?k=KEY`, `/shard/NUMBER/keys?k=KEY`, `/healthz` and
/// `/executions` over HTTP/1.1 and HTTP/2 with prior knowledge, until Ctrl-C or
/// SIGTERM.
/// A file with `app: google` describes an app of three servers instead: its
/// client serves `GET /work`.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail testbed testbeds/bigtable.yaml
  curtail testbed testbeds/bigtable.yaml --seed 7 --format json
  curtail testbed testbeds/google-app.yaml --set retries=true"
)]
pub(crate) struct TestbedArgs {
    /// File of servers and faults (YAML); `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Change a key of the file, by its path: `server.concurrency=4`. Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Start only this part of an app; the file has the addresses of the others. Repeatable.
    #[arg(long, value_name = "ROLE", value_parser = one_of(ROLES))]
    role: Vec<Role>,
    /// Seed of service times and faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Output format of the addresses.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Open files of a testbed without connections, besides its listeners.
const FILES_BESIDE: u64 = 32;

const ROLES: &[NamedValue<Role>] = &[
    ("client", "The app whose latency is measured", Role::Client),
    ("storage", "The storage of payloads", Role::Storage),
    ("server", "The server that processes payloads", Role::Server),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    schema: &'static str,
    name: &'a str,
    seed: u64,
    servers: Vec<Server>,
}

#[derive(Debug, Serialize)]
struct AppReport<'a> {
    schema: &'static str,
    name: &'a str,
    seed: u64,
    /// The address of each role.
    roles: BTreeMap<&'static str, SocketAddr>,
}

#[derive(Debug, Serialize)]
struct Server {
    shard: usize,
    replica: usize,
    address: SocketAddr,
}

/// Runs the servers until a signal stops them.
pub(crate) fn run(args: &TestbedArgs) -> anyhow::Result<ExitCode> {
    let (name, text) = input::text(&args.file)?;
    let roles = Some(&*args.role).filter(|roles| !roles.is_empty());
    match File::from_yaml(&name, &text, &args.set, roles)? {
        File::Servers(config) => run_servers(&config, args),
        File::App(config) => run_app(&config, roles.unwrap_or(&Role::ALL), args),
    }
}

fn run_servers(config: &TestbedConfig, args: &TestbedArgs) -> anyhow::Result<ExitCode> {
    // A listener for each server; connections need further files.
    open_files::allow(config.servers() as u64 + FILES_BESIDE)?;
    let testbed = Running::start(config, args.seed)?;
    until_stopped(|| print(&testbed, args.format))
}

fn run_app(config: &app::Config, roles: &[Role], args: &TestbedArgs) -> anyhow::Result<ExitCode> {
    open_files::allow(roles.len() as u64 + FILES_BESIDE)?;
    let app = app::Running::start(config, roles, args.seed)?;
    until_stopped(|| print_app(&config.name, &app, args))
}

/// Prints the addresses and waits for a signal.
pub(crate) fn until_stopped(
    print: impl FnOnce() -> std::io::Result<()>,
) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        // The reader of the addresses may send a signal at once.
        let mut signals = StopSignals::new()?;
        print()?;
        signals.received().await;
        Ok(ExitCode::SUCCESS)
    })
}

fn print_app(name: &str, app: &app::Running, args: &TestbedArgs) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match args.format {
        Format::Json => {
            let roles = app.addresses().map(|(role, address)| (role.name(), address)).collect();
            let report = AppReport { schema: "curtail.app/1", name, seed: args.seed, roles };
            serde_json::to_writer(&mut out, &report)?;
            writeln!(out)?;
        }
        Format::Text => {
            writeln!(out, "app {name}, seed {}", args.seed)?;
            for (role, address) in app.addresses() {
                writeln!(out, "{}: {address}", role.name())?;
            }
        }
    }
    out.flush()
}

fn print(testbed: &Running, format: Format) -> std::io::Result<()> {
    let config = testbed.config();
    let mut out = std::io::stdout().lock();
    match format {
        Format::Json => {
            let servers = (0..config.shards).flat_map(|shard| {
                (0..config.replicas).map(move |replica| {
                    let address = testbed.address(shard, replica);
                    Server { shard, replica, address }
                })
            });
            let report = Report {
                schema: "curtail.testbed/1",
                name: &config.name,
                seed: testbed.seed(),
                servers: servers.collect(),
            };
            serde_json::to_writer(&mut out, &report)?;
            writeln!(out)?;
        }
        Format::Text => {
            writeln!(out, "testbed {}, seed {}", config.name, testbed.seed())?;
            for shard in 0..config.shards {
                write!(out, "shard {shard}:")?;
                for replica in 0..config.replicas {
                    write!(out, " {}", testbed.address(shard, replica))?;
                }
                writeln!(out)?;
            }
        }
    }
    out.flush()
}

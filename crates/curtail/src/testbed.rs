//! `curtail testbed FILE`: starts the servers that a file describes, and prints their addresses.

use crate::output::{NamedValue, one_of, print};
use crate::{input, open_files};
use clap::{Args, ValueEnum};
use curtail_proxy::signals::StopSignals;
use curtail_testbed::app::{self, Role};
use curtail_testbed::{File, Running, TestbedConfig};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// Start real HTTP servers with configured faults, which cause a latency tail
///
/// The servers serve `GET /keys?k=KEY`, `/shard/NUMBER/keys?k=KEY`, `/healthz` and
/// `/executions`, over HTTP/1.1 and over HTTP/2 with prior knowledge. Ctrl-C or
/// SIGTERM stops them. A file with `app: google` describes the three servers of
/// Google's tail latency lab; --role starts one of them. The role `client` serves
/// `GET /work`.
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
    /// Part of an app to start; the file has the addresses of the other parts. Repeatable [default: all parts].
    #[arg(long, value_name = "ROLE", value_parser = one_of(ROLES))]
    role: Vec<Role>,
    /// Seed of service times and faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Output format of the servers' addresses, printed when the servers are ready.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Maximum number of open files of a testbed besides listeners and connections.
const FILES_BESIDE: u64 = 32;

const ROLES: &[NamedValue<Role>] = &[
    ("client", "The part whose latency is measured", Role::Client),
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

/// Runs the servers until a signal stops them.
pub(crate) fn run(args: &TestbedArgs) -> anyhow::Result<ExitCode> {
    let (name, text) = input::text(&args.file)?;
    let roles = Some(&*args.role).filter(|roles| !roles.is_empty());
    let files = input::FilesBeside::new(&args.file);
    match File::from_yaml_with_files(&name, &text, &args.set, roles, &files)? {
        File::Servers(config) => run_servers(&config, args),
        File::App(config) => run_app(&config, roles.unwrap_or(&Role::ALL), args),
    }
}

fn run_servers(config: &TestbedConfig, args: &TestbedArgs) -> anyhow::Result<ExitCode> {
    let TestbedConfig { name, shards, replicas, .. } = config;
    // A listener and a timer for each server; connections need further files.
    open_files::allow(2 * config.servers() as u64 + FILES_BESIDE)?;
    let testbed = Running::start(config, args.seed)?;
    let (shards, replicas, testbed) = (*shards, *replicas, &testbed);
    let addresses =
        |shard| (0..replicas).map(move |replica| testbed.address(shard, replica).to_string());
    until_stopped(&match args.format {
        Format::Json => {
            let of_shard = |shard| {
                let server = move |(replica, address)| json!({ "shard": shard, "replica": replica, "address": address });
                addresses(shard).enumerate().map(server)
            };
            let servers: Vec<_> = (0..shards).flat_map(of_shard).collect();
            json!({
                "schema": "curtail.testbed/1",
                "name": name,
                "seed": args.seed,
                "servers": servers,
            })
            .to_string()
        }
        Format::Text => {
            let line = |shard| {
                format!("\nshard {shard}: {}", addresses(shard).collect::<Vec<_>>().join(" "))
            };
            let lines: String = (0..shards).map(line).collect();
            format!("testbed {name}, seed {}{lines}", args.seed)
        }
    })
}

fn run_app(config: &app::Config, roles: &[Role], args: &TestbedArgs) -> anyhow::Result<ExitCode> {
    open_files::allow(roles.len() as u64 + FILES_BESIDE)?;
    let app = app::Running::start(config, roles, args.seed)?;
    let (name, seed) = (&config.name, args.seed);
    let addresses = app.addresses().map(|(role, address)| (role.name(), address.to_string()));
    until_stopped(&match args.format {
        Format::Json => {
            let roles: BTreeMap<_, _> = addresses.collect();
            json!({ "schema": "curtail.app/1", "name": name, "seed": seed, "roles": roles })
                .to_string()
        }
        Format::Text => {
            let lines: String =
                addresses.map(|(role, address)| format!("\n{role}: {address}")).collect();
            format!("app {name}, seed {seed}{lines}")
        }
    })
}

/// Prints the addresses and waits for a signal.
fn until_stopped(addresses: &str) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        // The reader of the addresses may send a signal at once.
        let mut signals = StopSignals::new()?;
        print(&format!("{addresses}\n"))?;
        signals.received().await;
        Ok(ExitCode::SUCCESS)
    })
}

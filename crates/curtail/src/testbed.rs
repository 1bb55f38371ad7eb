//! `curtail testbed FILE`: starts the servers that a file describes, and says where they are.

use crate::open_files;
use crate::stop::StopSignals;
use anyhow::Context as _;
use clap::{Args, ValueEnum};
use curtail_testbed::{Running, TestbedConfig};
use serde::Serialize;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Start real HTTP servers that make their own tail
///
/// They answer `GET /shard/NUMBER/keys?k=KEY`, `/healthz` and `/executions`,
/// in HTTP/1.1 and in HTTP/2 with prior knowledge, until told to stop.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail testbed testbeds/bigtable.yaml
  curtail testbed testbeds/bigtable.yaml --seed 7 --format json"
)]
pub(crate) struct TestbedArgs {
    /// What servers there are and what is wrong with them (YAML).
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Decides which server stalls when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How the addresses are printed.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Open files of a testbed beside its listeners, before anybody has connected.
const FILES_BESIDE: u64 = 32;

/// How a result is printed.
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
struct Server {
    shard: usize,
    replica: usize,
    address: std::net::SocketAddr,
}

/// Runs the servers until told to stop.
///
/// # Errors
/// When the file cannot be read or has mistakes, an address cannot be listened on, or the addresses cannot
/// be printed.
pub(crate) fn run(args: &TestbedArgs) -> anyhow::Result<ExitCode> {
    let name = args.file.display().to_string();
    let bytes = std::fs::read(&args.file).with_context(|| name.clone())?;
    let text = curtail_config::text_of(&name, bytes)?;
    let config = TestbedConfig::from_yaml(&name, &text)?;
    // A listener for each server; connections come on top, so all that can be had is asked for.
    open_files::allow(config.servers() as u64 + FILES_BESIDE)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let testbed = Running::start(&config, args.seed)?;
    runtime.block_on(async {
        // Whoever reads the addresses may send a signal next.
        let mut signals = StopSignals::new()?;
        print(&testbed, args.format)?;
        Ok(signals.told().await)
    })
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

//! `curtail demo`: a tail, and what remedies do to it, on this machine in a minute.
//!
//! A testbed of 300 servers in this process, the proxies in front of them, and a client that reads 1,000
//! keys from 100 shards at a time, all over real sockets. The servers stall now and then; the same reads
//! go four ways at the same time ([`arm::Arm`]), so each way meets the same stalls.
//! **Measured**: from the planned time of a read to its last response, over all reads, including errors. Extra requests
//! are counted at the servers, where they cost. The conclusion is computed from the table.
//! **Source**: Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, page 77: p99.9 from 1,800 ms to 74 ms
//! at 2 % more requests.
//! **Hurts when** the machine is busy: then its own queueing is measured. The demo warns of that while it runs. If its
//! client could not keep up, it prints no result.

mod arm;
mod client;
mod cpu;
mod load;
mod plan;
mod proxies;
mod report;
mod spans;
mod tally;

use crate::stop::StopSignals;
use crate::terminal::ProgressLine;
use crate::testbed::Format;
use crate::{exit, open_files};
use arm::Arm;
use clap::Args;
use cpu::Cpu;
use curtail_testbed::{Running as Testbed, TestbedConfig};
use curtail_units::{Duration, Rng};
use load::{KEYS_PER_SHARD, Load};
use plan::Plan;
use proxies::Proxies;
use report::{Circumstances, Report};
use spans::SpanStore;
use std::io::Write as _;
use std::process::ExitCode;
use tally::Slowest;

/// The testbed; the same file as for `curtail testbed`.
const BIGTABLE: &str = include_str!("../../../testbeds/bigtable.yaml");

/// What the figures mean, and what to do next.
const EXPLANATION: &str = "
Each of the 300 servers stops for 1.8 s now and then, a thousandth of the time.
A read waits for 100 of them, so one in ten would meet a stopped server.
  direct   asks one replica of each shard, and waits.
  hedged   asks a second one when the first is slower than usual.
  tied     queues at two; the first to start cancels the other.
  prequal  asks the replica that is least busy.
Requests at a stopped server wait until it continues, unless another replica
is asked as well. docs/concepts/demo.md explains each arm.

Your own service, in a minute (the first address is where your clients go):
  curtail proxy --listen 127.0.0.1:7300 \\
      --upstream http://127.0.0.1:8080 --upstream http://127.0.0.1:8081
  curl http://127.0.0.1:7301/state";

/// The time between two lines that say how things stand, without a terminal.
const LINE_EVERY: std::time::Duration = std::time::Duration::from_secs(5);

/// Open files that the demo needs at most: listeners, and both ends of every connection.
const FILES: u64 = 8_000;

/// Watch a latency tail being cut, on this machine, in a minute
///
/// Starts 300 servers that stall now and then, proxies in front of them, and
/// a client that reads 1,000 keys from 100 of the servers at a time. Needs no
/// setup, listens only on 127.0.0.1, and writes only to a temporary folder.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail demo
  curtail demo --seconds 20 --exit --format json

Ctrl-C ends the demo, with exit code 0 after the result and 130 before it.
Exit code 1, with --exit: the result is void because the client of the demo
could not keep up."
)]
pub(crate) struct DemoArgs {
    /// Duration of the measurement, in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Direct reads a second; the rate of hedged reads is the same.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rate: u16,
    /// Seed of reads, service times and stalls.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Exit after the measurement; otherwise servers and proxies stay up until Ctrl-C.
    #[arg(long)]
    exit: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs the demo.
///
/// # Errors
/// When servers or proxies cannot be started, or the result cannot be printed.
pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    open_files::allow(FILES)?;
    // Not the user's file: an error in it is ours.
    let config = TestbedConfig::from_yaml("bigtable.yaml", BIGTABLE)
        .map_err(|errors| anyhow::anyhow!("{errors}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let testbed = Testbed::start(&config, args.seed)?;
    let spans = SpanStore::start()?;
    let proxies = Proxies::start(&testbed, spans.otlp(), args.seed);
    let result = proxies.and_then(|proxies| {
        let demo = Demo { args, testbed: &testbed, proxies: &proxies, spans: &spans };
        let result = tokio::task::LocalSet::new().block_on(&runtime, demo.run());
        proxies.stop();
        result
    });
    spans.stop();
    result
}

/// Everything that is up.
struct Demo<'a> {
    args: &'a DemoArgs,
    testbed: &'a Testbed,
    proxies: &'a Proxies,
    spans: &'a SpanStore,
}

impl Demo<'_> {
    async fn run(&self) -> anyhow::Result<ExitCode> {
        let mut signals = StopSignals::new()?;
        let mut progress = match self.args.format {
            Format::Json => ProgressLine::silent(),
            Format::Text => ProgressLine::on_stdout(Some(LINE_EVERY)),
        };
        let (report, slowest) = tokio::select! {
            () = signals.received() => {
                // With standard error gone there is nobody left to tell.
                let _written = writeln!(std::io::stderr(), "interrupted before the result; nothing was saved");
                return Ok(ExitCode::from(exit::INTERRUPTED));
            }
            report = self.measure(&mut progress) => report?,
        };
        progress.clear();
        match self.args.format {
            Format::Json => print(&[serde_json::to_string(&report)?])?,
            Format::Text => print(&self.summary(&report))?,
        }
        if self.args.exit {
            let code = if report.is_void() { exit::NO } else { 0 };
            return Ok(ExitCode::from(code));
        }
        // After the result, an interrupt is the usual end.
        if self.args.format == Format::Text {
            let lines = tokio::select! {
                () = signals.received() => return Ok(ExitCode::SUCCESS),
                lines = self.still_up(slowest) => lines,
            };
            print(&lines)?;
        }
        signals.received().await;
        Ok(ExitCode::SUCCESS)
    }

    /// Measures all arms, and shows how things stand meanwhile. Returns the slowest read as well.
    async fn measure(
        &self,
        progress: &mut ProgressLine,
    ) -> anyhow::Result<(Report, Option<Slowest>)> {
        let rng = Rng::new(self.args.seed).split("demo");
        let rate = f64::from(self.args.rate);
        let (plan, end) = (Plan::new(rate, &rng), Duration::from_secs(self.args.seconds));
        let load = Load::connect(self.testbed, self.proxies, rate).await?;
        progress.begin("warming up");
        load.warm_up(&rng.split("warm-up")).await;
        let cpu = Cpu::start();
        let report = |measured| {
            let (seed, cores_used) = (self.args.seed, cpu.cores());
            let executions = |arm: Arm| self.testbed.executions_of_tenant(arm.name());
            let circumstances = Circumstances { seed, rate, measured, cores_used };
            Report::new(&load.tallies(), executions, circumstances)
        };
        let mut running = std::pin::pin!(load.run(plan, end));
        let mut each_second = tokio::time::interval(std::time::Duration::from_secs(1));
        for second in 0.. {
            tokio::select! {
                () = &mut running => break,
                _ = each_second.tick() => {
                    let so_far = || report(Duration::from_secs(second));
                    progress.show_lines(|| self.live(&so_far(), second), || so_far().line());
                }
            }
        }
        let tallies = load.tallies();
        if let Some(failure) = tallies.first_failure {
            tracing::warn!("the first read that failed: {failure}");
        }
        Ok((report(end), tallies.slowest))
    }

    /// What is on the terminal while the demo measures.
    fn live(&self, report: &Report, second: u64) -> Vec<String> {
        let mut lines = self.title();
        lines.extend(report.table());
        lines.push(String::new());
        lines.push(format!("{} of {} s", second.min(self.args.seconds), self.args.seconds));
        lines.extend(report.warnings(cores()));
        lines
    }

    fn title(&self) -> Vec<String> {
        let config = self.testbed.config();
        let keys = config.shards * KEYS_PER_SHARD;
        let (shards, replicas) = (config.shards, config.replicas);
        let seed = self.args.seed;
        vec![
            format!(
                "Reads of {keys} keys from {shards} shards of {replicas} replicas, seed {seed}"
            ),
            String::new(),
        ]
    }

    /// What stays on the screen.
    fn summary(&self, report: &Report) -> Vec<String> {
        let mut lines = self.title();
        lines.extend(report.table());
        lines.push(Report::marks());
        lines.push(String::new());
        lines.extend(report.conclusion());
        lines.extend(report.warnings(cores()));
        lines.extend(report.cpu(cores()));
        lines.extend(EXPLANATION.lines().map(str::to_owned));
        lines
    }

    /// What there is to play with.
    async fn still_up(&self, slowest: Option<Slowest>) -> Vec<String> {
        let server = self.testbed.address(17, 0);
        let mut lines = vec![String::new(), "Still up, until Ctrl-C:".to_owned()];
        lines.push(format!("  a server       curl 'http://{server}/shard/17/keys?k=alpha'"));
        if let Some(root) = self.proxies.address(Arm::Hedged) {
            lines.push(format!("  hedged         curl 'http://{root}/shard/17/keys?k=alpha'"));
        }
        if let Some(admin) = self.proxies.admin(Arm::Hedged) {
            lines.push(format!("  what it knows  curl http://{admin}/state"));
            lines.push(format!("  metrics        curl http://{admin}/metrics"));
        }
        if let Some(slowest) = slowest
            && self.spans.has(&slowest, self.testbed.config().shards).await
        {
            let (arm, ms) = (slowest.arm.name(), slowest.latency.as_ms_f64());
            lines.push(format!(
                "The slowest read through a proxy ({arm}, {ms:.0} ms), request by request:"
            ));
            lines.extend(self.spans.command(&slowest).map(|line| format!("  {line}")));
        }
        lines
    }
}

/// Writes lines to standard output.
fn print(lines: &[String]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    out.flush()
}

/// The number of cores of this machine.
fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1, usize::from) as f64
}

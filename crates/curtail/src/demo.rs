//! `curtail demo`: a latency tail and the effect of each remedy, on this machine in a minute.
//!
//! A testbed of 300 servers, proxies in front of them and an open-loop client run in this process, over real sockets. A
//! read gets 1,000 keys from 100 shards, through one route that fans out. The servers stall now and then. All
//! [`arm::Arm`]s send reads at the same time, each through its own proxy, so all arms meet the same stalls.
//! **Measured**: from the intended send time of a read to the end of its response, over all reads, including errors. Extra
//! requests are counted at the servers. The demo derives the conclusion from the table.
//! **Source**: Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, page 77: p99.9 from 1,800 ms to 74 ms
//! at 2 % more requests.
//! **Hurts when** the machine is busy: the demo then measures its own queueing, and warns. If the client of the demo
//! cannot keep up, the result is void.

mod arm;
mod cpu;
mod load;
mod measurement;
mod proxies;
mod report;
mod spans;

use crate::bench::outcome;
use crate::output::{print, print_message};
use crate::terminal::ProgressLine;
use crate::testbed::Format;
use crate::{exit, open_files};
use arm::Arm;
use clap::Args;
use cpu::Cpu;
use curtail_generator::{Clock, Load, Recording, Stop};
use curtail_load::Schedule;
use curtail_load::schedule::Spacing;
use curtail_testbed::{Running as Testbed, TestbedConfig};
use curtail_units::{Duration, Rng};
use load::KEYS_PER_SHARD;
use measurement::ArmMeasurement;
use proxies::Proxies;
use report::{Circumstances, Report};
use spans::{ReadTrace, SpanStore};
use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The testbed; the same file as for `curtail testbed`.
const BIGTABLE: &str = include_str!("../../../testbeds/bigtable.yaml");

/// The explanation of the arms, and the next steps, which the demo prints.
const EXPLANATION: &str = "
Each of the 300 servers stops for 1.8 s now and then, a thousandth of the time.
A read waits for 100 of them, so one in ten would meet a stopped server.
  direct   asks one replica of each shard, and waits.
  hedged   asks a second replica when the first is slower than usual.
  tied     queues at two replicas; the first to start cancels the other.
  prequal  asks the replica that is least busy.
Requests at a stopped server wait until it continues, unless another replica
is asked as well. docs/concepts/demo.md explains each arm.

Your own service, in a minute (the first address is where your clients go):
  curtail proxy --listen 127.0.0.1:7300 \\
      --upstream http://127.0.0.1:8080 --upstream http://127.0.0.1:8081
  curl http://127.0.0.1:7301/state";

/// The time between two progress lines if standard output is not a terminal.
const LINE_EVERY: std::time::Duration = std::time::Duration::from_secs(5);

/// The interval of checks for Ctrl-C after the measurement.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(50);

/// Open files besides the connections of direct and hedged reads: listeners, the timers of the servers, and connections
/// between proxies and servers.
const FILES: u64 = 7_300;

/// The warm-up of each arm: reads that open the connections, and that the measurement does not count.
const WARM_UP_RATE: f64 = 20.0;
const WARM_UP: Duration = Duration::from_secs(1);

/// The tenant of the warm-up's reads.
const WARM_UP_TENANT: &str = "warm-up";

/// Watch a latency tail being cut, on this machine, in a minute
///
/// The demo starts 300 servers that stall now and then, proxies in front of them,
/// and a client. Each read of the client gets 1,000 keys from 100 of the servers.
/// The demo needs no setup. It listens only on 127.0.0.1, and writes only to a
/// temporary folder.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail demo
  curtail demo --seconds 20 --exit --format json

Ctrl-C ends the demo, with exit code 0 after the result and 130 before it.
Exit code 1, with --exit: the result is void because the client of the demo
could not keep up with its plan. Exit code 3: the system allows too few open files."
)]
pub(crate) struct DemoArgs {
    /// Duration of the measurement, in seconds.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Requests a second through each of two proxies: one without hedging (`direct`) and one with (`hedged`).
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rate: u16,
    /// Seed of reads, service times and stalls.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Exit after the measurement. Without this flag, the servers and proxies stay up until Ctrl-C.
    #[arg(long)]
    exit: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs the demo.
pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    // Two arms, and both ends of each connection.
    open_files::allow(FILES + 4 * u64::from(load::connections_max(args.rate)))?;
    // Not the user's file: an error in it is ours.
    let config = TestbedConfig::from_yaml("bigtable.yaml", BIGTABLE)
        .map_err(|errors| anyhow::anyhow!("{errors}"))?;
    let testbed = Testbed::start(&config, args.seed)?;
    let spans = SpanStore::start()?;
    let proxies = Proxies::start(&testbed, spans.otlp(), args.seed);
    let result = proxies.and_then(|proxies| {
        let demo = Demo { args, testbed: &testbed, proxies: &proxies, spans: &spans };
        let result = outcome::until_stopped(|stop| demo.run(stop));
        proxies.stop();
        result?
    });
    spans.stop();
    result
}

/// The running parts of the demo.
struct Demo<'a> {
    args: &'a DemoArgs,
    testbed: &'a Testbed,
    proxies: &'a Proxies,
    spans: &'a SpanStore,
}

/// A complete measurement.
struct Outcome {
    report: Report,
    /// The first failed read of each arm.
    failures: Vec<String>,
    /// The slowest read with a remedy; absent with `--exit` and with JSON.
    slowest: Option<ReadTrace>,
}

impl Demo<'_> {
    /// Measures, prints the result, and stays up until `stop`.
    fn run(&self, stop: &Stop) -> anyhow::Result<ExitCode> {
        let mut progress = match self.args.format {
            Format::Json => ProgressLine::silent(),
            Format::Text => ProgressLine::on_stdout(Some(LINE_EVERY)),
        };
        let measured = self.measure(stop, &mut progress);
        progress.clear();
        let Some(Outcome { report, failures, slowest }) = measured? else {
            print_message("interrupted before the result; nothing was saved");
            return Ok(ExitCode::from(exit::INTERRUPTED));
        };
        for failure in failures {
            tracing::warn!("{failure}");
        }
        let mut lines = match self.args.format {
            Format::Json => vec![serde_json::to_string(&report)?],
            Format::Text => self.summary(&report),
        };
        if self.args.exit {
            print(&text(&lines))?;
            return Ok(ExitCode::from(if report.is_void() { exit::NO } else { 0 }));
        }
        if self.args.format == Format::Text && !stop.is_stopped() {
            lines.extend(self.still_up(slowest.as_ref()));
        }
        print(&text(&lines))?;
        if self.args.format == Format::Json && !stop.is_stopped() {
            print_message(
                "the servers and proxies stay up until Ctrl-C; --exit ends the demo here",
            );
        }
        while !stop.is_stopped() {
            thread::park_timeout(LOOK_EVERY);
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Measures all arms at the same time, and shows the progress. Returns [`None`] if `stop` ended the measurement.
    fn measure(&self, stop: &Stop, progress: &mut ProgressLine) -> anyhow::Result<Option<Outcome>> {
        let (clock, rng) = (Clock::start(), Rng::new(self.args.seed).split("demo"));
        let (rate, length) = (f64::from(self.args.rate), Duration::from_secs(self.args.seconds));
        let connections_max = load::connections_max(self.args.rate);
        progress.begin("warming up");
        for arm in Arm::ALL {
            let schedule = Schedule::constant(WARM_UP_RATE, WARM_UP, Spacing::Even);
            let (address, rng) = (self.proxies.address(arm), rng.split("warm-up"));
            let load = load::reads(address, WARM_UP_TENANT, (schedule, connections_max), rng)?;
            curtail_generator::run(&load.into(), clock, stop, |_, _| {})?;
        }
        // All loads are ready before the first arm starts: the arms share one start.
        let load = |arm: Arm| {
            let schedule = (load::schedule(arm, rate, length), connections_max);
            load::reads(self.proxies.address(arm), arm.name(), schedule, rng.split(arm.name()))
        };
        let loads = Arm::ALL.into_iter().map(|arm| Ok((arm, Arc::new(load(arm)?))));
        let loads = loads.collect::<anyhow::Result<Vec<_>>>()?;
        let (began, cpu) = (clock.now(), Cpu::start());
        let live = Mutex::new((Arm::ALL.map(|_| ArmMeasurement::default()), &mut *progress));
        let run_arm = |arm: Arm, load: &Arc<Load>| {
            curtail_generator::run(load, clock, stop, |now, slot| {
                let mut live = live.lock().unwrap_or_else(PoisonError::into_inner);
                let (measurements, progress) = &mut *live;
                measurements[arm.index()].add(slot);
                let so_far = || self.report(measurements, now.since(began).min(length), &cpu);
                progress.show_lines(|| self.live(&so_far()), || so_far().line());
            })
        };
        let recordings: Vec<Recording> = thread::scope(|scope| {
            let run_arm = &run_arm;
            let running = loads.iter().map(|(arm, load)| scope.spawn(move || run_arm(*arm, load)));
            let running: Vec<_> = running.collect();
            let ended = running.into_iter().map(|running| {
                running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            ended.collect::<io::Result<_>>()
        })?;
        if stop.is_stopped() {
            return Ok(None);
        }
        let arms = || Arm::ALL.into_iter().zip(&recordings);
        let measurements: Vec<_> =
            arms().map(|(arm, recording)| self.measurement(arm, recording, length)).collect();
        let report = self.report(&measurements, length, &cpu);
        let failures = arms().filter_map(|(arm, recording)| {
            let failure = recording.examples.first()?;
            Some(format!("the first {} read that failed: {}", arm.name(), failure.text))
        });
        let remedies =
            Arm::ALL.into_iter().zip(&measurements).filter(|(arm, _)| *arm != Arm::Direct);
        let latency = remedies.filter_map(|(_, measured)| measured.latencies.service.max()).max();
        let is_shown = self.args.format == Format::Text && !self.args.exit;
        let slowest = latency.filter(|_| is_shown).and_then(|latency| {
            progress.begin("waiting for the span of the slowest read");
            self.spans.slowest_read(clock.unix_ns(began), latency, stop)
        });
        Ok(Some(Outcome { report, failures: failures.collect(), slowest }))
    }

    /// Returns the complete measurement of an arm.
    fn measurement(&self, arm: Arm, recording: &Recording, length: Duration) -> ArmMeasurement {
        let executions = self.testbed.executions_of_tenant(arm.name());
        let shards = self.testbed.config().shards;
        ArmMeasurement::new(recording, length, (executions, shards))
    }

    fn report(&self, measurements: &[ArmMeasurement], measured: Duration, cpu: &Cpu) -> Report {
        let (seed, rate) = (self.args.seed, f64::from(self.args.rate));
        let circumstances = Circumstances { seed, rate, measured, cores_used: cpu.cores() };
        Report::new(measurements, circumstances)
    }

    /// The screen during the measurement.
    fn live(&self, report: &Report) -> Vec<String> {
        let mut lines = self.title();
        lines.extend(report.table());
        lines.push(String::new());
        lines.push(report.progress(self.args.seconds));
        lines.extend(report.warnings(cores()));
        lines
    }

    fn title(&self) -> Vec<String> {
        let (config, seed) = (self.testbed.config(), self.args.seed);
        let (shards, replicas) = (config.shards, config.replicas);
        let keys = shards * KEYS_PER_SHARD;
        let title = format!("Reads of {keys} keys from {shards} shards of {replicas} replicas");
        vec![format!("{title}, seed {seed}"), String::new()]
    }

    /// The lines of the result.
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

    /// The addresses and commands to try while the demo stays up.
    fn still_up(&self, slowest: Option<&ReadTrace>) -> Vec<String> {
        let (server, root) = (self.testbed.address(17, 0), self.proxies.address(Arm::Hedged));
        let mut lines = vec![
            String::new(),
            "Still up, until Ctrl-C:".to_owned(),
            format!("  a server  curl 'http://{server}/keys?k=alpha'"),
            format!("  hedged    curl 'http://{root}/keys?k=alpha'"),
        ];
        if let Some(admin) = self.proxies.admin(Arm::Hedged) {
            lines.push(format!("  state     curl http://{admin}/state"));
            lines.push(format!("  metrics   curl http://{admin}/metrics"));
        }
        if let Some(read) = slowest {
            let (arm, ms) = (&read.service, read.latency.as_ms_f64());
            lines
                .push(format!("The slowest read with a remedy ({arm}, {ms:.0} ms), call by call:"));
            lines.extend(self.spans.command(read).map(|line| format!("  {line}")));
        }
        lines
    }
}

/// Lines of output as one text.
fn text(lines: &[String]) -> String {
    lines.iter().flat_map(|line| [line, "\n"]).collect()
}

/// The number of cores of this machine.
fn cores() -> f64 {
    thread::available_parallelism().map_or(1, usize::from) as f64
}

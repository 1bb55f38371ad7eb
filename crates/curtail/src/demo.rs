//! `curtail demo`: the whole loop on this machine in a minute: measure, explain, predict, cut, verify.
//!
//! A testbed of 150 servers, proxies in front of them and an open-loop client run in this process, over real sockets. A
//! read gets 1,000 keys from 50 shards, through one route that fans out. The servers stall now and then.
//!
//! 1. **Measure** reads without a remedy. A server stores their spans.
//! 2. **Explain** and 3. **predict**: ask this server, as the commands of these names do.
//! 4. **Cut**: start a second proxy with the keys of the recommended remedy.
//! 5. **Verify**: send reads through both proxies at the same time, so that both meet the same stalls. The scorecard
//!    compares the predicted p99 with the measured one.
//!
//! **Measured**: from the intended send time of a read to the end of its response, over all reads, including errors. Extra
//! requests are counted at the servers. Every statement follows from the figures of the run.
//! **Source**: Dean & Barroso, "The Tail at Scale", CACM 56(2), 2013, page 77.
//! **Hurts when** the machine is busy: the demo then measures its own queueing, and warns. If the client of the demo
//! cannot keep up, the result is void.

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
use clap::Args;
use cpu::Cpu;
use curtail_generator::{Clock, Load, Recording, Stop};
use curtail_load::Schedule;
use curtail_load::schedule::Spacing;
use curtail_testbed::{Running as Testbed, TestbedConfig};
use curtail_units::{Duration, Rng};
use load::KEYS_PER_SHARD;
use measurement::ArmMeasurement;
use proxies::{Arm, Proxies};
use report::{Circumstances, Measured, Report};
use spans::{ReadTrace, SpanStore};
use std::io;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The testbed; the same file as for `curtail testbed`.
const TESTBED: &str = include_str!("../../../testbeds/demo.yaml");

/// The remedies that the demo predicts.
const REMEDIES: &str = "hedge p95,hedge p99,tie,least request,the defaults";

/// The next steps, which the demo prints.
const YOUR_OWN: &str = "
Your own service (clients call the first address; spans go to the server):
  curtail server
  curtail proxy --listen 127.0.0.1:7300 \\
      --upstream http://127.0.0.1:8080 --upstream http://127.0.0.1:8081 \\
      --set spans.endpoint=http://127.0.0.1:4318
  curtail explain --service curtail-proxy
  curtail predict --service curtail-proxy";

/// The time between two progress lines if standard output is not a terminal.
const LINE_EVERY: std::time::Duration = std::time::Duration::from_secs(5);

/// The interval of checks for Ctrl-C after the measurement.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(50);

/// Open files besides the client's connections: listeners, the timers of the servers, and connections between proxies and
/// servers.
const FILES: u64 = 4_000;

/// The warm-up of each arm: reads that open the connections, and that the measurement does not count.
const WARM_UP_RATE: f64 = 20.0;
const WARM_UP: Duration = Duration::from_secs(1);

/// The tenant of the warm-up's reads.
const WARM_UP_TENANT: &str = "warm-up";

/// Watch a latency tail being measured, explained, predicted, cut and verified
///
/// The demo starts 150 servers that stall now and then, proxies in front of them,
/// and a client. Each read of the client gets 1,000 keys from 50 of the servers.
/// The demo explains the slow reads, predicts remedies, switches the recommended
/// one on, and verifies its effect. It needs no setup and takes a minute. It
/// listens only on 127.0.0.1, and writes only to a temporary folder.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail demo
  curtail demo --exit --format json

Ctrl-C ends the demo, with exit code 0 after the result and 130 before it.
Exit code 1, with --exit: the result is void because the client of the demo
could not keep up with its plan. Exit code 3: the system allows too few open files."
)]
pub(crate) struct DemoArgs {
    /// Duration of each of the two measurements, in seconds.
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Reads a second through each proxy.
    #[arg(long, default_value_t = 45, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rate: u16,
    /// Seed of reads, service times, stalls and of the simulation.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Exit after the result. Without this flag, the servers and proxies stay up until Ctrl-C.
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
    let config = TestbedConfig::from_yaml("demo.yaml", TESTBED)
        .map_err(|errors| anyhow::anyhow!("{errors}"))?;
    let testbed = Testbed::start(&config, args.seed)?;
    let spans = SpanStore::start()?;
    let mut proxies = Proxies::new(&testbed, spans.otlp(), args.seed);
    let mut demo = Demo {
        args,
        testbed: &testbed,
        proxies: &mut proxies,
        spans: &spans,
        clock: Clock::start(),
        began_ns: 0,
        progress: match args.format {
            Format::Json => ProgressLine::silent(),
            Format::Text => ProgressLine::on_stdout(Some(LINE_EVERY)),
        },
    };
    let result = outcome::until_stopped(|stop| demo.run(stop));
    proxies.stop();
    spans.stop();
    result?
}

/// The running parts of the demo.
struct Demo<'d, 't> {
    args: &'d DemoArgs,
    testbed: &'t Testbed,
    proxies: &'d mut Proxies<'t>,
    spans: &'d SpanStore,
    clock: Clock,
    /// The start of the latest measurement, in ns since 1970: spans before are of the warm-up.
    began_ns: u64,
    progress: ProgressLine,
}

impl Demo<'_, '_> {
    /// Runs the loop, prints the result, and stays up until `stop`.
    fn run(&mut self, stop: &Stop) -> anyhow::Result<ExitCode> {
        let result = self.run_loop(stop);
        self.progress.clear();
        let Some((report, slowest)) = result? else {
            print_message("interrupted before the result; nothing was saved");
            return Ok(ExitCode::from(exit::INTERRUPTED));
        };
        if self.args.format == Format::Json {
            print(&format!("{}\n", report.json()))?;
        }
        if self.args.exit {
            return Ok(ExitCode::from(if report.is_void() { exit::NO } else { 0 }));
        }
        if self.args.format == Format::Text && !stop.is_stopped() {
            print(&text(&self.still_up(slowest.as_ref())))?;
        } else if !stop.is_stopped() {
            print_message(
                "the servers and proxies stay up until Ctrl-C; --exit ends the demo here",
            );
        }
        while !stop.is_stopped() {
            thread::park_timeout(LOOK_EVERY);
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Measures, explains, predicts, cuts and verifies; prints each step when it is done. Returns [`None`] if `stop` ended
    /// a measurement.
    fn run_loop(&mut self, stop: &Stop) -> anyhow::Result<Option<(Report, Option<ReadTrace>)>> {
        self.print(&self.title())?;
        self.proxies.start(Arm::direct())?;
        let Some(measured) = self.measure("measure", stop)? else { return Ok(None) };
        let reads = measured.arms[0].latencies.count();
        let mut report = Report::new(self.args.seed, f64::from(self.args.rate), measured);
        self.print(&report.measure_step())?;

        self.progress.begin("explaining");
        let start = self.began_ns.to_string();
        self.spans.wait_for_reads("direct", &start, reads, stop);
        let parameters = [("start", start.as_str())];
        report.explained = self.spans.question("/api/v1/explain", "direct", &parameters);
        self.print(&report.explain_step(&self.spans.url()))?;

        self.progress.begin("predicting");
        let seed = self.args.seed.to_string();
        let parameters = [("start", start.as_str()), ("remedies", REMEDIES), ("seed", &seed)];
        report.predicted = self.spans.question("/api/v1/predict", "direct", &parameters);
        self.print(&report.predict_step(&self.spans.url()))?;

        let arm = report.recommended().unwrap_or_else(Arm::defaults);
        self.print(&report.cut_step(&arm))?;
        self.proxies.start(arm)?;
        let Some(verified) = self.measure("verify", stop)? else { return Ok(None) };
        let latency = verified.arms[1].latencies.service.max();
        report.verify(verified);
        self.print(&report.verify_step(cores()))?;
        self.print(&YOUR_OWN.lines().map(str::to_owned).collect::<Vec<_>>())?;

        let is_shown = self.args.format == Format::Text && !self.args.exit;
        let slowest = latency.filter(|_| is_shown).and_then(|latency| {
            self.progress.begin("waiting for the span of the slowest read");
            let name = self.proxies.arms().nth(1).map(|arm| arm.name.clone())?;
            self.spans.slowest_read((&name, self.began_ns), latency, stop)
        });
        Ok(Some((report, slowest)))
    }

    /// Prints the lines of a step, in text format.
    fn print(&mut self, lines: &[String]) -> io::Result<()> {
        self.progress.clear();
        if self.args.format == Format::Text { print(&text(lines)) } else { Ok(()) }
    }

    /// Measures all arms at the same time, and shows the progress. Returns [`None`] if `stop` ended the measurement.
    fn measure(&mut self, step: &str, stop: &Stop) -> anyhow::Result<Option<Measured>> {
        let arms: Vec<Arm> = self.proxies.arms().cloned().collect();
        let (clock, rng) = (self.clock, Rng::new(self.args.seed).split("demo").split(step));
        let (rate, length) = (f64::from(self.args.rate), Duration::from_secs(self.args.seconds));
        let connections_max = load::connections_max(self.args.rate);
        self.progress.begin("warming up");
        let before: Vec<u64> = self.executions(&arms);
        for nth in 0..arms.len() {
            let schedule = Schedule::constant(WARM_UP_RATE, WARM_UP, Spacing::Even);
            let (address, rng) = (self.proxies.address(nth), rng.split("warm-up"));
            let load = load::reads(address, WARM_UP_TENANT, (schedule, connections_max), rng)?;
            curtail_generator::run(&load.into(), clock, stop, |_, _| {})?;
        }
        // All loads are ready before the first arm starts: the arms share one start.
        let load = |(nth, arm): (usize, &Arm)| {
            let schedule = (load::schedule(rate, length), connections_max);
            load::reads(self.proxies.address(nth), &arm.name, schedule, rng.split(&arm.name))
        };
        let loads = arms.iter().enumerate().map(|arm| Ok(Arc::new(load(arm)?)));
        let loads = loads.collect::<anyhow::Result<Vec<_>>>()?;
        let (began, cpu) = (clock.now(), Cpu::start());
        self.began_ns = clock.unix_ns(began);
        let empty = Measured {
            names: arms.iter().map(|arm| arm.name.clone()).collect(),
            arms: arms.iter().map(|_| ArmMeasurement::default()).collect(),
            circumstances: Circumstances::default(),
        };
        let live = Mutex::new((empty, &mut self.progress));
        let run_arm = |nth: usize, load: &Arc<Load>| {
            curtail_generator::run(load, clock, stop, |now, slot| {
                let mut live = live.lock().unwrap_or_else(PoisonError::into_inner);
                let (measured, progress) = &mut *live;
                measured.arms[nth].add(slot);
                let lasted = now.since(began).min(length);
                measured.circumstances =
                    Circumstances { measured: lasted, cores_used: cpu.cores() };
                let seconds = self.args.seconds;
                progress.show_lines(|| measured.live(step, seconds, cores()), || measured.line());
            })
        };
        let recordings: Vec<Recording> = thread::scope(|scope| {
            let run_arm = &run_arm;
            let running = loads.iter().enumerate();
            let running = running.map(|(nth, load)| scope.spawn(move || run_arm(nth, load)));
            let running: Vec<_> = running.collect();
            let ended = running.into_iter().map(|running| {
                running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            ended.collect::<io::Result<_>>()
        })?;
        let (mut measured, _) = live.into_inner().unwrap_or_else(PoisonError::into_inner);
        if stop.is_stopped() {
            return Ok(None);
        }
        measured.circumstances = Circumstances { measured: length, cores_used: cpu.cores() };
        let executions = self.executions(&arms);
        let executions = executions.iter().zip(&before).map(|(after, before)| after - before);
        let shards = self.testbed.config().shards;
        measured.arms.clear();
        for ((recording, executions), arm) in recordings.iter().zip(executions).zip(&arms) {
            measured.arms.push(ArmMeasurement::new(recording, length, (executions, shards)));
            if let Some(failure) = recording.examples.first() {
                let text = &failure.text;
                tracing::warn!("the first {} read that failed: {text}", arm.name);
            }
        }
        Ok(Some(measured))
    }

    /// The executions of each arm that the servers began so far.
    fn executions(&self, arms: &[Arm]) -> Vec<u64> {
        arms.iter().map(|arm| self.testbed.executions_of_tenant(&arm.name)).collect()
    }

    fn title(&self) -> Vec<String> {
        let (config, seed) = (self.testbed.config(), self.args.seed);
        let (shards, replicas) = (config.shards, config.replicas);
        let (keys, servers) = (shards * KEYS_PER_SHARD, shards * replicas);
        vec![
            format!(
                "Reads of {keys} keys from {shards} shards of {replicas} replicas, seed {seed}."
            ),
            format!(
                "Three of the {servers} servers stop for 0.45 s every 4.5 s. A read waits for {shards}"
            ),
            "servers, so one read in ten meets a stopped one.".to_owned(),
        ]
    }

    /// The addresses and commands to try while the demo stays up.
    fn still_up(&self, slowest: Option<&ReadTrace>) -> Vec<String> {
        let (server, root) = (self.testbed.address(17, 0), self.proxies.address(1));
        let mut lines = vec![
            String::new(),
            "Still up, until Ctrl-C:".to_owned(),
            format!("  a server    curl 'http://{server}/keys?k=alpha'"),
            format!("  the remedy  curl 'http://{root}/keys?k=alpha'"),
        ];
        if let Some(admin) = self.proxies.admin(1) {
            lines.push(format!("  state       curl http://{admin}/state"));
            lines.push(format!("  metrics     curl http://{admin}/metrics"));
        }
        if let Some(read) = slowest {
            let ms = read.latency.as_ms_f64();
            lines.push(format!("The slowest read with the remedy ({ms:.0} ms), call by call:"));
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

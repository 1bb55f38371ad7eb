//! The arguments of a load: requests and schedule, for `bench load` and for each arm of `bench compare`.

use crate::input;
use crate::output::{NamedValue, one_of};
use clap::Args;
use curtail_generator::arrivals;
use curtail_generator::expect::Expect;
use curtail_generator::target::{Protocol, Target};
use curtail_generator::workload::{BodyConfig, RequestConfig, Workload, WorkloadConfig};
use curtail_generator::{Load, threads_for};
use curtail_load::schedule::{RATE_MAX, Spacing};
use curtail_load::{Schedule, Share};
use curtail_units::{Duration, Rng};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Args, Clone, Debug)]
pub(super) struct WorkloadArgs {
    /// Requests a second.
    #[arg(long, value_name = "NUMBER", default_value_t = 100.0, value_parser = rate)]
    rate: f64,
    /// Duration of the load (`compare`: of each block; `sweep`: of each rate), such as 30s or 5m.
    #[arg(long = "for", value_name = "TIME", default_value = "30s", value_parser = duration)]
    lasts: Duration,
    /// Times between requests.
    #[arg(long, default_value = "poisson", value_parser = one_of(SPACINGS))]
    spacing: Spacing,
    /// Protocol of the requests. For an https URL, `http2` and `grpc` need a server that accepts HTTP/2 by ALPN.
    #[arg(long, default_value = "http1", value_parser = one_of(PROTOCOLS))]
    protocol: Protocol,
    /// Maximum number of connections. A request waits while all of them are in use.
    #[arg(long, value_name = "NUMBER", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    connections: u32,
    /// Open a new connection for each request.
    #[arg(long)]
    no_keep_alive: bool,
    /// Maximum time of a request, from its wait for a connection to the end of its response; then the request fails.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    timeout: Duration,
    /// Number of threads that send requests [default: one for each 20,000 requests a second, at most one a core].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: Option<u8>,
    /// Method of each request [default: GET without a body, POST with a body].
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    method: Option<String>,
    /// Header of each request, such as `accept: application/json`. Repeatable.
    #[arg(long, short = 'H', value_name = "NAME: VALUE", value_parser = header, conflicts_with = "file")]
    header: Vec<(String, String)>,
    /// Body of each request.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["file", "body_file"])]
    body: Option<String>,
    /// File with the body of each request.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    body_file: Option<PathBuf>,
    /// CSV file with a header line. In --path, --header and --body, `{name}` stands for the value of the column `name`.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    data: Option<PathBuf>,
    /// Path and query of each request; may contain `{name}` [default: path and query of the URL].
    #[arg(long, value_name = "PATH", conflicts_with = "file")]
    path: Option<String>,
    /// Expected status [default: 200 to 399].
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(100..=599), conflicts_with = "file")]
    expect_status: Option<u16>,
    /// Text that each response must contain. Repeatable.
    #[arg(long, value_name = "TEXT", conflicts_with = "file")]
    expect_contains: Vec<String>,
    /// Workload file (YAML) of requests, journeys (sequences of requests) and tenants; `-` is standard input. A schedule in the file replaces --rate, --for and --spacing.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// CSV file of recorded arrivals to replay, with a column `start_ns`; `curtail sql --format csv` writes such files.
    #[arg(long, value_name = "FILE")]
    arrivals: Option<PathBuf>,
    /// Speed of the replay; 2 is twice as fast as the recording.
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0, value_parser = rate, requires = "arrivals")]
    speed: f64,
    /// File of trusted certificate authorities (PEM), instead of the system's.
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca_file: Option<PathBuf>,
    /// Accept any certificate of the server; for tests only.
    #[arg(long)]
    insecure: bool,
    /// Seed of all randomness.
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Part of the requests to send; with `1/3`, this generator is the first of three.
    #[arg(long, value_name = "NTH/OF", default_value = "1/1", value_parser = share)]
    share: Share,
}

const SPACINGS: &[NamedValue<Spacing>] = &[
    ("poisson", "Random, as from many independent users", Spacing::Poisson),
    ("even", "All equal", Spacing::Even),
];

const PROTOCOLS: &[NamedValue<Protocol>] = &[
    ("http1", "HTTP/1.1", Protocol::Http1),
    ("http2", "HTTP/2", Protocol::Http2),
    ("grpc", "gRPC, one message each way; --body-file holds the message", Protocol::Grpc),
];

impl WorkloadArgs {
    pub(super) fn load(&self, url: &str, rng: &Rng) -> anyhow::Result<Load> {
        let target = Target::look_up(url)?;
        let protocol = self.protocol;
        let connector = target.connector(protocol, self.ca_file.as_deref(), self.insecure)?;
        let (config, schedule, folder) = match &self.file {
            None => (self.workload(), self.schedule(), PathBuf::new()),
            Some(file) => {
                let (name, text) = input::text(file)?;
                let (config, schedule) = curtail_config::read(&name, &text, |s| {
                    let config = WorkloadConfig::read(s);
                    let schedule =
                        s.optional_section("schedule", "Schedule of requests.", Schedule::read);
                    (config, schedule.unwrap_or_else(|| self.schedule()))
                })?;
                (config, schedule, file.parent().unwrap_or(Path::new("")).to_owned())
            }
        };
        let schedule = match &self.arrivals {
            Some(path) => arrivals::read(path, self.speed)?,
            None => schedule,
        };
        let workload = Workload::prepare(&config, &target, &folder, rng)?;
        let needed = || threads_for(schedule.rate_max());
        let threads = self.threads.map_or_else(needed, usize::from);
        Ok(Load {
            target,
            connector,
            protocol,
            keep_alive: !self.no_keep_alive,
            connections_max: self.connections as usize,
            timeout: self.timeout,
            workload,
            schedule: Arc::new(schedule),
            rng: rng.clone(),
            share: self.share,
            threads,
        })
    }

    pub(super) fn about(&self, load: &Load) -> String {
        let protocol = self.protocol.name();
        let connections = format!("{protocol}, at most {} connections", self.connections);
        let spacing = match self.spacing {
            Spacing::Poisson => "at random",
            Spacing::Even => "evenly",
        };
        let when = match self.constant_rate(load) {
            Some((rate, lasts, _)) => format!("{rate} requests/s {spacing} for {lasts}"),
            None => self.arrivals.as_ref().map_or("the file's schedule".to_owned(), |arrivals| {
                format!("arrivals of {}, {} x as fast", arrivals.display(), self.speed)
            }),
        };
        let file =
            self.file.as_ref().map_or_else(String::new, |file| format!("{}, ", file.display()));
        format!("{file}{when}, {connections}")
    }

    /// The rate, duration and spacing of `load`; absent when its schedule comes from a file.
    pub(super) fn constant_rate(&self, load: &Load) -> Option<(f64, Duration, Spacing)> {
        let is_ours = *load.schedule == self.schedule();
        is_ours.then_some((self.rate, self.lasts, self.spacing))
    }

    fn schedule(&self) -> Schedule {
        Schedule::constant(self.rate, self.lasts, self.spacing)
    }

    fn workload(&self) -> WorkloadConfig {
        let text = self.body.clone().map(BodyConfig::Text);
        let body = text.or_else(|| self.body_file.clone().map(BodyConfig::File));
        let default =
            if body.is_some() || self.protocol == Protocol::Grpc { "POST" } else { "GET" };
        WorkloadConfig::of_one(RequestConfig {
            method: self.method.clone().unwrap_or_else(|| default.to_owned()),
            path: self.path.clone(),
            headers: self.header.clone(),
            body,
            data: self.data.clone(),
            expect: Expect {
                status: self.expect_status,
                contains: self.expect_contains.clone(),
                ..Expect::default()
            },
            ..RequestConfig::get("request")
        })
    }
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "expected requests a second".to_owned())?;
    if rate > 0.0 && rate <= RATE_MAX {
        Ok(rate)
    } else {
        Err(format!("expected more than 0 and at most {RATE_MAX}"))
    }
}

/// Parses a duration, written as in configurations.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "expected a time with its unit: 500ms, 30s, 5m".to_owned();
    let read = curtail_config::read("", &format!("time: {text}"), |s| {
        s.field("time", "").at_least(Duration::from_ms(1)).required()
    });
    read.map_err(|_| wrong())
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected NAME: VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

fn share(text: &str) -> Result<Share, String> {
    let wrong =
        || "expected NTH/OF, as in 1/3, with NTH from 1 to OF and OF at most 1000".to_owned();
    let (nth, of) = text.split_once('/').ok_or_else(wrong)?;
    let (nth, of): (usize, usize) =
        (nth.parse().map_err(|_| wrong())?, of.parse().map_err(|_| wrong())?);
    if nth >= 1 && nth <= of && of <= 1_000 { Ok(Share { nth: nth - 1, of }) } else { Err(wrong()) }
}

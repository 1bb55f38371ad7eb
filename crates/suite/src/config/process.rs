//! The keys of processes, links and restarts.

use super::{check_url, read_time};
use curtail_config::{Scalar, ScalarError, Section, Value};
use curtail_units::Duration;
use serde_json::{Value as Json, json};
use std::net::SocketAddr;

/// The configuration of a process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProcessConfig {
    pub(crate) name: String,
    pub(crate) run: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) ready: Option<ReadyConfig>,
    pub(crate) profile: Option<String>,
    pub(crate) stop_within: Duration,
}

/// The readiness of a process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReadyConfig {
    pub(crate) sign: ReadySign,
    pub(crate) within: Duration,
}

/// The sign that a process is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadySign {
    /// A response with a status from 200 to 399 from this URL.
    Http(String),
    /// An accepted connection to this address.
    Tcp(SocketAddr),
    /// This text in the output of the process.
    Line(String),
}

/// The configuration of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkConfig {
    pub(crate) name: String,
    pub(crate) listen: SocketAddr,
    pub(crate) to: SocketAddr,
}

/// The restarts of processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RestartsConfig {
    pub(crate) every: usize,
    pub(crate) processes: Vec<String>,
}

pub(super) fn read_links(s: &mut Section<'_>) -> Vec<LinkConfig> {
    s.map(
        "links",
        "TCP proxies, by name, that a fault can slow down. Configure the client to connect to `listen`.",
        LinkConfig::read,
    )
}

pub(super) fn read_processes(s: &mut Section<'_>) -> Vec<ProcessConfig> {
    s.map(
        "processes",
        "Processes by name that run during the whole suite. They start in this order, \
            each when the previous one is ready, and stop in the reverse order.",
        ProcessConfig::read,
    )
}

impl ProcessConfig {
    fn read(name: &str, s: &mut Section<'_>) -> Self {
        let run = read_program(s);
        if run.is_none() {
            s.error("run", "there is no program: expected [PROGRAM, ARGUMENT, …]");
        }
        let (env, ready) = (
            read_env(s),
            s.optional_section(
                "ready",
                "Sign that the process is ready; absent: it is ready at once.",
                ReadyConfig::read,
            ),
        );
        let profile: Option<String> = s
            .field(
                "profile",
                "URL of CPU profiles in pprof's format, such as http://127.0.0.1:7301/debug/pprof/profile of Curtail and of Go's net/http/pprof. The suite records one of the first block of each arm.",
            )
            .optional();
        if let Some(url) = &profile {
            check_url(s, "profile", url);
        }
        Self {
            name: name.to_owned(),
            run: run.unwrap_or_default(),
            env,
            ready,
            profile,
            stop_within: read_time(
                s,
                "stop_within",
                "Maximum time from SIGTERM to the end of the process; the suite then kills the process.",
            )
            .default(Duration::from_secs(10)),
        }
    }
}

pub(super) fn read_program(s: &mut Section<'_>) -> Option<Vec<String>> {
    let run: Vec<ScalarText> = s.values(
        "run",
        "Program and arguments. The program runs in the folder of the suite, where relative paths start. A name without `/` is looked up in PATH. The output goes to a file in the folder of the run.",
    );
    let is_there = run.first().is_some_and(|program| !program.0.is_empty());
    is_there.then(|| run.into_iter().map(|word| word.0).collect())
}

pub(super) fn read_env(s: &mut Section<'_>) -> Vec<(String, String)> {
    s.map("env", "Environment variables, in addition to those of `curtail`.", |name, s| {
        (name.to_owned(), s.field::<ScalarText>("value", "The value.").alone().required().0)
    })
}

impl ReadyConfig {
    fn read(s: &mut Section<'_>) -> Self {
        let http: Option<String> = s
            .field("http", "Ready when this URL (http://…) responds with a status from 200 to 399.")
            .optional();
        if let Some(url) = &http {
            check_url(s, "http", url);
        }
        let tcp = s.field("tcp", "Ready when this address accepts a connection.").optional();
        let line: Option<String> =
            s.field("line", "Ready when the output contains this text.").optional();
        let mut signs: Vec<ReadySign> = http
            .map(ReadySign::Http)
            .into_iter()
            .chain(tcp.map(ReadySign::Tcp))
            .chain(line.map(ReadySign::Line))
            .collect();
        if signs.len() != 1 {
            s.error("http", format!("{} signs: expected one of http, tcp and line", signs.len()));
        }
        let within =
            read_time(s, "within", "Maximum time until ready.").default(Duration::from_secs(60));
        // Without any there is an error, and this value is not used.
        Self { sign: signs.pop().unwrap_or(ReadySign::Line(String::new())), within }
    }
}

impl LinkConfig {
    fn read(name: &str, s: &mut Section<'_>) -> Self {
        let listen = s.field("listen", "Address of the link, such as 127.0.0.1:8081.").required();
        let to = s
            .field("to", "Address of the server behind the link, such as 127.0.0.1:8080.")
            .required();
        Self { name: name.to_owned(), listen, to }
    }
}

impl RestartsConfig {
    pub(super) fn read(s: &mut Section<'_>) -> Self {
        let every = s
            .field(
                "every",
                "Number of rounds between two restarts; a round is one block of every arm.",
            )
            .range(1..=super::BLOCKS_MAX)
            .default(1);
        let processes = s.values("processes", "Names of the processes to restart.");
        if processes.is_empty() {
            s.error("processes", "there is none: expected the name of at least one process");
        }
        Self { every, processes }
    }
}

/// A text; a number or a boolean counts as its text in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScalarText(pub(super) String);

impl Value for ScalarText {
    const NOUN: &'static str = "text or a number";
    const DETAIL: &'static str = "";

    fn read(scalar: &Scalar) -> Result<Self, ScalarError> {
        Ok(Self(scalar.word().to_owned()))
    }

    fn write(&self) -> String {
        self.0.write()
    }

    fn placeholder() -> Self {
        Self(String::new())
    }

    fn schema() -> Json {
        json!({ "type": ["string", "number", "boolean"] })
    }
}

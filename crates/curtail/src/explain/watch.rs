//! `curtail explain --watch`: explains the newest traces again and again, and prints what is new.
//!
//! Each round asks a server two questions about the traces of each service that began in the last interval:
//!
//! | question | compares |
//! |---|---|
//! | `tail` | the slow traces of the interval with its other traces |
//! | `change` | the traces of the interval with those of the twelve intervals before |
//!
//! **Decides** what is news: a finding that two rounds in a row have, because one round in twenty may have a finding by chance;
//! that such a finding is over, when two rounds in a row do not have it; and that its state is unknown, when twelve rounds in a
//! row had too few traces, or no response of the server.
//! **Limits**: the news that a webhook or a server does not accept wait for the next round, at most [`UNSENT_MAX`] of them
//! for each of the two.

use crate::import;
use crate::output::{Format, print, print_message};
use crate::query::request::{
    QueryRejected, QueryRequest, QueryResult, command_for, send, send_for_text,
};
use crate::server_access::ServerAccessArgs;
use crate::server_url::ServerUrl;
use crate::terminal;
use bytes::Bytes;
use curtail_http::client::ClientLimits;
use curtail_http::clock::unix_time;
use curtail_otlp::{Signal, events};
use curtail_proxy::signals::StopSignals;
use curtail_text::expectation;
use curtail_text::numbers::utc;
use curtail_text::wrapped;
use curtail_units::Duration;
use http::{Request, header};
use http_body_util::Full;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::process::ExitCode;

/// The version of the shape of a piece of news in JSON.
const SCHEMA: &str = "curtail.watch/1";

/// The shortest interval.
pub(super) const EVERY_MIN_NS: i64 = SECOND_NS;

/// The number of intervals before the last one that it is compared with.
const INTERVALS_BEFORE: i64 = 12;

/// The time after which the spans of a trace are expected to be stored; less for short intervals.
const SETTLED_NS: i64 = 10 * SECOND_NS;

const SECOND_NS: i64 = 1_000_000_000;

/// The rounds in a row that must have a finding, and that must not have it, until it is news.
const ROUNDS_MIN: u32 = 2;

/// The rounds in a row without an explanation of a service, after which its findings end: the service may be gone forever.
const UNEXPLAINED_MAX: u32 = 12;

const UNSENT_MAX: usize = 100;

const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// What to watch.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) every_ns: i64,
    pub(super) server: String,
    pub(super) access: ServerAccessArgs,
    /// Absent: all services at which traces begin.
    pub(super) service: Option<String>,
    /// The length of a period, as a text.
    pub(super) period: String,
    pub(super) seed: u64,
    pub(super) webhook: Option<ServerUrl>,
    /// The OTLP receiver that keeps the news, if any.
    pub(super) keep: Option<ServerUrl>,
    pub(super) format: Format,
}

/// Watches until a signal stops it.
pub(super) fn run(plan: &Plan) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let mut signals = StopSignals::new()?;
        tokio::select! {
            () = signals.received() => Ok(ExitCode::SUCCESS),
            ended = watch(plan) => ended,
        }
    });
    // A question to the server may take a minute, and nobody waits for its response.
    runtime.shutdown_background();
    ended
}

/// Without end, unless the first round fails.
async fn watch(plan: &Plan) -> anyhow::Result<ExitCode> {
    let of = plan.service.as_deref().unwrap_or("all services");
    let every = std::time::Duration::from_nanos(plan.every_ns.unsigned_abs());
    print_message(&format!(
        "watching {of} every {every:?}; reports a finding after two consecutive intervals"
    ));
    if let Some(service) = &plan.service {
        let (asking, service) = (plan.clone(), service.clone());
        tokio::task::spawn_blocking(move || say_if_unknown(&asking, &service)).await?;
    }
    let settled_ns = SETTLED_NS.min(plan.every_ns);
    let mut findings = Findings::default();
    let (mut unsent, mut unkept) = (VecDeque::new(), VecDeque::new());
    // Whole seconds, so that a time in RFC 3339 needs no fraction.
    let mut to_ns = (now_ns() / SECOND_NS) * SECOND_NS;
    for round in 0.. {
        let wait_ns = (to_ns + settled_ns - now_ns()).max(0);
        tokio::time::sleep(Duration::from_ns(wait_ns.unsigned_abs()).into()).await;
        let times = to_ns - plan.every_ns..to_ns;
        let (asking, of_round) = (plan.clone(), times.clone());
        let asked = tokio::task::spawn_blocking(move || ask(&asking, &of_round)).await?;
        let (explained, found) = match asked {
            Ok(of_round) => of_round,
            Err(error) if round == 0 => return Err(error),
            Err(error) => {
                print_message(&format!("{}: {error:#}", utc(unix_time().as_ns())));
                (Explained::new(), Vec::new())
            }
        };
        for news in findings.round(&times, &explained, found) {
            print(&news.written(plan.format, &plan.server))?;
            if plan.webhook.is_some() {
                unsent.push_back(news.json());
            }
            if plan.keep.is_some() {
                unkept.push_back(news.json());
            }
        }
        if let Some(webhook) = &plan.webhook {
            let send = async |news: &Value| post(webhook, news.to_string()).await;
            send_all(("--webhook", webhook), &mut unsent, send).await;
        }
        if let Some(to) = &plan.keep {
            let send = async |news: &Value| keep(to.clone(), plan.access.clone(), news).await;
            send_all(("--to", to), &mut unkept, send).await;
        }
        // Rounds that took longer than the interval leave intervals out.
        let late = (now_ns() - settled_ns - to_ns) / plan.every_ns;
        to_ns += plan.every_ns * late.max(1);
    }
    unreachable!("there is no last round")
}

fn now_ns() -> i64 {
    i64::try_from(unix_time().as_ns()).unwrap_or(i64::MAX)
}

/// The services and questions that the server has explained.
type Explained = BTreeSet<(String, &'static str)>;

/// Explains the traces of these times of each service. A service whose question the server rejects (too many spans, too
/// late) is reported, and the others are asked.
///
/// # Errors
/// When the server does not respond, or rejects every question.
fn ask(plan: &Plan, times: &Range<i64>) -> anyhow::Result<(Explained, Vec<Found>)> {
    let Plan { server, access, .. } = plan;
    let services = match &plan.service {
        Some(service) => vec![service.clone()],
        None => services(server, access)?,
    };
    let before = times.start - INTERVALS_BEFORE * plan.every_ns..times.start;
    let seed = plan.seed.to_string();
    let (mut explained, mut found) = (BTreeSet::new(), Vec::new());
    let (mut has_response, mut rejections) = (false, Vec::new());
    for service in services {
        let about = || {
            let request = QueryRequest::new("/api/v1/explain").with("service", &service);
            request.with("period", &plan.period).with("seed", &seed)
        };
        let tail = about().with("start", &rfc3339(times.start)).with("end", &rfc3339(times.end));
        let change = about().with("baseline", &range(&before)).with("slow", &range(times));
        for (question, request) in [("tail", tail), ("change", change)] {
            let response = match send_for_text(server, access, &request, "application/json") {
                Err(error) if error.is::<QueryRejected>() => {
                    rejections.push(error.context(format!("{service} ({question})")));
                    continue;
                }
                response => response?,
            };
            has_response = true;
            // No trace began at this service, or the server has no trace of the time before.
            let Ok(json) = response else { continue };
            let mut explanation: Value = serde_json::from_str(&json)?;
            // There were too few traces to explain anything.
            if explanation.get("why").is_some() {
                continue;
            }
            explained.insert((service.clone(), question));
            if let Some(Value::Array(findings)) = explanation.get_mut("findings").map(Value::take) {
                let of = |finding| Found { service: service.clone(), question, finding };
                found.extend(findings.into_iter().map(of));
            }
        }
    }
    if !has_response && !rejections.is_empty() {
        return Err(rejections.swap_remove(0));
    }
    for error in rejections {
        print_message(&format!("{}: {error:#}", utc(unix_time().as_ns())));
    }
    Ok((explained, found))
}

/// Says that no span of the service is stored, with similar names. The service may still start, and a server that does not
/// respond is an error of the first round.
fn say_if_unknown(plan: &Plan, service: &str) {
    let Ok(known) = services(&plan.server, &plan.access) else { return };
    if !known.iter().any(|name| name == service) {
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let expected = expectation(service, &known, "the server has no spans");
        print_message(&format!("{service:?} has no spans yet: {expected}"));
    }
}

fn services(server: &str, access: &ServerAccessArgs) -> anyhow::Result<Vec<String>> {
    let QueryResult::Json { json, .. } =
        send(server, access, &QueryRequest::new("/jaeger/api/services"))?
    else {
        return Ok(Vec::new());
    };
    let names = json["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// A time of whole seconds.
fn rfc3339(ns: i64) -> String {
    utc(ns.max(0).unsigned_abs()).replace(" UTC", "Z").replace(' ', "T")
}

fn range(times: &Range<i64>) -> String {
    format!("{}..{}", rfc3339(times.start), rfc3339(times.end))
}

/// Sends news in their order until one is not accepted.
async fn send_all(
    (flag, to): (&str, &ServerUrl),
    waiting: &mut VecDeque<Value>,
    send: impl AsyncFn(&Value) -> anyhow::Result<()>,
) {
    while let Some(news) = waiting.front() {
        if let Err(error) = send(news).await {
            // The path may be a secret.
            print_message(&format!(
                "{flag} {}: {error:#}; will retry after the next interval",
                to.origin
            ));
            break;
        }
        waiting.pop_front();
    }
    while waiting.len() > UNSENT_MAX {
        waiting.pop_front();
        print_message(&format!("a finding was not sent: too many wait for {flag}"));
    }
}

/// Keeps a piece of news as a log record of its service.
async fn keep(to: ServerUrl, access: ServerAccessArgs, news: &Value) -> anyhow::Result<()> {
    let resource = json!({ "service.name": news["service"] }).to_string();
    let now_ns = unix_time().as_ns();
    let batch = events::batch(&resource, now_ns, events::FINDING, &[news.to_string()])?;
    let send = move || import::send_batch(&to, &access, Signal::Logs, &batch);
    tokio::task::spawn_blocking(send).await?
}

async fn post(webhook: &ServerUrl, body: String) -> anyhow::Result<()> {
    let limits = ClientLimits { body_bytes_max: 1 << 20, idle_max: 0 };
    let client = ServerAccessArgs::default().client(webhook, WEBHOOK_TIMEOUT, limits)?;
    let path = if webhook.path.is_empty() { "/" } else { &webhook.path };
    let request = Request::post(path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let response = client.send(request, WEBHOOK_TIMEOUT).await?;
    anyhow::ensure!(
        response.status.is_success(),
        "expected a status of 2xx, got {}",
        response.status
    );
    Ok(())
}

/// A finding of one round.
#[derive(Clone, Debug, PartialEq)]
struct Found {
    service: String,
    question: &'static str,
    finding: Value,
}

/// What a finding is about: service, question, cause and subject. The cut of a number differs from round to round.
type Key = (String, &'static str, String, String);

impl Found {
    fn key(&self) -> Key {
        let text = |key: &str| self.finding[key].as_str().unwrap_or_default();
        let subject = text("subject");
        let cut = [" > ", " <= "].into_iter().find_map(|sign| subject.split_once(sign));
        let subject = cut.map_or(subject, |(field, _)| field);
        (self.service.clone(), self.question, text("cause").to_owned(), subject.to_owned())
    }
}

/// The findings of the last rounds.
#[derive(Debug, Default)]
struct Findings {
    known: BTreeMap<Key, Known>,
}

#[derive(Debug)]
struct Known {
    since_ns: i64,
    last: Found,
    last_ns: i64,
    rounds: u32,
    missing: u32,
    /// The last rounds without an explanation of the service.
    unexplained: u32,
}

/// The state of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Over,
    Unknown,
}

/// A finding whose state has changed.
#[derive(Clone, Debug, PartialEq)]
struct News {
    state: State,
    of: Found,
    /// The traces of the rounds with the finding began from this time to that time.
    times: Range<i64>,
}

impl Findings {
    /// Takes the findings of a round, and returns what is news. Findings of services without an explanation stay for some
    /// rounds.
    fn round(&mut self, times: &Range<i64>, explained: &Explained, found: Vec<Found>) -> Vec<News> {
        let mut news = Vec::new();
        let mut keys = BTreeSet::new();
        for of in found {
            let key = of.key();
            if !keys.insert(key.clone()) {
                continue;
            }
            let new = Known {
                since_ns: times.start,
                last: of.clone(),
                last_ns: 0,
                rounds: 0,
                missing: 0,
                unexplained: 0,
            };
            let known = self.known.entry(key).or_insert(new);
            (known.last, known.last_ns) = (of, times.end);
            (known.missing, known.unexplained) = (0, 0);
            known.rounds += 1;
            if known.rounds == ROUNDS_MIN {
                news.push(known.news(State::New));
            }
        }
        self.known.retain(|key, known| {
            if keys.contains(key) {
                return true;
            }
            let was_news = known.rounds >= ROUNDS_MIN;
            let (stays, state) = if explained.contains(&(key.0.clone(), key.1)) {
                (known.missing, known.unexplained) = (known.missing + 1, 0);
                (was_news && known.missing < ROUNDS_MIN, State::Over)
            } else {
                known.unexplained += 1;
                (known.unexplained < UNEXPLAINED_MAX, State::Unknown)
            };
            if was_news && !stays {
                news.push(known.news(state));
            }
            stays
        });
        news
    }
}

impl Known {
    fn news(&self, state: State) -> News {
        News { state, of: self.last.clone(), times: self.since_ns..self.last_ns }
    }
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Over => "over",
            Self::Unknown => "unknown",
        }
    }
}

impl News {
    fn text(&self) -> String {
        let Found { service, finding, .. } = &self.of;
        let about = finding["text"].as_str().unwrap_or_default();
        let [since, until] = [self.times.start, self.times.end].map(|ns| utc(ns.unsigned_abs()));
        let subject = finding["subject"].as_str().unwrap_or_default();
        match self.state {
            State::New => format!("{service}: since {since}: {about}"),
            State::Over => format!("{service}: over since {until}, began at {since}: {subject}"),
            State::Unknown => format!(
                "{service}: unknown since {until} (no explanation), began at {since}: {subject}"
            ),
        }
    }

    fn json(&self) -> Value {
        json!({
            "schema": SCHEMA,
            "state": self.state.name(),
            "service": self.of.service,
            "question": self.of.question,
            "since_unix_ns": self.times.start,
            "until_unix_ns": self.times.end,
            "text": self.text(),
            "finding": self.of.finding,
        })
    }

    /// Lines for people, or one line of JSON.
    fn written(&self, format: Format, server: &str) -> String {
        if format == Format::Json {
            return format!("{}\n", self.json());
        }
        let mut lines = wrapped("", &self.text(), terminal::width_of_stdout());
        let example = self.of.finding["examples"][0].as_str().filter(|_| self.state == State::New);
        let command = |id| command_for(&format!("  curtail query trace {id}"), server);
        lines.extend(example.map(command));
        lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

#[cfg(test)]
mod tests;

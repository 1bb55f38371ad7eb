//! `curtail query`: questions to a server, and their answers as tables.
//!
//! It asks what Grafana asks, over HTTP; what a server answers is in `curtail_api`.

mod ask;
mod found;
mod measured;
mod waterfall;

pub(crate) use ask::Refused;

use crate::terminal;
use ask::{Answered, Question};
use clap::{Args, Subcommand, ValueEnum};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;

/// Ask a server for traces, the slowest spans, quantiles and counts
///
/// Q selects spans in `TraceQL`, such as
/// { resource.service.name = "cart" && duration > 100ms }; the default is all.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail query slowest '{ resource.service.name = \"cart\" }' --since 1h
  curtail query trace 4bf92f3577b34da6a3ce929d0e0e4736
  curtail query quantiles --by resource.service.name --by name
  curtail query histogram '{ name = \"GET /cart\" }'
  curtail query values resource.service.name"
)]
pub(crate) struct QueryArgs {
    #[command(subcommand)]
    question: Asked,
    /// URL of the query API.
    #[arg(long, global = true, value_name = "URL", default_value = "http://127.0.0.1:3200")]
    server: String,
    /// Tenant to query (X-Scope-OrgID).
    #[arg(long, global = true, value_name = "NAME")]
    tenant: Option<String>,
    /// Output format.
    #[arg(long, global = true, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// The server's response, unchanged.
    Json,
}

#[derive(Clone, Debug, Subcommand)]
enum Asked {
    /// Show a trace as a waterfall
    Trace {
        /// Hexadecimal digits.
        id: String,
    },
    /// List the traces with the slowest of all spans
    Slowest(Found),
    /// List the traces with the newest spans
    Newest(Found),
    /// Compute quantiles of durations, or of another number: exact, or with their error
    Quantiles {
        #[command(flatten)]
        of: Measured,
        /// Quantiles, from 0 to 1.
        #[arg(long, value_name = "Q", default_values = ["0.5", "0.9", "0.99", "0.999"])]
        quantile: Vec<String>,
    },
    /// Count durations up to each power of two
    Histogram {
        #[command(flatten)]
        of: Measured,
    },
    /// Count spans
    Count {
        #[command(flatten)]
        of: Measured,
    },
    /// List attributes
    Tags {
        #[command(flatten)]
        spans: Spans,
    },
    /// List the values of an attribute, the most frequent first
    Values {
        /// As span.http.route, resource.service.name or name.
        tag: String,
        #[command(flatten)]
        spans: Spans,
    },
}

/// Which spans.
#[derive(Args, Clone, Debug)]
struct Spans {
    /// Spans to select, in `TraceQL`.
    #[arg(default_value = "{}")]
    q: String,
    /// Only spans that started within this time: 90s, 1h, 7d.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
}

#[derive(Args, Clone, Debug)]
struct Found {
    #[command(flatten)]
    spans: Spans,
    /// Maximum number of traces to return.
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
}

#[derive(Args, Clone, Debug)]
struct Measured {
    #[command(flatten)]
    spans: Spans,
    /// Group by this attribute, such as resource.service.name. Repeatable.
    #[arg(long, value_name = "TAG")]
    by: Vec<String>,
    /// Number to measure.
    #[arg(long, value_name = "TAG", default_value = "duration")]
    of: String,
}

/// Asks, and prints what is answered.
///
/// # Errors
/// When there is no server, or it does not answer this.
pub(crate) fn run(args: &QueryArgs) -> anyhow::Result<ExitCode> {
    let ask = |question| ask::ask(&args.server, args.tenant.as_deref(), &question);
    let (json, quantile_error) = match ask(question(&args.question)?)? {
        Answered::Json { json, quantile_error } => (json, quantile_error),
        Answered::NotFound(why) => {
            eprintln!("{why}");
            return Ok(ExitCode::FAILURE);
        }
    };
    // The number of values tells how reliable a quantile is.
    let counts = match (&args.question, args.format) {
        (Asked::Quantiles { of, .. }, Format::Table) => match ask(of.histogram()?)? {
            Answered::Json { json, .. } => measured::value_counts(&json),
            Answered::NotFound(_) => BTreeMap::new(),
        },
        _ => BTreeMap::new(),
    };
    let text = match args.format {
        Format::Json => format!("{json}\n"),
        Format::Table => table(&args.question, &json, quantile_error, &counts),
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn question(asked: &Asked) -> anyhow::Result<Question> {
    let of = |path: &str| Question::of(path);
    let found = |found: &Found, order: &str| {
        let limit = found.limit.to_string();
        found.spans.of(of("/api/search").with("limit", &limit).with("order", order))
    };
    Ok(match asked {
        Asked::Trace { id } => of(&format!("/api/v2/traces/{id}")),
        Asked::Slowest(spans) => found(spans, "slowest")?,
        Asked::Newest(spans) => found(spans, "newest")?,
        Asked::Quantiles { of, quantile } => {
            of.question(&format!("quantile_over_time({}, {})", of.of, quantile.join(", ")))?
        }
        Asked::Histogram { of } => of.histogram()?,
        Asked::Count { of } => of.question("count_over_time()")?,
        Asked::Tags { spans } => spans.of(of("/api/v2/search/tags"))?,
        Asked::Values { tag, spans } => {
            let tag: String = form_urlencoded::byte_serialize(tag.as_bytes()).collect();
            spans.of(of(&format!("/api/v2/search/tag/{tag}/values")))?
        }
    })
}

impl Spans {
    fn of(&self, question: Question) -> anyhow::Result<Question> {
        self.since(question.with("q", &self.q))
    }

    fn since(&self, question: Question) -> anyhow::Result<Question> {
        let Some(since) = &self.since else { return Ok(question) };
        let wrong = || {
            Refused(format!("--since: expected a length of time, as 90s or 1h, found {since:?}"))
        };
        let ns = curtail_api::duration_ns(since).ok_or_else(wrong)?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let now_ns = i64::try_from(now.as_nanos())?;
        let (start, end) = (now_ns.saturating_sub(ns).to_string(), now_ns.to_string());
        Ok(question.with("start", &start).with("end", &end))
    }
}

impl Measured {
    fn histogram(&self) -> anyhow::Result<Question> {
        self.question(&format!("histogram_over_time({})", self.of))
    }

    fn question(&self, function: &str) -> anyhow::Result<Question> {
        let by = match &*self.by {
            [] => String::new(),
            by => format!(" by ({})", by.join(", ")),
        };
        let q = format!("{} | {function}{by}", self.spans.q);
        let question = Question::of("/api/metrics/query").with("q", &q);
        if self.spans.since.is_some() {
            return self.spans.since(question);
        }
        // Without times, the server's default range is the last hour.
        Ok(question.with("start", "0").with("end", &i64::MAX.to_string()))
    }
}

fn table(
    asked: &Asked,
    json: &serde_json::Value,
    quantile_error: Option<f64>,
    counts: &BTreeMap<measured::Group, u64>,
) -> String {
    match asked {
        Asked::Trace { .. } => waterfall::of(&json["trace"], terminal::width_of_stdout()),
        Asked::Slowest(_) | Asked::Newest(_) => found::traces(json),
        Asked::Quantiles { of, .. } => measured::quantiles(
            json,
            of.of == "duration",
            (quantile_error, counts),
            terminal::width_of_stdout(),
        ),
        Asked::Histogram { of } => measured::histogram(json, of.of == "duration"),
        Asked::Count { .. } => measured::counts(json),
        Asked::Tags { .. } => found::tags(json),
        Asked::Values { .. } => found::values(json),
    }
}

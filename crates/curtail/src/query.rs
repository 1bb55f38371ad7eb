//! `curtail query`: sends queries to a server and prints the results as tables.
//!
//! The requests are those that Grafana sends, and `curtail_api` serves them.

mod found;
mod measured;
pub(crate) mod request;
mod waterfall;

pub(crate) use request::QueryRejected;

use crate::output::{Format, print, print_message};
use crate::server_access::ServerAccessArgs;
use crate::terminal;
use clap::{Args, Subcommand};
use curtail_http::clock::unix_time;
use request::{DEFAULT_SERVER, QueryRequest, QueryResult};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Ask a server for traces, the slowest spans, quantiles and counts
///
/// Q selects spans in `TraceQL`, such as
/// { resource.service.name = "cart" && duration > 100ms }; the default: all spans.
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
    query: Query,
    /// URL of the query API.
    #[arg(long, global = true, value_name = "URL", default_value = DEFAULT_SERVER)]
    server: String,
    #[command(flatten)]
    access: ServerAccessArgs,
    /// Output format; `json` is the server's response, unchanged.
    #[arg(long, global = true, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Debug, Subcommand)]
enum Query {
    /// Show a trace as a waterfall
    Trace {
        /// Trace ID, in hexadecimal.
        id: String,
    },
    /// List the traces of the slowest spans, the slowest first
    Slowest(Found),
    /// List the traces of the newest spans, the newest first
    Newest(Found),
    /// Compute quantiles of durations or of another number, and state their error
    Quantiles {
        #[command(flatten)]
        of: Measured,
        /// Quantiles, from 0 to 1.
        #[arg(long, value_name = "Q", default_values = ["0.5", "0.9", "0.99", "0.999"])]
        quantile: Vec<String>,
    },
    /// Count spans by duration or another number, in buckets whose bounds are powers of two (of ns for durations)
    Histogram {
        #[command(flatten)]
        of: Measured,
    },
    /// Count spans
    Count {
        #[command(flatten)]
        group: Grouped,
    },
    /// List attributes
    Tags {
        #[command(flatten)]
        spans: Spans,
    },
    /// List the values of an attribute, the most frequent first
    Values {
        /// Attribute, such as span.http.route, resource.service.name or name.
        tag: String,
        #[command(flatten)]
        spans: Spans,
    },
}

#[derive(Args, Clone, Debug)]
struct Spans {
    /// Spans to select, in `TraceQL`.
    #[arg(default_value = "{}")]
    q: String,
    /// Only spans that started within this time before now: 90s, 1h, 7d [default: all times].
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
struct Grouped {
    #[command(flatten)]
    spans: Spans,
    /// Group by this attribute, such as resource.service.name. Repeatable.
    #[arg(long, value_name = "TAG")]
    by: Vec<String>,
}

#[derive(Args, Clone, Debug)]
struct Measured {
    #[command(flatten)]
    group: Grouped,
    /// Number to measure: `duration`, or a numeric attribute, such as span.http.response.body.size.
    #[arg(long, value_name = "TAG", default_value = "duration")]
    of: String,
}

pub(crate) fn run(args: &QueryArgs) -> anyhow::Result<ExitCode> {
    let send = |request| request::send(&args.server, &args.access, &request);
    let (json, quantile_error) = match send(request_of(&args.query)?)? {
        QueryResult::Json { json, quantile_error } => (json, quantile_error),
        QueryResult::NotFound(why) => {
            print_message(&why);
            return Ok(ExitCode::FAILURE);
        }
    };
    // The number of values tells how reliable a quantile is.
    let counts = match (&args.query, args.format) {
        (Query::Quantiles { of, .. }, Format::Table) => match send(of.histogram()?)? {
            QueryResult::Json { json, .. } => measured::value_counts(&json),
            QueryResult::NotFound(_) => BTreeMap::new(),
        },
        _ => BTreeMap::new(),
    };
    let text = match args.format {
        Format::Json => format!("{json}\n"),
        Format::Table => table(&args.query, &json, quantile_error, &counts),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn request_of(query: &Query) -> anyhow::Result<QueryRequest> {
    let of = |path: &str| QueryRequest::new(path);
    let found = |found: &Found, order: &str| {
        let limit = found.limit.to_string();
        found.spans.of(of("/api/search").with("limit", &limit).with("order", order))
    };
    Ok(match query {
        Query::Trace { id } => of(&format!("/api/v2/traces/{id}")),
        Query::Slowest(spans) => found(spans, "slowest")?,
        Query::Newest(spans) => found(spans, "newest")?,
        Query::Quantiles { of, quantile } => {
            of.group.request(&format!("quantile_over_time({}, {})", of.of, quantile.join(", ")))?
        }
        Query::Histogram { of } => of.histogram()?,
        Query::Count { group } => group.request("count_over_time()")?,
        Query::Tags { spans } => spans.of(of("/api/v2/search/tags"))?,
        Query::Values { tag, spans } => {
            let tag: String = form_urlencoded::byte_serialize(tag.as_bytes()).collect();
            spans.of(of(&format!("/api/v2/search/tag/{tag}/values")))?
        }
    })
}

impl Spans {
    fn of(&self, request: QueryRequest) -> anyhow::Result<QueryRequest> {
        self.since(request.with("q", &self.q))
    }

    fn since(&self, request: QueryRequest) -> anyhow::Result<QueryRequest> {
        let Some(since) = &self.since else { return Ok(request) };
        let wrong = || {
            QueryRejected(format!(
                "--since: expected a length of time, as 90s or 1h, found {since:?}"
            ))
        };
        let ns = curtail_api::duration_ns(since).ok_or_else(wrong)?;
        let now_ns = i64::try_from(unix_time().as_ns())?;
        let (start, end) = (now_ns.saturating_sub(ns).to_string(), now_ns.to_string());
        Ok(request.with("start", &start).with("end", &end))
    }
}

impl Measured {
    fn histogram(&self) -> anyhow::Result<QueryRequest> {
        self.group.request(&format!("histogram_over_time({})", self.of))
    }
}

impl Grouped {
    fn request(&self, function: &str) -> anyhow::Result<QueryRequest> {
        let by = match &*self.by {
            [] => String::new(),
            by => format!(" by ({})", by.join(", ")),
        };
        let q = format!("{} | {function}{by}", self.spans.q);
        let request = QueryRequest::new("/api/metrics/query").with("q", &q);
        if self.spans.since.is_some() {
            return self.spans.since(request);
        }
        // Without times, the server's default range is the last hour.
        Ok(request.with("start", "0").with("end", &i64::MAX.to_string()))
    }
}

fn table(
    query: &Query,
    json: &serde_json::Value,
    quantile_error: Option<f64>,
    counts: &BTreeMap<measured::Group, u64>,
) -> String {
    match query {
        Query::Trace { .. } => waterfall::of(&json["trace"], terminal::width_of_stdout()),
        Query::Slowest(_) | Query::Newest(_) => found::traces(json),
        Query::Quantiles { of, .. } => measured::quantiles(
            json,
            of.of == "duration",
            (quantile_error, counts),
            terminal::width_of_stdout(),
        ),
        Query::Histogram { of } => measured::histogram(json, of.of == "duration"),
        Query::Count { .. } => measured::counts(json),
        Query::Tags { .. } => found::tags(json),
        Query::Values { .. } => found::values(json),
    }
}

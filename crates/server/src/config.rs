//! The configuration of a server: keys, meanings and defaults, each named once.

use crate::StartError;
use crate::listener_security::SecurityFiles;
use crate::origin::WebOrigin;
use curtail_config::{ConfigErrors, KeyError, Section, ServerTls};
use curtail_store::Retention;
use curtail_store::tail::Tail;
use curtail_text::describe_error;
use curtail_text::numbers::percent;
use curtail_units::{Bytes, Duration, Ratio};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;

/// The configuration of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The folder of the log, and, without `tables`, of the tables.
    pub data: PathBuf,
    /// The folder or URL of the tables; absent: in `data`.
    pub tables: Option<String>,
    /// The receivers.
    pub otlp: OtlpConfig,
    /// The query API.
    pub api: ApiConfig,
    /// The size at which a memtable is flushed.
    pub memtable: Bytes,
    /// The maximum time between flushes.
    pub flush_every: Duration,
    /// The retention of rows.
    pub retention: Retention,
    /// The thinning of old days; absent: all traces are kept.
    pub tail: Option<Tail>,
    /// The log levels, which the caller applies to its logger; absent: unchanged.
    pub log: Option<String>,
}

/// The OTLP receivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpConfig {
    /// The addresses to listen on; each accepts gRPC and HTTP.
    pub addresses: Vec<SocketAddr>,
    /// The certificate for TLS; absent: clear text.
    pub tls: Option<ServerTls>,
    /// A file of tokens; senders must present one of them.
    pub tokens_file: Option<PathBuf>,
    /// The origins of web pages that may send data.
    pub allow_origins: Vec<WebOrigin>,
}

/// The query API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiConfig {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The certificate for TLS; absent: clear text.
    pub tls: Option<ServerTls>,
    /// A file of tokens; clients must present one of them.
    pub tokens_file: Option<PathBuf>,
    /// The limits of responses.
    pub limits: curtail_api::Limits,
    /// The number of threads that run queries; absent: one per core.
    pub query_threads: Option<usize>,
}

impl Config {
    /// Reads the text of a configuration file, changed by `sets` (`key=value`); `file` names it in messages.
    ///
    /// # Errors
    /// All errors of the text.
    pub fn from_yaml(file: &str, text: &str, sets: &[String]) -> Result<Self, ConfigErrors> {
        curtail_config::read_with_sets(file, text, sets, Self::read)
    }

    /// A server for this machine alone, on ports that the system chooses.
    ///
    /// # Panics
    /// Never: the defaults are a valid configuration.
    #[must_use]
    pub fn on_loopback(data: PathBuf) -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut config = Self::from_yaml("", "{}", &[]).expect("every key has a default");
        config.data = data;
        config.otlp.addresses = vec![any];
        config.api.address = any;
        config
    }

    /// All errors of the files that the configuration names, with their keys.
    #[must_use]
    pub fn check_files(&self) -> Vec<KeyError> {
        let Self { otlp, api, .. } = self;
        let sections = [
            ("otlp", otlp.tls.as_ref(), otlp.tokens_file.as_deref()),
            ("api", api.tls.as_ref(), api.tokens_file.as_deref()),
        ];
        let check = |(section, tls, tokens_file)| {
            let of_tls = SecurityFiles::read(tls, None).err().map(|error| ("tls", error));
            let of_tokens = SecurityFiles::read(None, tokens_file).err();
            let of_tokens = of_tokens.map(|error| ("tokens_file", error));
            of_tls.into_iter().chain(of_tokens).map(move |(key, error)| {
                KeyError::new(format!("{section}.{key}"), describe_error(&error))
            })
        };
        sections.into_iter().flat_map(check).collect()
    }

    /// Reads the certificates and the tokens of the receivers and of the query API.
    pub(crate) fn security_files(&self) -> Result<[SecurityFiles; 2], StartError> {
        let Self { otlp, api, .. } = self;
        Ok([
            SecurityFiles::read(otlp.tls.as_ref(), otlp.tokens_file.as_deref())?,
            SecurityFiles::read(api.tls.as_ref(), api.tokens_file.as_deref())?,
        ])
    }

    /// Reads a configuration section by section.
    pub fn read(s: &mut Section<'_>) -> Self {
        let data: PathBuf = s
            .field("data", "Folder of the log and, without the key `tables`, of the tables.")
            .default(PathBuf::from("curtail-data"));
        // `file:///var/lib/curtail` is a folder as well.
        let data = match data.to_str().map(curtail_objects::folder) {
            None => data,
            Some(Ok(Some(folder))) => folder,
            Some(Ok(None) | Err(_)) => {
                let text = format!(
                    "{} is a URL: expected a folder; the key `tables` accepts a URL",
                    data.display()
                );
                s.value_error("data", text);
                data
            }
        };
        let config = Self {
            data,
            tables: s
                .field("tables", "Folder or URL (s3://, gs://, az://) of the tables; absent: in `data`.")
                .optional(),
            otlp: s.section("otlp", "Receivers of spans, logs and metrics.", otlp),
            api: s.section("api", "The query API.", api),
            memtable: s
                .field("memtable", "Size at which the server flushes a memtable. At most four memtables wait for their flush.")
                .range(Bytes::from_kib(1 << 10)..=Bytes::from_kib(1 << 20))
                .default(Bytes::from_kib(128 << 10)),
            flush_every: s
                .field("flush_every", "Maximum time between flushes. Other engines see rows after their flush.")
                .range(Duration::from_secs(1)..=Duration::from_secs(86_400))
                .default(Duration::from_secs(60)),
            retention: s.section("retention", "How long the server keeps rows.", retention),
            tail: s.optional_section(
                "tail",
                "Traces to keep of old days: traces with errors, the slowest traces and a sample; absent: all traces.",
                tail,
            ),
            log: s
                .field("log", "Log levels, such as `info,curtail_store=debug`; absent: the levels in the environment variable `CURTAIL_LOG`.")
                .optional(),
        };
        config.check(s);
        config
    }

    fn check(&self, s: &mut Section<'_>) {
        if let Some(Err(error)) = self.tables.as_deref().map(curtail_objects::check) {
            s.value_error("tables", error.to_string());
        }
        if let (Some(days), Some(tail)) = (self.retention.days, self.tail)
            && days <= tail.after_days
        {
            let after = tail.after_days;
            let text = format!("{after} days, but rows are kept for {days} days: expected fewer");
            s.conflict("tail.after_days", &["retention.days"], text);
        }
    }
}

impl fmt::Display for Config {
    /// Describes the server in a few lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "data folder: {}", self.data.display())?;
        writeln!(f, "tables: {}", self.tables.as_deref().unwrap_or("in the data folder"))?;
        for address in &self.otlp.addresses {
            let tls = if self.otlp.tls.is_some() { ", under TLS" } else { "" };
            writeln!(f, "OTLP receiver: {address}, gRPC and HTTP{tls}")?;
        }
        match &self.otlp.tokens_file {
            Some(file) => writeln!(f, "senders: with a token of {}", file.display())?,
            None => writeln!(f, "senders: without a token")?,
        }
        for origin in &self.otlp.allow_origins {
            writeln!(f, "web pages may send from {}", origin.as_str())?;
        }
        let limits = &self.api.limits;
        let response = Bytes::new(limits.response_bytes as u64);
        let tls = if self.api.tls.is_some() { " under TLS" } else { "" };
        write!(f, "query API: {}{tls}, at most {} spans ", self.api.address, limits.trace_spans)?;
        writeln!(f, "of a trace and {response} a response")?;
        match &self.api.tokens_file {
            Some(file) => writeln!(f, "queries: with a token of {}", file.display())?,
            None => writeln!(f, "queries: without a token")?,
        }
        writeln!(f, "flush: after {} or {}", self.memtable, self.flush_every)?;
        match self.retention.days {
            Some(days) => write!(f, "retention: {days} days")?,
            None => write!(f, "retention: forever")?,
        }
        match self.retention.bytes {
            Some(bytes) => writeln!(f, ", at most {}", Bytes::new(bytes))?,
            None => writeln!(f, ", of any size")?,
        }
        let Some(Tail { after_days, slowest, sample }) = self.tail else { return Ok(()) };
        let slowest = percent(slowest.get());
        write!(f, "tail: after {after_days} days, traces with errors, the slowest {slowest} ")?;
        writeln!(f, "and one in {sample} of the others")
    }
}

fn otlp(s: &mut Section<'_>) -> OtlpConfig {
    let mut addresses: Vec<SocketAddr> = s.values(
        "addresses",
        "Addresses to listen on, each for gRPC and HTTP; without any, 127.0.0.1:4317 and 127.0.0.1:4318.",
    );
    if addresses.is_empty() {
        addresses = curtail_ingest::Config::default().addresses;
    }
    OtlpConfig {
        addresses,
        tls: ServerTls::read(s),
        tokens_file: s.field("tokens_file", TOKENS_FILE).optional(),
        allow_origins: s.values(
            "allow_origins",
            "Origins whose web pages may send data (CORS): scheme, host and port, or * for all origins.",
        ),
    }
}

fn api(s: &mut Section<'_>) -> ApiConfig {
    ApiConfig {
        address: s
            .field("address", "Address to listen on.")
            .default(SocketAddr::from((Ipv4Addr::LOCALHOST, 3200))),
        tls: ServerTls::read(s),
        tokens_file: s.field("tokens_file", TOKENS_FILE).optional(),
        limits: curtail_api::Limits {
            trace_spans: s
                .field("trace_spans_max", "Maximum number of spans of a trace in a response.")
                .at_least(1)
                .default(1_000_000),
            response_bytes: s
                .field("response_max", "Maximum size of a response.")
                .range(Bytes::from_kib(1 << 10)..=Bytes::from_kib(64 << 20))
                .default(Bytes::from_kib(1 << 20))
                .as_len(),
        },
        query_threads: s
            .field(
                "query_threads",
                "Number of threads that run queries, with a low priority; absent: one for each core. One query uses all threads. explain and predict use further threads, one for each core, one question at a time.",
            )
            .range(1..=1_024)
            .optional(),
    }
}

fn retention(s: &mut Section<'_>) -> Retention {
    let days: u32 = s
        .field("days", "Number of days to keep rows after the day of their arrival; 0: forever.")
        .at_most(36_500)
        .default(30);
    let size: Option<Bytes> = s
        .field(
            "size",
            "Maximum size of all tables; the server deletes the oldest runs first. Absent: no maximum.",
        )
        .at_least(Bytes::from_kib(1 << 20))
        .optional();
    Retention { days: Some(days).filter(|days| *days > 0), bytes: size.map(Bytes::get) }
}

fn tail(s: &mut Section<'_>) -> Tail {
    let percent = Ratio::new(0.01).expect("a ratio");
    let after_days = s
        .field(
            "after_days",
            "Age of a day, in days, from which the server keeps only these traces of it.",
        )
        .at_most(36_500)
        .required();
    let slowest = s
        .field(
            "slowest_ratio",
            "Share of the traces of each operation to keep because they are the slowest.",
        )
        .default(percent);
    let sample = s
        .field(
            "sample_ratio",
            "Share of all other traces to keep as a sample: one in N, where N is a whole number.",
        )
        .range(Ratio::new(SAMPLE_MIN).expect("a ratio")..=Ratio::ONE)
        .default(percent);
    Tail { after_days, slowest, sample: one_in(sample) }
}

const TOKENS_FILE: &str = "File of bearer tokens, which clients must present; absent: clients need no token. Each line has one token, or a token, a space and the tenant of the token. # begins a comment line.";

/// Minimum of `tail.sample_ratio`: one in a billion.
const SAMPLE_MIN: f64 = 1e-9;

/// Returns `N` if `ratio` means a sample of one in `N`.
fn one_in(ratio: Ratio) -> NonZeroU32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a cast from float to integer saturates"
    )]
    let one_in = (1.0 / ratio.get().max(SAMPLE_MIN)).round() as u32;
    NonZeroU32::new(one_in).unwrap_or(NonZeroU32::MIN)
}

#[cfg(test)]
mod tests {
    use super::{Config, one_in};
    use curtail_units::Ratio;

    fn errors(text: &str) -> String {
        Config::from_yaml("f", text, &[]).expect_err("there is an error").to_string()
    }

    #[test]
    fn every_key_has_a_default() {
        let config = Config::from_yaml("f", "{}", &[]).expect("defaults");
        assert_eq!(config.otlp.addresses.len(), 2);
        assert_eq!((config.retention.days, config.tail), (Some(30), None));
    }

    #[test]
    fn a_set_changes_the_file() {
        let sets = ["otlp.addresses=[\"127.0.0.1:1\"]".to_owned(), "retention.days=0".to_owned()];
        let config = Config::from_yaml("f", "retention: {days: 7}", &sets).expect("valid");
        assert_eq!(config.otlp.addresses, ["127.0.0.1:1".parse().expect("an address")]);
        assert_eq!(config.retention.days, None);
    }

    #[test]
    fn errors_name_the_key_and_what_was_expected() {
        let of_values = errors("flush_every: 1ms\notlp: {allow_origins: [shop.example]}\n");
        let of_sections = errors("data: s3://a\nretention: {days: 7}\ntail: {after_days: 7}\n");
        for (errors, part) in [
            (&of_values, "f:1:14: flush_every: 1ms is out of range"),
            (&of_values, "f:2:24: otlp.allow_origins[0]: shop.example is text: expected an origin"),
            (&of_sections, "f:1:7: data: s3://a is a URL: expected a folder"),
            (
                &of_sections,
                "f:3:20: tail.after_days: 7 days, but rows are kept for 7 days: expected fewer",
            ),
        ] {
            assert!(errors.contains(part), "{part}: {errors}");
        }
    }

    #[test]
    fn a_sample_is_one_in_a_whole_number() {
        for (ratio, expected) in
            [(0.01, 100), (0.03, 33), (1.0, 1), (0.6, 2), (0.000_001, 1_000_000)]
        {
            let ratio = Ratio::new(ratio).expect("a ratio");
            assert_eq!(u32::from(one_in(ratio)), expected);
        }
        let errors = errors("tail: {after_days: 1, sample_ratio: 0}");
        assert!(errors.contains("tail.sample_ratio: 0 is out of range"), "{errors}");
    }

    #[test]
    fn a_folder_may_be_a_url_and_the_tables_must_be_known() {
        let config = Config::from_yaml("f", "data: file:///var/lib/curtail", &[]).expect("valid");
        assert_eq!(config.data, std::path::Path::new("/var/lib/curtail"));
        let errors = errors("tables: s4://bucket");
        assert!(
            errors.contains("f:1:9: tables: s4://bucket: expected a folder or a URL"),
            "{errors}"
        );
    }
}

//! The keys of `access_log`: which requests are logged, where, and in which format.

use crate::access_log::format::{Format, header_name};
use curtail_config::Section;
use curtail_units::{Duration, Ratio};
use std::path::{Path, PathBuf};

/// Maximum number of request headers in a line.
const HEADERS_MAX: usize = 32;

/// The access log.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLogConfig {
    /// The file, to which lines are appended; `-` or `stdout`: standard output.
    pub file: PathBuf,
    /// The format of a line.
    pub(crate) format: Format,
    /// Whether paths include their query.
    pub query: bool,
    /// The request headers in a line of JSON, in lower case.
    pub headers: Vec<String>,
    /// The share of the requests that are logged even if they are neither slow nor failed.
    pub sample: Ratio,
    /// Requests with a longer duration are logged.
    pub slower_than: Option<Duration>,
}

impl AccessLogConfig {
    /// Whether lines go to standard output.
    #[must_use]
    pub fn is_stdout(&self) -> bool {
        Self::names_stdout(&self.file)
    }

    pub(crate) fn names_stdout(file: &Path) -> bool {
        file == Path::new("-") || file == Path::new("stdout")
    }
}

pub(super) fn read(s: &mut Section<'_>) -> AccessLogConfig {
    let file = s
        .field("file", "File to which lines are appended; `stdout` or `-`: standard output. Each reload opens the file again.")
        .required();
    let format: String = s
        .field(
            "format",
            "Format of a line: `json`, or a text with fields in braces, such as \"{client} {method} {path} {status} {duration_ms}\". `{header.NAME}` is a request header; `{{` and `}}` are braces.",
        )
        .default("json".to_owned());
    let format = Format::parse(&format).unwrap_or_else(|message| {
        s.value_error("format", message);
        Format::Json
    });
    let query = s
        .field("query", "Whether paths include their query, which may contain secrets.")
        .default(false);
    let headers: Vec<String> =
        s.values("headers", "Request headers in a line of `format: json`, such as user-agent.");
    s.check_len("headers", headers.len(), HEADERS_MAX);
    if format != Format::Json && !headers.is_empty() {
        let text = "only for format: json; write {header.user-agent} in a text";
        s.conflict("headers", &["format"], text);
    }
    let headers = headers.iter().enumerate().map(|(index, name)| {
        header_name(name).unwrap_or_else(|message| {
            s.value_error(&format!("headers[{index}]"), message);
            String::new()
        })
    });
    let headers: Vec<_> = headers.collect();
    for (index, name) in headers.iter().enumerate() {
        if !name.is_empty() && headers[..index].contains(name) {
            let text = format!("{name} is there twice");
            s.value_error(&format!("headers[{index}]"), text);
        }
    }
    let slower_than = s
        .field(
            "slower_than",
            "Duration above which requests are logged, whatever `sample` is; absent: none.",
        )
        .optional();
    let sample: Option<Ratio> = s
        .field(
            "sample",
            "Share of the other requests that are logged. Failed requests are always logged. Absent: all (1), or none (0) if `slower_than` is set.",
        )
        .optional();
    let default = if slower_than.is_some() { Ratio::ZERO } else { Ratio::ONE };
    AccessLogConfig { file, format, query, headers, sample: sample.unwrap_or(default), slower_than }
}

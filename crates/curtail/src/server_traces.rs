//! The traces of a server that `curtail explain` and `curtail predict` ask about.

use crate::exit;
use crate::output::{Format, print_message};
use crate::query::request::{DEFAULT_SERVER, QueryRequest, send_for_text};
use crate::server_access::ServerAccessArgs;
use clap::Args;
use std::process::ExitCode;

/// The flags of [`ServerTracesArgs`], which files have no use for.
pub(crate) const SERVER_TRACES_FLAGS: [&str; 9] = [
    "service",
    "operation",
    "since",
    "until",
    "server",
    "tenant",
    "token_file",
    "ca_file",
    "insecure",
];

#[derive(Args, Clone, Debug)]
pub(crate) struct ServerTracesArgs {
    /// Traces of a server that begin at this service.
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,
    /// Only traces that begin with this operation.
    #[arg(long, value_name = "NAME", requires = "service")]
    operation: Option<String>,
    /// Only traces that began within this time before now: 90s, 1h, 7d [default: 1h].
    #[arg(long, value_name = "TIME", requires = "service")]
    since: Option<String>,
    /// Only traces that began more than this time before now: 30m, 1h [default: 0s].
    #[arg(long, value_name = "TIME", requires = "service")]
    until: Option<String>,
    /// URL of the query API.
    #[arg(long, value_name = "URL", default_value = DEFAULT_SERVER)]
    server: String,
    #[command(flatten)]
    access: ServerAccessArgs,
}

impl ServerTracesArgs {
    /// The access to the server.
    pub(crate) const fn access(&self) -> &ServerAccessArgs {
        &self.access
    }

    /// The URL of the query API.
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// Sends the question to the server, and returns its response; or the exit code, after a message, if the server found
    /// nothing.
    pub(crate) fn ask(
        &self,
        path: &str,
        parameters: &[(&str, Option<String>)],
        format: Format,
    ) -> anyhow::Result<Result<String, ExitCode>> {
        let own = [
            ("service", &self.service),
            ("operation", &self.operation),
            ("since", &self.since),
            ("until", &self.until),
        ];
        let others = parameters.iter().map(|(name, value)| (*name, value));
        let mut request = QueryRequest::new(path);
        for (name, value) in own.into_iter().chain(others) {
            if let Some(value) = value {
                request = request.with(name, value);
            }
        }
        let accept = match format {
            Format::Json => "application/json",
            Format::Table => "text/plain",
        };
        let response = send_for_text(&self.server, &self.access, &request, accept)?;
        Ok(response.map_err(|not_found| {
            print_message(&not_found);
            ExitCode::from(exit::NO)
        }))
    }
}

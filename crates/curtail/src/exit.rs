//! Exit codes of all commands.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | success; also if a signal stopped a service, or the reader of the output closed it |
//! | 1 | the result is negative: a void run, nothing found, skipped input, a replay that differs |
//! | 2 | usage or configuration: the caller can correct it |
//! | 3 | environment: an address in use, a file that cannot be read, a refused thread |
//! | 4 | a bug of curtail |
//! | 130 | interrupted (SIGINT, SIGTERM) before the result |
//!
//! Only this file maps errors to codes. An unknown error is a bug of curtail.

use crate::bench::RecordedError;
use crate::config::ConfigCheckError;
use crate::query::QueryRejected;
use curtail_api::NotStarted;
use curtail_config::ConfigErrors;
use curtail_generator::arrivals::ArrivalsError;
use curtail_generator::target::TargetError;
use curtail_generator::workload::PrepareError;
use curtail_http::client::ClientError;
use curtail_http::tls::TlsError;
use curtail_objects::OpenError;
use curtail_proxy::log::LogLevelsError;
use curtail_report::file::ReadError;
use curtail_report::merge::MergeError;
use curtail_suite::SuiteError;
use curtail_text::describe_error;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

pub(crate) const NO: u8 = 1;
const CONFIG: u8 = 2;
const ENVIRONMENT: u8 = 3;
const OURS: u8 = 4;
/// Interrupted: 128 plus the number of SIGINT, as in shells.
pub(crate) const INTERRUPTED: u8 = 130;

pub(crate) fn usage_error(message: &str) -> anyhow::Error {
    QueryRejected(message.to_owned()).into()
}

/// Returns the exit code of a command that returned `result`; prints an error.
pub(crate) fn code(result: anyhow::Result<ExitCode>) -> ExitCode {
    let error = match result {
        Ok(code) => return code,
        Err(error) => error,
    };
    let code = code_of(&error);
    if code != 0 {
        let ours = if code == OURS { "\nThis is a bug of curtail: please report it." } else { "" };
        let _written = writeln!(std::io::stderr(), "{}{ours}", describe_error(error.as_ref()));
    }
    ExitCode::from(code)
}

/// Returns the exit code of a command that panicked; the panic has already been printed.
pub(crate) fn panicked() -> ExitCode {
    let _written = writeln!(std::io::stderr(), "This is a bug of curtail: please report it.");
    ExitCode::from(OURS)
}

fn code_of(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return if io.kind() == ErrorKind::BrokenPipe { 0 } else { ENVIRONMENT };
        }
        let is_of_usage = cause.is::<ConfigErrors>()
            || cause.is::<QueryRejected>()
            || cause.is::<MergeError>()
            || cause.is::<RecordedError>()
            || cause.is::<LogLevelsError>()
            || cause.is::<ArrivalsError>()
            || cause.is::<PrepareError>()
            || cause.is::<TargetError>();
        let is_missing = matches!(cause.downcast_ref(), Some(NotStarted::Missing(_)));
        let is_url = matches!(cause.downcast_ref(), Some(OpenError::Url(_)));
        if matches!(cause.downcast_ref(), Some(curtail_server::StartError::Panicked(_))) {
            return OURS;
        }
        if is_of_usage || is_missing || cause.is::<clap::Error>() || is_url {
            return CONFIG;
        }
        let is_of_environment = cause.is::<curtail_testbed::StartError>()
            || cause.is::<curtail_proxy::StartError>()
            || cause.is::<ConfigCheckError>()
            || cause.is::<curtail_server::StartError>()
            || cause.is::<ReadError>()
            || cause.is::<SuiteError>()
            || cause.is::<OpenError>()
            || cause.is::<ClientError>()
            || cause.is::<TlsError>();
        if is_of_environment {
            return ENVIRONMENT;
        }
    }
    OURS
}

#[cfg(test)]
mod tests {
    use super::code_of;
    use anyhow::Context as _;
    use curtail_generator::target::TargetError;
    use curtail_text::describe_error;
    use std::io::{Error, ErrorKind};

    #[test]
    fn a_cause_is_named_once() {
        let cause = || Error::new(ErrorKind::NotFound, "no such name");
        let lookup = TargetError::Lookup { host: "a".to_owned(), source: cause() };
        let named = anyhow::Error::new(lookup).context("the load");
        let expected = "the load: the name \"a\" was not looked up: no such name";
        assert_eq!(describe_error(named.as_ref()), expected);
        let not_named = anyhow::Error::new(cause()).context("a is not found");
        assert_eq!(describe_error(not_named.as_ref()), "a is not found: no such name");
    }

    #[test]
    fn each_kind_of_error_has_its_code() {
        let errors = curtail_config::read("f", "a: 1", |s| s.error("a", "no good"));
        let config = anyhow::Error::new(errors.expect_err("there is one")).context("reading f");
        assert_eq!(code_of(&config), 2);
        let missing = Err::<(), _>(Error::from(ErrorKind::NotFound)).context("f");
        assert_eq!(code_of(&missing.expect_err("not found")), 3);
        let unreadable = curtail_report::file::from_json(std::path::Path::new("f"), b"{}");
        assert_eq!(code_of(&unreadable.expect_err("no results").into()), 3);
        let merged = curtail_report::merge(Vec::new());
        assert_eq!(code_of(&merged.expect_err("nothing").into()), 2);
        assert_eq!(code_of(&Error::from(ErrorKind::BrokenPipe).into()), 0);
        assert_eq!(code_of(&anyhow::anyhow!("nobody foresaw this")), 4);
    }
}

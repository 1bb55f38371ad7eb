//! The log of a command: lines on standard error, with the levels that `CURTAIL_LOG` sets.
//!
//! Levels are words separated by commas, such as `warn,curtail_proxy=debug`. A level without a target applies to all
//! targets that the variable does not name. Without such a level, the level of the command applies to them, so naming one
//! target hides no errors of others.

use std::io::{IsTerminal as _, stderr};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{Directive, LevelFilter};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, fmt};

/// The environment variable with the levels.
const VARIABLE: &str = "CURTAIL_LOG";

/// A part of the levels is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{origin}{part:?}: expected error, warn, info, debug, trace, off or TARGET=LEVEL, separated by commas"
)]
pub struct LogLevelsError {
    /// `CURTAIL_LOG: `, or nothing for a key of a configuration.
    origin: &'static str,
    part: String,
}

/// The log of a service, whose levels can change.
pub struct ServiceLog {
    replace: Box<dyn Fn(EnvFilter)>,
}

impl std::fmt::Debug for ServiceLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceLog").finish_non_exhaustive()
    }
}

impl ServiceLog {
    /// Sets the levels; absent: those of `CURTAIL_LOG`.
    ///
    /// # Errors
    /// When the levels are invalid; the old ones stay.
    pub fn set_levels(&self, levels: Option<&str>) -> Result<(), LogLevelsError> {
        (self.replace)(service_filter(levels)?);
        Ok(())
    }
}

/// Sends the log of a service to standard error, from `info` on: text on a terminal, JSON elsewhere.
///
/// # Errors
/// When `CURTAIL_LOG` is invalid.
pub fn log_service() -> Result<ServiceLog, LogLevelsError> {
    let log = fmt().with_writer(stderr).with_env_filter(service_filter(None)?);
    // A filter that cannot be replaced any more belongs to a logger that has ended.
    let replace: Box<dyn Fn(EnvFilter)> = if stderr().is_terminal() {
        let log = log.with_target(false).with_filter_reloading();
        let handle = log.reload_handle();
        log.init();
        Box::new(move |filter| handle.reload(filter).unwrap_or_default())
    } else {
        let log = log.json().map_event_format(WithPid).with_filter_reloading();
        let handle = log.reload_handle();
        log.init();
        Box::new(move |filter| handle.reload(filter).unwrap_or_default())
    };
    Ok(ServiceLog { replace })
}

/// Lines of JSON with the process ID: at a restart, two processes write to one log.
struct WithPid<F>(F);

impl<S, N, F> FormatEvent<S, N> for WithPid<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        let pid = format!("{{\"pid\":{},", std::process::id());
        writer.write_str(&line.replacen('{', &pid, 1))
    }
}

/// Checks the levels of a service.
///
/// # Errors
/// When the levels are invalid.
pub fn check_levels(levels: &str) -> Result<(), LogLevelsError> {
    service_filter(Some(levels)).map(drop)
}

fn service_filter(levels: Option<&str>) -> Result<EnvFilter, LogLevelsError> {
    levels
        .map_or_else(|| self::levels(LevelFilter::INFO), |levels| parse(LevelFilter::INFO, levels))
}

/// Sends the warnings and errors of a command with results to standard error, as text.
///
/// # Errors
/// When `CURTAIL_LOG` is invalid.
pub fn log_problems() -> Result<(), LogLevelsError> {
    let log = fmt().with_writer(stderr).with_env_filter(levels(LevelFilter::WARN)?);
    log.with_target(false).init();
    Ok(())
}

fn levels(default: LevelFilter) -> Result<EnvFilter, LogLevelsError> {
    let levels = std::env::var_os(VARIABLE).unwrap_or_default();
    parse(default, &levels.to_string_lossy())
        .map_err(|error| LogLevelsError { origin: "CURTAIL_LOG: ", ..error })
}

fn parse(default: LevelFilter, levels: &str) -> Result<EnvFilter, LogLevelsError> {
    let mut filter = EnvFilter::default().add_directive(default.into());
    for part in levels.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let directive = directive(part);
        let error = || LogLevelsError { origin: "", part: part.to_owned() };
        let directive = directive.ok_or_else(error)?;
        filter = filter.add_directive(directive);
    }
    Ok(filter)
}

/// Parses `LEVEL` or `TARGET=LEVEL`. The parser of `tracing` would take any other word for a target, at every level.
fn directive(part: &str) -> Option<Directive> {
    let (target, level) = part.rsplit_once('=').map_or((None, part), |(t, l)| (Some(t), l));
    let is_valid = !level.is_empty() && target.is_none_or(|target| !target.is_empty());
    let level: LevelFilter = is_valid.then(|| level.parse().ok())??;
    target.map_or_else(|| Some(level.into()), |_| part.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::{LevelFilter, WithPid, fmt, parse};
    use std::sync::Arc;

    #[test]
    fn levels_apply_to_their_targets_and_the_default_to_all_others() {
        for (levels, filter) in [
            ("", "info"),
            (" , ", "info"),
            ("warn", "warn"),
            ("DEBUG", "debug"),
            ("off", "off"),
            ("curtail_proxy=debug", "curtail_proxy=debug,info"),
            ("error, curtail_objects=off", "curtail_objects=off,error"),
            ("curtail_proxy::root=trace,warn", "curtail_proxy::root=trace,warn"),
        ] {
            let parsed = parse(LevelFilter::INFO, levels).expect(levels);
            assert_eq!(parsed.to_string(), filter, "{levels:?}");
        }
    }

    #[test]
    fn a_line_of_json_has_the_process_id() {
        let (lines, writer) = std::io::pipe().expect("a pipe");
        let log = fmt().json().map_event_format(WithPid).with_writer(Arc::new(writer)).finish();
        tracing::subscriber::with_default(log, || tracing::error!(upstream = "s", "{{"));
        let line: serde_json::Value = serde_json::from_reader(lines).expect("JSON");
        assert_eq!(line["pid"], std::process::id());
        assert_eq!(line["fields"]["upstream"], "s");
    }

    #[test]
    fn anything_that_is_neither_a_level_nor_a_target_with_a_level_is_an_error() {
        for (levels, part) in [
            ("warning", "warning"),
            ("curtail_proxy", "curtail_proxy"),
            ("info,curtail_proxy=debgu", "curtail_proxy=debgu"),
            ("curtail_proxy=", "curtail_proxy="),
            ("=info", "=info"),
            ("info;warn", "info;warn"),
            ("\u{fffd}", "\u{fffd}"),
        ] {
            let error = parse(LevelFilter::INFO, levels).expect_err(levels);
            assert_eq!(error.part, part);
        }
    }
}

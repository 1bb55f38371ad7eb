//! The log of a command: lines on standard error, with the levels that `CURTAIL_LOG` sets.
//!
//! Levels are words separated by commas, such as `warn,curtail_proxy=debug`. A target without a level of its own has the
//! level that stands alone, or else the command's, so a level for one target never hides the errors of others.

use std::io::{IsTerminal as _, stderr};
use tracing_subscriber::filter::{Directive, LevelFilter};
use tracing_subscriber::{EnvFilter, fmt};

/// The environment variable.
const VARIABLE: &str = "CURTAIL_LOG";

/// The value of `CURTAIL_LOG` is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{VARIABLE}: {part:?}: expected error, warn, info, debug, trace, off or TARGET=LEVEL, separated by commas"
)]
pub struct LogLevelsError {
    part: String,
}

/// Sends the log of a service to standard error, from `info` on: text on a terminal, JSON elsewhere.
///
/// # Errors
/// When `CURTAIL_LOG` is invalid.
pub fn log_service() -> Result<(), LogLevelsError> {
    let log = fmt().with_writer(stderr).with_env_filter(levels(LevelFilter::INFO)?);
    if stderr().is_terminal() {
        log.with_target(false).init();
    } else {
        log.json().init();
    }
    Ok(())
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
    parse(default, &std::env::var_os(VARIABLE).unwrap_or_default().to_string_lossy())
}

fn parse(default: LevelFilter, levels: &str) -> Result<EnvFilter, LogLevelsError> {
    let mut filter = EnvFilter::default().add_directive(default.into());
    for part in levels.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let directive = directive(part).ok_or_else(|| LogLevelsError { part: part.to_owned() })?;
        filter = filter.add_directive(directive);
    }
    Ok(filter)
}

/// `LEVEL` or `TARGET=LEVEL`. The parser of directives takes any other word for a target, at every level.
fn directive(part: &str) -> Option<Directive> {
    let (target, level) = part.rsplit_once('=').map_or((None, part), |(t, l)| (Some(t), l));
    let is_valid = !level.is_empty() && target.is_none_or(|target| !target.is_empty());
    let level: LevelFilter = is_valid.then(|| level.parse().ok())??;
    target.map_or_else(|| Some(level.into()), |_| part.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::{LevelFilter, parse};

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

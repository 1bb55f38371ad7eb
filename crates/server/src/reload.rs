//! Applies a new configuration to a running server, completely or not at all.
//!
//! A reload applies `retention`, `tail`, `flush_every` and the limits of the query API, and reads certificates and
//! tokens again. The caller applies `log`. All other changes need a restart, such as a new or removed section `tls`.

use crate::listener_security::ListenerSecurity;
use crate::{Config, StartError};
use arc_swap::ArcSwap;
use curtail_api::Limits;
use curtail_metrics::{CounterVec, ReloadResult};
use std::sync::Arc;

/// Why a new configuration is not applied.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The configuration changes keys that the server reads only at its start.
    #[error("{} changed, which needs a restart", keys.join(", "))]
    NeedsRestart {
        /// The keys.
        keys: Vec<&'static str>,
    },
    /// A file of the new configuration cannot be used.
    #[error(transparent)]
    File(#[from] StartError),
}

/// The parts of a running server that a reload changes.
#[derive(Clone, Debug)]
pub(crate) struct ReloadableParts {
    pub(crate) config: Arc<ArcSwap<Config>>,
    /// The certificates and tokens of the receivers and of the query API.
    pub(crate) security: [ListenerSecurity; 2],
    pub(crate) limits: Arc<ArcSwap<Limits>>,
    pub(crate) counters: Arc<CounterVec<ReloadResult>>,
}

impl ReloadableParts {
    /// Creates the parts for a start; reads the files that the configuration names.
    pub(crate) fn new(config: Config) -> Result<Self, StartError> {
        Ok(Self {
            security: config.security_files()?.map(ListenerSecurity::new),
            limits: Arc::new(ArcSwap::from_pointee(config.api.limits)),
            config: Arc::new(ArcSwap::from_pointee(config)),
            counters: Arc::default(),
        })
    }

    pub(crate) fn apply(&self, config: Config) -> Result<(), ReloadError> {
        let keys = keys_that_need_a_restart(&self.config.load(), &config);
        if !keys.is_empty() {
            return Err(ReloadError::NeedsRestart { keys });
        }
        let files = config.security_files()?;
        for (security, files) in self.security.iter().zip(files) {
            security.replace(files);
        }
        self.limits.store(Arc::new(config.api.limits));
        self.config.store(Arc::new(config));
        Ok(())
    }
}

fn keys_that_need_a_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let changed = [
        ("data", old.data != new.data),
        ("tables", old.tables != new.tables),
        ("memtable", old.memtable != new.memtable),
        ("otlp.addresses", old.otlp.addresses != new.otlp.addresses),
        ("otlp.tls", old.otlp.tls.is_some() != new.otlp.tls.is_some()),
        ("otlp.allow_origins", old.otlp.allow_origins != new.otlp.allow_origins),
        ("api.address", old.api.address != new.api.address),
        ("api.query_threads", old.api.query_threads != new.api.query_threads),
        ("api.tls", old.api.tls.is_some() != new.api.tls.is_some()),
    ];
    changed.into_iter().filter_map(|(key, is_changed)| is_changed.then_some(key)).collect()
}

#[cfg(test)]
mod tests {
    use super::{ReloadError, ReloadableParts};
    use crate::Config;

    fn config(text: &str) -> Config {
        Config::from_yaml("f", text, &[]).expect("valid")
    }

    #[test]
    fn retention_limits_and_intervals_are_applied() {
        let parts = ReloadableParts::new(config("{}")).expect("no files");
        let new = config(
            "{retention: {days: 7}, flush_every: 5s, tail: {after_days: 1}, api: {trace_spans_max: 9}}",
        );
        parts.apply(new.clone()).expect("nothing needs a restart");
        assert_eq!(**parts.config.load(), new);
        assert_eq!(parts.limits.load().trace_spans, 9);
    }

    #[test]
    fn a_change_that_needs_a_restart_is_rejected_as_a_whole_and_all_its_keys_are_named() {
        let parts = ReloadableParts::new(config("{}")).expect("no files");
        let new = config("{retention: {days: 7}, memtable: 1MiB, api: {address: '127.0.0.1:1'}}");
        let error = parts.apply(new).expect_err("two keys need a restart");
        assert_eq!(error.to_string(), "memtable, api.address changed, which needs a restart");
        assert_eq!(parts.config.load().retention.days, Some(30));
    }

    #[test]
    fn an_unreadable_file_changes_nothing() {
        let parts = ReloadableParts::new(config("{}")).expect("no files");
        let new = config("{retention: {days: 7}, api: {tokens_file: /nowhere/tokens}}");
        let error = parts.apply(new).expect_err("there is no such file");
        assert!(matches!(error, ReloadError::File(_)), "{error}");
        assert_eq!(parts.config.load().retention.days, Some(30));
    }
}

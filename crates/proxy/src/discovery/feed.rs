//! The feed of a source that reports changes: from its statements to the replicas, not faster than they can be applied.
//!
//! A session reads from its source and calls [`Feed::set`] for each change, or [`Feed::confirm`] for a sign of life.
//! Changes that follow each other are applied together: a rollout of a thousand pods moves the replicas some times,
//! not a thousand times. A source that floods costs the thread of discovery, and no lock that a request needs.
//! **Limits**: a feed keeps one statement; [`ENDPOINTS_MAX`].

use super::control_plane::FileReader;
use super::endpoint_list::{Part, PartName};
use super::{Discovery, Response, schedule};
use crate::worker::Shared;
use curtail_policy::REPLICAS_MAX;
use curtail_units::Instant;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant as Deadline;

/// Minimum time between two changes of the replicas.
const APPLY_INTERVAL: Duration = Duration::from_millis(100);

/// A session that lasted this long was no failure of the source: the next one begins without a longer wait.
const STABLE_MIN: Duration = Duration::from_secs(30);

/// Maximum number of endpoints that a source may state, far more than an upstream uses.
pub(super) const ENDPOINTS_MAX: usize = 16 * REPLICAS_MAX;

/// A statement of a source: parts that can fail apart.
pub(super) type Parts = Vec<(PartName, Result<Part, String>)>;

/// The feed of one session.
#[derive(Debug)]
pub(super) struct Feed {
    shared: Arc<Shared>,
    discovery: Arc<Discovery>,
    /// The last statement, and what it has in words.
    statement: Option<(Parts, String)>,
    began: Deadline,
    is_pending: bool,
    last_applied: Option<Deadline>,
    /// The number of duplicates that the log has last named.
    logged_duplicates: usize,
}

impl Feed {
    pub(super) fn new(shared: Arc<Shared>, discovery: Arc<Discovery>) -> Self {
        let began = Deadline::now();
        Self {
            shared,
            discovery,
            statement: None,
            began,
            is_pending: false,
            last_applied: None,
            logged_duplicates: 0,
        }
    }

    pub(super) const fn discovery(&self) -> &Arc<Discovery> {
        &self.discovery
    }

    pub(super) fn files(&self) -> FileReader {
        self.discovery.files.clone()
    }

    /// A number from 0 to 1 that differs between proxies.
    pub(super) fn jitter(&self) -> f64 {
        self.discovery.lock().rng.unit()
    }

    /// Takes what the source now states as a whole.
    pub(super) fn set(&mut self, parts: Parts, summary: String) {
        self.statement = Some((self.without_other_families(parts), summary));
        self.is_pending = true;
        self.confirm();
        if self.next_apply().is_some_and(|at| at <= Deadline::now()) {
            self.apply();
        }
    }

    /// Logs that a list has duplicates, unless its last one had as many.
    pub(super) fn report_duplicates(&mut self, duplicates: usize) {
        if duplicates > 0 && duplicates != self.logged_duplicates {
            let source = &self.discovery.config;
            let upstream = schedule::find_upstream(&self.shared.snapshot.load(), &self.discovery);
            let upstream = upstream.as_ref().map(|upstream| &*upstream.name);
            tracing::warn!(upstream, %source, duplicates, "targets are duplicates: each address is one replica");
        }
        self.logged_duplicates = duplicates;
    }

    /// The source has said something else than endpoints: what it stated is still so.
    pub(super) fn confirm(&self) {
        self.discovery.confirm(self.now());
    }

    /// The source states something that cannot be used; what it stated before stays, and the session goes on.
    pub(super) fn fail(&mut self, error: String) {
        self.flush();
        self.confirm();
        self.statement = None;
        self.send(Response { parts: Err(error), summary: None, is_last: false });
    }

    /// The session has ended.
    pub(super) fn end(mut self, error: String) {
        self.flush();
        self.confirm();
        if self.began.elapsed() >= STABLE_MIN {
            self.discovery.lock().list.forget_failures();
        }
        self.send(Response { parts: Err(error), summary: None, is_last: true });
    }

    /// Waits for the source, and meanwhile applies what it has stated.
    pub(super) async fn wait_for<T>(&mut self, source: impl Future<Output = T>) -> T {
        let mut source = pin!(source);
        loop {
            let next = self.next_apply();
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = due => self.apply(),
                output = &mut source => return output,
            }
        }
    }

    /// When the last statement is to be applied: if it is new, or when its lack of endpoints has lasted.
    fn next_apply(&self) -> Option<Deadline> {
        let earliest = self.last_applied.map_or_else(Deadline::now, |at| at + APPLY_INTERVAL);
        if self.is_pending {
            return Some(earliest);
        }
        self.statement.as_ref()?;
        let dns = &self.shared.snapshot.load().config.dns;
        let limits = self.discovery.limits(dns);
        let end = self.discovery.empty_end(&limits)?;
        Some(self.shared.process_state.clock.deadline(end)?.max(earliest))
    }

    fn apply(&mut self) {
        let Some((parts, summary)) = &self.statement else { return };
        let (parts, summary) = (Ok(parts.clone()), Some(summary.clone()));
        self.is_pending = false;
        self.last_applied = Some(Deadline::now());
        self.confirm();
        self.send(Response { parts, summary, is_last: false });
    }

    fn flush(&mut self) {
        if self.is_pending {
            self.apply();
        }
    }

    fn send(&self, response: Response) {
        schedule::apply(&self.shared, &self.discovery, response);
    }

    fn without_other_families(&self, mut parts: Parts) -> Parts {
        let families = self.discovery.config.addresses;
        for part in parts.iter_mut().filter_map(|(_, part)| part.as_mut().ok()) {
            part.endpoints.retain(|one| families.has(&one.address));
        }
        parts
    }

    fn now(&self) -> Instant {
        self.shared.process_state.clock.now()
    }
}

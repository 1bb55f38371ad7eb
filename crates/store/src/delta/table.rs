//! A table on an object store, and its commits. [`log`] reads the log of the table, [`upkeep`] keeps the log small.

mod log;
mod upkeep;

use super::action::{Action, Add, CommitInfo, Metadata, Protocol, Remove, Transaction};
use super::checkpoint::{self, CheckpointError};
use super::objects::{Objects, StoreError, WriteError};
use super::snapshot::{Refused, Snapshot};
use bytes::Bytes;
use log::{Log, State};
use object_store::ObjectStore;
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub use upkeep::UpkeepError;

/// Maximum number of lost races of one commit.
const ATTEMPTS_MAX: usize = 100;

/// Maximum number of conflicts of one put without a visible commit.
const CONFLICTS_MAX: usize = 10;

/// Our name in commits and checkpoints.
pub(super) const ENGINE: &str = concat!("curtail/", env!("CARGO_PKG_VERSION"));

/// The last known state of a table. A clone commits by itself, like another process.
#[derive(Clone, Debug)]
pub struct Table {
    log: Log,
    state: State,
    /// The last time at which the next number was known to be free: that of our last commit, or of the last check.
    committed_ms: Option<i64>,
}

/// The identity and the last version of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableVersion {
    /// The ID of the table: a UUID.
    pub id: String,
    /// The version of its last commit.
    pub version: u64,
}

/// The changes of a commit.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Change {
    /// Delta's name of the operation: `WRITE`, `OPTIMIZE`, `DELETE`.
    pub operation: &'static str,
    /// Added files, at new paths.
    pub add: Vec<Add>,
    /// Removed files.
    pub remove: Vec<Remove>,
    /// The positions of sources that the added rows reach.
    pub sources: Vec<SourceRange>,
    /// The new schema and properties of the table.
    pub metadata: Option<Metadata>,
}

/// The rows of a source (a log, or a partition of a topic) that a change commits: those after position `from`, up to
/// `to`. The change is committed only if `from` is the last committed position, so each row is committed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRange {
    /// The name of the source; Delta's `appId`.
    pub source: String,
    /// The position of the last row before; 0 at the beginning.
    pub from: u64,
    /// The position of the last row.
    pub to: u64,
}

impl SourceRange {
    /// The action in the table's log.
    fn action(&self, now_ms: i64) -> Action {
        let version = i64::try_from(self.to).expect("a position is a count of rows or segments");
        let app_id = self.source.clone();
        Action::Txn(Transaction { app_id, version, last_updated: Some(now_ms) })
    }
}

/// Why a table cannot be read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum OpenError {
    /// An operation on the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A line of a commit is invalid.
    #[error("{path}, line {line}, is no action of Delta")]
    Malformed {
        path: Path,
        line: usize,
        #[source]
        source: serde_json::Error,
    },
    /// An empty commit.
    #[error("{0} is empty: restore it from a backup; its rows would be missing otherwise")]
    Empty(Path),
    /// A commit of ours whose checksum does not match.
    #[error("{0} is damaged: its checksum does not match; restore it from a backup")]
    Checksum(Path),
    /// A table that lacks commits.
    #[error(
        "{root} is at version {found}, but this server last wrote version {known}: {missing} is \
        missing; restore it from a backup, or remove the files flushed-* of the server's log to \
        continue without its rows"
    )]
    Behind { root: Path, found: u64, known: u64, missing: Path },
    /// A table that is gone or has been replaced.
    #[error(
        "{root} is not the table that this server last wrote (ID {known}); restore that one, or \
        remove the files flushed-* of the server's log to continue with the other one"
    )]
    Another { root: Path, known: String },
    /// A checkpoint cannot be read, and nothing replaces it.
    #[error("{path} cannot be read")]
    Checkpoint {
        path: Path,
        #[source]
        source: CheckpointError,
    },
    /// The log begins with neither its first commit nor a checkpoint.
    #[error("the log of {0} begins with neither its first commit nor a checkpoint")]
    NoBeginning(Path),
    /// Commits are missing in between.
    #[error("the log of {root} goes up to {newest}, but commit {missing} is missing")]
    Gap { root: Path, missing: u64, newest: u64 },
    /// A later version of the protocol.
    #[error("{root} needs version {needed:?} of Delta's protocol, known is {known:?}", known = Protocol::OURS)]
    Protocol { root: Path, needed: Protocol },
}

/// Why a change was not committed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// The change is invalid now. The table was read again.
    #[error("the change is refused: {0}")]
    Refused(#[from] Refused),
    /// The log cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store failed. The commit may have succeeded.
    #[error(transparent)]
    Store(#[from] WriteError),
    /// Other writers were always first.
    #[error("others committed first {ATTEMPTS_MAX} times in a row")]
    Crowded,
}

impl Table {
    /// Opens a table, or creates it at `now_ms`, milliseconds since 1970; `id` identifies this commit.
    pub(crate) async fn create(
        store: Arc<dyn ObjectStore>,
        root: Path,
        metadata: Metadata,
        now_ms: i64,
        id: &str,
    ) -> Result<Self, CommitError> {
        let log = Log { objects: Objects::new(store), root };
        // An existing table may have lost its first commit to cleaning.
        if let Some(state) = log.begin().await? {
            return Ok(Self { log, state, committed_ms: None });
        }
        let actions = [Action::Protocol(Protocol::OURS), Action::MetaData(metadata)];
        let mut table = Self { log, state: State::default(), committed_ms: None };
        table.put(0, lines(("CREATE TABLE", now_ms, id), &actions)).await?;
        // Reads our commit, or that of a faster writer.
        let state = table.log.begin().await?;
        table.state = state.ok_or_else(|| OpenError::NoBeginning(table.log.root.clone()))?;
        Ok(table)
    }

    /// Opens a table; [`None`] where there is none.
    ///
    /// # Errors
    /// When the store fails, or the log cannot be read.
    pub async fn open(store: Arc<dyn ObjectStore>, root: Path) -> Result<Option<Self>, OpenError> {
        let log = Log { objects: Objects::new(store), root };
        let state = log.begin().await?;
        Ok(state.map(|state| Self { log, state, committed_ms: None }))
    }

    /// The ID and the last known version.
    pub(crate) fn committed(&self) -> TableVersion {
        let id = self.state.snapshot.metadata().map(|table| table.id.clone());
        TableVersion { id: id.unwrap_or_default(), version: self.state.version }
    }

    /// Checks that this is the known table, with all known commits.
    pub(crate) fn check(&self, known: &TableVersion) -> Result<(), OpenError> {
        let (root, found) = (self.log.root.clone(), self.committed());
        if found.id != known.id {
            return Err(OpenError::Another { root, known: known.id.clone() });
        }
        if found.version < known.version {
            let missing = self.log.commit_path(found.version + 1);
            let (found, known) = (found.version, known.version);
            return Err(OpenError::Behind { root, found, known, missing });
        }
        Ok(())
    }

    /// The last known state.
    #[must_use]
    pub const fn snapshot(&self) -> &Snapshot {
        &self.state.snapshot
    }

    /// The version of the last known commit.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.state.version
    }

    /// Makes an empty commit. Afterwards, a pending commit of a process that died either is part of the table or never
    /// will be, because its number is at most this one. `id` identifies this commit.
    pub(crate) async fn fence(&mut self, now_ms: i64, id: &str) -> Result<u64, CommitError> {
        let nothing = Change { operation: "FENCE", ..Change::default() };
        self.commit(&nothing, now_ms, id).await
    }

    /// Reads the commits since the last call. If they were cleaned away, reads the newest checkpoint.
    ///
    /// # Errors
    /// When the store fails, or a commit cannot be read. The state is then that of the last known commit, or of a later
    /// one.
    pub async fn refresh(&mut self) -> Result<(), OpenError> {
        self.log.refresh(&mut self.state).await
    }

    /// Commits a change; returns the number of the commit.
    ///
    /// A number looks free if it has no commit, but also if its commit was cleaned away. So a writer that has not
    /// committed for half of the retention of commits reads the log first. The clocks of all writers and of the store
    /// must differ by less than half of the retention.
    pub(crate) async fn commit(
        &mut self,
        change: &Change,
        now_ms: i64,
        id: &str,
    ) -> Result<u64, CommitError> {
        let mut actions = Vec::new();
        actions.extend(change.sources.iter().map(|source| source.action(now_ms)));
        actions.extend(change.metadata.clone().map(Action::MetaData));
        actions.extend(change.remove.iter().cloned().map(Action::Remove));
        actions.extend(change.add.iter().cloned().map(Action::Add));
        let lines = lines((change.operation, now_ms, id), &actions);
        if self.is_number_doubtful(now_ms) {
            self.refresh().await?;
            self.committed_ms = Some(now_ms);
        }
        for _ in 0..ATTEMPTS_MAX {
            self.state.snapshot.allows(&change.sources, &actions)?;
            let version = self.state.version + 1;
            let is_ours = self.put(version, lines.clone()).await?;
            if is_ours {
                self.state.version = version;
                self.committed_ms = Some(now_ms);
                actions.into_iter().for_each(|action| self.state.snapshot.apply(action));
                return Ok(version);
            }
            self.refresh().await?;
        }
        Err(CommitError::Crowded)
    }

    /// Puts a commit if its number is free; returns whether the commit there is ours. A store may report an error for a
    /// put that succeeded, so the commit is read back.
    async fn put(&self, version: u64, lines: Bytes) -> Result<bool, CommitError> {
        let path = self.log.commit_path(version);
        let mut conflicts = 0;
        loop {
            let Err(source) = self.log.objects.put_new(&path, lines.clone()).await else {
                return Ok(true);
            };
            match self.log.objects.get(&path).await {
                Ok(Some(there)) => return Ok(there == lines),
                // S3 reports a conflict (409) while another writer puts a commit there, which may still fail.
                Ok(None) if is_conflict(&source) && conflicts < CONFLICTS_MAX => conflicts += 1,
                Ok(None) | Err(_) => return Err(WriteError { path, source }.into()),
            }
        }
    }

    /// Whether the next number may have been used and cleaned away since the last check.
    fn is_number_doubtful(&self, now_ms: i64) -> bool {
        let Some(committed_ms) = self.committed_ms else { return true };
        let kept_ms =
            self.state.snapshot.metadata().and_then(|table| table.log_retention_ms().ok());
        now_ms.saturating_sub(committed_ms) >= kept_ms.unwrap_or(0) / 2
    }
}

const fn is_conflict(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::AlreadyExists { .. })
}

/// The lines of a commit, with a checksum in the first one.
fn lines((operation, now_ms, id): (&str, i64, &str), actions: &[Action]) -> Bytes {
    let put = |lines: &mut Vec<u8>, action: &Action| {
        serde_json::to_writer(&mut *lines, action).expect("it is plain data");
        lines.push(b'\n');
    };
    let (mut lines, mut rest) = (Vec::new(), Vec::new());
    actions.iter().for_each(|action| put(&mut rest, action));
    let info = CommitInfo {
        timestamp: now_ms,
        operation: operation.to_owned(),
        engine_info: ENGINE.to_owned(),
        txn_id: id.to_owned(),
        checksum: Some(checkpoint::checksum(&rest)),
    };
    put(&mut lines, &Action::CommitInfo(info));
    lines.append(&mut rest);
    lines.into()
}

#[cfg(test)]
mod tests;

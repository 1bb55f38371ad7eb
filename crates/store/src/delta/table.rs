//! A table on an object store: read from its log, changed by commits.

use super::action::{Action, Add, CommitInfo, Metadata, Protocol, Remove, Transaction};
use super::snapshot::{Refused, Snapshot};
use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use std::sync::Arc;

/// Whoever loses so often in a row gives up: somebody else commits without a pause.
const ATTEMPTS_MAX: usize = 100;

/// Who we are, in commits.
const ENGINE: &str = concat!("curtail/", env!("CARGO_PKG_VERSION"));

/// A table, as it was when we last looked.
#[derive(Debug)]
pub struct Table {
    store: Arc<dyn ObjectStore>,
    root: Path,
    snapshot: Snapshot,
    /// Of the last commit that we know.
    version: u64,
}

/// What a commit changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// In Delta's words: `WRITE`, `OPTIMIZE`, `DELETE`.
    pub operation: &'static str,
    /// Files that come, at new paths.
    pub add: Vec<Add>,
    /// Files that go.
    pub remove: Vec<Remove>,
    /// Up to where the writer has come with it.
    pub transaction: Option<Transaction>,
}

/// Why a table cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store does not answer as it should.
    #[error("the log of {root} cannot be read")]
    Store {
        /// Where the table is.
        root: Path,
        /// What it says.
        #[source]
        source: object_store::Error,
    },
    /// A commit that is none.
    #[error("{path}, line {line}, is no action of Delta")]
    Malformed {
        /// The commit.
        path: Path,
        /// Counted from one.
        line: usize,
        /// What was expected.
        #[source]
        source: serde_json::Error,
    },
    /// It begins with a checkpoint, or not at all.
    #[error("the log of {0} does not begin with its first commit")]
    NoBeginning(Path),
    /// A later version of the protocol.
    #[error("{root} needs version {needed:?} of Delta's protocol, known is {known:?}", known = Protocol::OURS)]
    Protocol {
        /// Where the table is.
        root: Path,
        /// What it says.
        needed: Protocol,
    },
}

/// Why a change was not committed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// It would be wrong now. The table has been looked at again.
    #[error("the change is refused: {0}")]
    Refused(#[from] Refused),
    /// The log cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store does not take the commit; it may have taken it all the same.
    #[error("{path} cannot be written")]
    Store {
        /// The commit.
        path: Path,
        /// What it says.
        #[source]
        source: object_store::Error,
    },
    /// Others were always first.
    #[error("others committed first {ATTEMPTS_MAX} times in a row")]
    Crowded,
}

impl Table {
    /// Makes a table where there is none, or opens the one that is there. It is `now_ms`, milliseconds since
    /// 1970; `id` tells this commit from all others.
    ///
    /// # Errors
    /// When the store fails, or there is something that is no table.
    pub async fn create(
        store: Arc<dyn ObjectStore>,
        root: Path,
        metadata: Metadata,
        now_ms: i64,
        id: &str,
    ) -> Result<Self, CommitError> {
        let mut table = Self { store, root, snapshot: Snapshot::default(), version: 0 };
        let info = commit_info("CREATE TABLE", now_ms, id);
        let actions = [info, Action::Protocol(Protocol::OURS), Action::MetaData(metadata)];
        table.put(0, lines(&actions)).await?;
        // Ours, or that of whoever was first.
        table.begin().await?;
        Ok(table)
    }

    /// Opens a table; [`None`] where there is none.
    ///
    /// # Errors
    /// When the store fails, or what is there cannot be read.
    pub async fn open(store: Arc<dyn ObjectStore>, root: Path) -> Result<Option<Self>, OpenError> {
        let mut table = Self { store, root, snapshot: Snapshot::default(), version: 0 };
        if table.read(0).await?.is_none() {
            let log = table.log();
            let any = table.store.list_with_delimiter(Some(&log)).await;
            let any = any.map_err(|source| table.store_error(source))?;
            let is_empty = any.objects.is_empty();
            return if is_empty { Ok(None) } else { Err(OpenError::NoBeginning(table.root)) };
        }
        table.begin().await?;
        Ok(Some(table))
    }

    /// Its files, as they were when we last looked.
    #[must_use]
    pub const fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// The number of the last commit that we know.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Looks at what was committed since.
    ///
    /// # Errors
    /// When the store fails, or what was committed cannot be read.
    pub async fn refresh(&mut self) -> Result<(), OpenError> {
        while let Some(actions) = self.read(self.version + 1).await? {
            self.follow(actions)?;
            self.version += 1;
        }
        Ok(())
    }

    /// Commits a change; returns the number of the commit.
    ///
    /// # Errors
    /// When it would be wrong after what others have committed, or the store fails.
    pub async fn commit(
        &mut self,
        change: &Change,
        now_ms: i64,
        id: &str,
    ) -> Result<u64, CommitError> {
        let mut actions = vec![commit_info(change.operation, now_ms, id)];
        actions.extend(change.transaction.clone().map(Action::Txn));
        actions.extend(change.remove.iter().cloned().map(Action::Remove));
        actions.extend(change.add.iter().cloned().map(Action::Add));
        let lines = lines(&actions);
        for _ in 0..ATTEMPTS_MAX {
            self.snapshot.allows(&actions)?;
            let version = self.version + 1;
            let is_ours = self.put(version, lines.clone()).await?;
            if is_ours {
                self.version = version;
                actions.into_iter().for_each(|action| self.snapshot.apply(action));
                return Ok(version);
            }
            self.refresh().await?;
        }
        Err(CommitError::Crowded)
    }

    /// Puts a commit where there is none; returns whether the one that is there now is ours. A store may
    /// have taken what it says it has not, so whatever it says, what is there is looked at.
    async fn put(&self, version: u64, lines: Bytes) -> Result<bool, CommitError> {
        let path = self.commit_path(version);
        let options = PutOptions::from(PutMode::Create);
        let Err(source) = self.store.put_opts(&path, lines.clone().into(), options).await else {
            return Ok(true);
        };
        let there = async { self.store.get(&path).await?.bytes().await };
        match there.await {
            Ok(there) => Ok(there == lines),
            Err(_) => Err(CommitError::Store { path, source }),
        }
    }

    /// Reads all commits from the first on.
    async fn begin(&mut self) -> Result<(), OpenError> {
        let first = self.read(0).await?.ok_or_else(|| OpenError::NoBeginning(self.root.clone()))?;
        self.follow(first)?;
        self.refresh().await
    }

    fn follow(&mut self, actions: Vec<Action>) -> Result<(), OpenError> {
        for action in actions {
            if let Action::Protocol(needed) = &action
                && (needed.min_reader_version > Protocol::OURS.min_reader_version
                    || needed.min_writer_version > Protocol::OURS.min_writer_version)
            {
                let (root, needed) = (self.root.clone(), needed.clone());
                return Err(OpenError::Protocol { root, needed });
            }
            self.snapshot.apply(action);
        }
        Ok(())
    }

    /// What a commit says; [`None`] when there is none with this number.
    async fn read(&self, version: u64) -> Result<Option<Vec<Action>>, OpenError> {
        let path = self.commit_path(version);
        let read = async { self.store.get(&path).await?.bytes().await };
        let bytes = match read.await {
            Ok(bytes) => bytes,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(source) => return Err(self.store_error(source)),
        };
        let mut actions = Vec::new();
        for (nth, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if !line.trim_ascii().is_empty() {
                let malformed = |source| {
                    let (path, line) = (path.clone(), nth + 1);
                    OpenError::Malformed { path, line, source }
                };
                actions.extend(Action::read(line).map_err(malformed)?);
            }
        }
        Ok(Some(actions))
    }

    fn log(&self) -> Path {
        self.root.clone().join("_delta_log")
    }

    fn commit_path(&self, version: u64) -> Path {
        self.log().join(format!("{version:020}.json"))
    }

    fn store_error(&self, source: object_store::Error) -> OpenError {
        OpenError::Store { root: self.root.clone(), source }
    }
}

fn commit_info(operation: &str, now_ms: i64, id: &str) -> Action {
    Action::CommitInfo(CommitInfo {
        timestamp: now_ms,
        operation: operation.to_owned(),
        engine_info: ENGINE.to_owned(),
        txn_id: id.to_owned(),
    })
}

fn lines(actions: &[Action]) -> Bytes {
    let mut lines = Vec::new();
    for action in actions {
        serde_json::to_writer(&mut lines, action).expect("it is plain data");
        lines.push(b'\n');
    }
    lines.into()
}

#[cfg(test)]
mod tests;

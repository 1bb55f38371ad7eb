//! What a table is after a number of commits.

use super::action::{Action, Add, Metadata, Protocol, Remove, Transaction};
use std::collections::BTreeMap;

/// The files of a table, and up to where its writers have come.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    protocol: Option<Protocol>,
    metadata: Option<Metadata>,
    files: BTreeMap<String, Add>,
    /// Removed files that may still be read.
    removed: BTreeMap<String, Remove>,
    transactions: BTreeMap<String, Transaction>,
}

/// Why a change would be wrong now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Somebody else has removed it.
    #[error("{0} is not part of the table any more")]
    Gone(String),
    /// Paths are given once.
    #[error("{0} is part of the table already")]
    There(String),
    /// The same was committed before.
    #[error("{app_id} has come to {committed} already, and {version} is no further")]
    Done {
        /// Which writer.
        app_id: String,
        /// What it says now.
        version: i64,
        /// What it has said.
        committed: i64,
    },
}

impl Snapshot {
    /// What must be known to read and to write it.
    #[must_use]
    pub const fn protocol(&self) -> Option<&Protocol> {
        self.protocol.as_ref()
    }

    /// What it is.
    #[must_use]
    pub const fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// Its files, in the order of their paths.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &Add> {
        self.files.values()
    }

    /// Files that are no longer part of it, in the order of their paths.
    pub fn removed(&self) -> impl ExactSizeIterator<Item = &Remove> {
        self.removed.values()
    }

    /// Up to where a writer has come.
    #[must_use]
    pub fn transaction(&self, app_id: &str) -> Option<i64> {
        self.transactions.get(app_id).map(|transaction| transaction.version)
    }

    /// Follows what a commit says.
    pub(super) fn apply(&mut self, action: Action) {
        match action {
            Action::Protocol(protocol) => self.protocol = Some(protocol),
            Action::MetaData(metadata) => self.metadata = Some(metadata),
            Action::Add(add) => {
                self.removed.remove(&add.path);
                self.files.insert(add.path.clone(), add);
            }
            Action::Remove(remove) => {
                self.files.remove(&remove.path);
                self.removed.insert(remove.path.clone(), remove);
            }
            Action::Txn(transaction) => {
                self.transactions.insert(transaction.app_id.clone(), transaction);
            }
            Action::CommitInfo(_) => {}
        }
    }

    /// All that must be said to have it again, but for files that were removed up to `before_ms`.
    pub(super) fn actions(&self, before_ms: i64) -> Vec<Action> {
        let removed = self.removed.values().filter(|remove| !remove.is_expired(before_ms));
        (self.protocol.iter().cloned().map(Action::Protocol))
            .chain(self.metadata.iter().cloned().map(Action::MetaData))
            .chain(self.transactions.values().cloned().map(Action::Txn))
            .chain(self.files.values().cloned().map(Action::Add))
            .chain(removed.cloned().map(Action::Remove))
            .collect()
    }

    /// The paths of all files that somebody may read: its own, and those that were removed after `before_ms`.
    pub(super) fn readable(&self, before_ms: i64) -> impl Iterator<Item = &str> {
        let removed = self.removed.values().filter(move |remove| !remove.is_expired(before_ms));
        self.files.keys().map(|path| &**path).chain(removed.map(|remove| &*remove.path))
    }

    /// Forgets the files that were removed up to `before_ms`.
    pub(super) fn forget_removed(&mut self, before_ms: i64) {
        self.removed.retain(|_, remove| !remove.is_expired(before_ms));
    }

    /// Whether a change may be made to it.
    pub(super) fn allows(&self, actions: &[Action]) -> Result<(), Refused> {
        for action in actions {
            match action {
                Action::Remove(remove) if !self.files.contains_key(&remove.path) => {
                    return Err(Refused::Gone(remove.path.clone()));
                }
                Action::Add(add) if self.files.contains_key(&add.path) => {
                    return Err(Refused::There(add.path.clone()));
                }
                Action::Txn(Transaction { app_id, version, .. }) => {
                    let committed = self.transaction(app_id);
                    if let Some(committed) = committed.filter(|committed| version <= committed) {
                        let (app_id, version) = (app_id.clone(), *version);
                        return Err(Refused::Done { app_id, version, committed });
                    }
                }
                Action::Add(_)
                | Action::Remove(_)
                | Action::CommitInfo(_)
                | Action::Protocol(_)
                | Action::MetaData(_) => {}
            }
        }
        Ok(())
    }
}

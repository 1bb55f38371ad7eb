//! The state of a table after some commits.

use super::action::{Action, Add, Metadata, Protocol, Remove, Transaction};
use super::table::SourceRange;
use std::collections::BTreeMap;

/// The files of a table, and the committed positions of its sources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub(super) protocol: Option<Protocol>,
    metadata: Option<Metadata>,
    files: BTreeMap<String, Add>,
    /// Removed files that may still be read.
    removed: BTreeMap<String, Remove>,
    transactions: BTreeMap<String, Transaction>,
}

/// Why a change is invalid now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum Refused {
    /// Another writer has removed the file.
    #[error("{0} is not part of the table any more")]
    Gone(String),
    /// A file with this path is part of the table already.
    #[error("{0} is part of the table already")]
    There(String),
    /// The rows were committed before.
    #[error("{source} is committed up to {committed} already, and {to} is no further", source = .range.source, to = .range.to)]
    Done { range: SourceRange, committed: u64 },
    /// Another process continues the source.
    #[error(
        "{source} is committed up to {committed}, expected {from}: another process writes it",
        source = .range.source, from = .range.from
    )]
    Overtaken { range: SourceRange, committed: u64 },
}

impl Snapshot {
    /// The schema and the properties of the table.
    pub(crate) const fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// The files in the order of their paths.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &Add> {
        self.files.values()
    }

    /// The removed files in the order of their paths.
    pub(crate) fn removed(&self) -> impl ExactSizeIterator<Item = &Remove> {
        self.removed.values()
    }

    /// The committed position of a source; 0 if it has none.
    pub(crate) fn position(&self, source: &str) -> u64 {
        let version = self.transactions.get(source).map(|transaction| transaction.version);
        version.and_then(|version| u64::try_from(version).ok()).unwrap_or_default()
    }

    /// Applies an action of a commit.
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

    /// The actions that lead to this state, without files that were removed up to `before_ms`.
    pub(super) fn actions(&self, before_ms: i64) -> Vec<Action> {
        let removed = self.removed.values().filter(|remove| !remove.is_expired(before_ms));
        (self.protocol.iter().cloned().map(Action::Protocol))
            .chain(self.metadata.iter().cloned().map(Action::MetaData))
            .chain(self.transactions.values().cloned().map(Action::Txn))
            .chain(self.files.values().cloned().map(Action::Add))
            .chain(removed.cloned().map(Action::Remove))
            .collect()
    }

    /// The paths of all files that a reader may use: the current ones, and those removed after `before_ms`.
    pub(super) fn readable(&self, before_ms: i64) -> impl Iterator<Item = &str> {
        let removed = self.removed.values().filter(move |remove| !remove.is_expired(before_ms));
        self.files.keys().map(|path| &**path).chain(removed.map(|remove| &*remove.path))
    }

    /// Forgets the files that were removed up to `before_ms`.
    pub(super) fn forget_removed(&mut self, before_ms: i64) {
        self.removed.retain(|_, remove| !remove.is_expired(before_ms));
    }

    /// Checks that a change is valid now.
    pub(super) fn allows(
        &self,
        sources: &[SourceRange],
        actions: &[Action],
    ) -> Result<(), Refused> {
        for range in sources {
            let committed = self.position(&range.source);
            if range.to <= committed {
                return Err(Refused::Done { range: range.clone(), committed });
            }
            if range.from != committed {
                return Err(Refused::Overtaken { range: range.clone(), committed });
            }
        }
        for action in actions {
            match action {
                Action::Remove(remove) if !self.files.contains_key(&remove.path) => {
                    return Err(Refused::Gone(remove.path.clone()));
                }
                Action::Add(add) if self.files.contains_key(&add.path) => {
                    return Err(Refused::There(add.path.clone()));
                }
                Action::Add(_)
                | Action::Remove(_)
                | Action::Txn(_)
                | Action::CommitInfo(_)
                | Action::Protocol(_)
                | Action::MetaData(_) => {}
            }
        }
        Ok(())
    }
}

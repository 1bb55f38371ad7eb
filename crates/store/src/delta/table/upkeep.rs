//! Checkpoints, and the deletion of old commits and files.
//!
//! **Invariant**: an interruption loses nothing, and a retry does the rest. The log is cleaned from the oldest commit
//! on, only before a checkpoint that was read back and that `_last_checkpoint` points to. A file is deleted only after
//! a commit has removed it.
//!
//! **Time**: ages are compared with `now_ms`, milliseconds since 1970. The times of files are from the object store's
//! clock, the times of removals from the clock of the removing writer. A file that takes longer than
//! `delta.deletedFileRetentionDuration` from its put to its commit may be deleted, as in every implementation of Delta.
//!
//! **Cost**: a checkpoint writes all live files' entries, vacuum lists the whole table, cleaning lists the whole log.

use super::super::checkpoint::{self, CheckpointError, Last};
use super::super::log_file::Checkpoint;
use super::super::objects::{File, StoreError};
use super::super::property::PropertyError;
use super::log::log_files;
use super::{Metadata, OpenError, Table};
use object_store::path::Path;
use std::collections::HashSet;

/// Why upkeep stopped. The table is consistent.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum UpkeepError {
    /// The log cannot be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// An operation on the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A property is invalid.
    #[error(transparent)]
    Property(#[from] PropertyError),
    /// The state of the table cannot be written as a checkpoint.
    #[error("no checkpoint can be made of {root}")]
    Checkpoint {
        root: Path,
        #[source]
        source: CheckpointError,
    },
    /// The table has a file outside its root, so no file is deleted.
    #[error("{root} has the file {path:?}, expected a path from the table's root, as in a URL")]
    Elsewhere { root: Path, path: String },
}

impl Table {
    /// Whether the last known checkpoint is `delta.checkpointInterval` commits old.
    pub(crate) fn is_checkpoint_due(&self) -> Result<bool, PropertyError> {
        let since = self.state.version.saturating_sub(self.state.checkpoint);
        match self.state.snapshot.metadata() {
            None => Ok(false),
            Some(metadata) => Ok(since >= metadata.checkpoint_interval()?),
        }
    }

    /// Writes a checkpoint of the last known version, without files whose retention after their removal is over.
    pub(crate) async fn checkpoint(&mut self, now_ms: i64) -> Result<(), UpkeepError> {
        let kept_ms = self.property(Metadata::deleted_file_retention_ms)?;
        let rows = self.state.snapshot.actions(now_ms.saturating_sub(kept_ms));
        let impossible = |source| {
            let (root, source) = (self.log.root.clone(), CheckpointError::Parquet(source));
            UpkeepError::Checkpoint { root, source }
        };
        let bytes = checkpoint::encode(&rows).map_err(impossible)?;
        let checkpoint = Checkpoint { version: self.state.version, parts: None };
        let size_in_bytes = Some(bytes.len());
        let last = Last { size_in_bytes, ..Last::new(checkpoint, &rows) };
        for name in checkpoint.names() {
            self.log.objects.put(&self.log.folder().join(name), bytes.clone()).await?;
        }
        self.log.point_to(&last).await?;
        self.state.checkpoint = self.state.checkpoint.max(self.state.version);
        Ok(())
    }

    /// Deletes the log before the newest checkpoint that is older than `delta.logRetentionDuration`. Returns the deleted
    /// files.
    pub(crate) async fn clean_log(&mut self, now_ms: i64) -> Result<Vec<Path>, UpkeepError> {
        let kept_ms = self.property(Metadata::log_retention_ms)?;
        let listed = self.log.objects.list(&self.log.folder()).await?.files;
        let needless = needless(&listed, now_ms.saturating_sub(kept_ms));
        let Some((oldest, needless)) = needless else { return Ok(Vec::new()) };
        let rows = self.log.read_checkpoint(oldest).await?;
        self.log.point_to(&Last::new(oldest, &rows)).await?;
        for path in &needless {
            self.log.objects.delete(path).await?;
        }
        Ok(needless)
    }

    /// Deletes files below the table's root that were neither written nor part of the table within the last
    /// `delta.deletedFileRetentionDuration`. Names that begin with `_` or `.` are kept. Returns the deleted files.
    pub(crate) async fn vacuum(&mut self, now_ms: i64) -> Result<Vec<Path>, UpkeepError> {
        self.refresh().await?;
        let kept_ms = self.property(Metadata::deleted_file_retention_ms)?;
        let before_ms = now_ms.saturating_sub(kept_ms);
        let mut readable = HashSet::new();
        for path in self.state.snapshot.readable(before_ms) {
            readable.insert(self.object_path(path)?);
        }
        let mut deleted = Vec::new();
        let mut folders = vec![self.log.root.clone()];
        while let Some(folder) = folders.pop() {
            let listed = self.log.objects.list(&folder).await?;
            folders.extend(listed.folders.into_iter().filter(is_of_table));
            for File { path, modified_ms } in listed.files {
                let is_old = modified_ms < before_ms;
                if is_old && is_of_table(&path) && !readable.contains(&path) {
                    self.log.objects.delete(&path).await?;
                    deleted.push(path);
                }
            }
        }
        self.state.snapshot.forget_removed(before_ms);
        Ok(deleted)
    }

    fn property<T>(
        &self,
        of: impl FnOnce(&Metadata) -> Result<T, PropertyError>,
    ) -> Result<T, UpkeepError> {
        let none = || OpenError::NoBeginning(self.log.root.clone());
        Ok(of(self.state.snapshot.metadata().ok_or_else(none)?)?)
    }

    /// The path of a file of the table.
    fn object_path(&self, path: &str) -> Result<Path, UpkeepError> {
        let elsewhere =
            || UpkeepError::Elsewhere { root: self.log.root.clone(), path: path.to_owned() };
        let is_absolute = path.starts_with('/') || path.contains("://");
        let below = (!is_absolute).then(|| Path::from_url_path(path).ok()).flatten();
        let below = below.filter(|below| !below.as_ref().is_empty()).ok_or_else(elsewhere)?;
        Ok(self.log.root.parts().chain(below.parts()).collect())
    }
}

/// The newest checkpoint without a file from after `before_ms`, and all older files, the oldest first; [`None`] if
/// there are no older files.
fn needless(listed: &[File], before_ms: i64) -> Option<(Checkpoint, Vec<Path>)> {
    let old = log_files(listed).filter(|(_, of)| of.modified_ms <= before_ms);
    let oldest = Checkpoint::among(old.map(|(file, _)| file)).pop_last()?;
    let needless = log_files(listed).filter(|(file, _)| file.version() < oldest.version);
    let needless: Vec<_> = needless.map(|(_, of)| of.path.clone()).collect();
    (!needless.is_empty()).then_some((oldest, needless))
}

/// Whether vacuum may delete the file or enter the folder.
fn is_of_table(path: &Path) -> bool {
    path.filename().is_some_and(|name| !name.starts_with(['_', '.']))
}

#[cfg(test)]
mod tests;

//! Reads the log of a table: the newest checkpoint, and the commits after it.
//!
//! `_last_checkpoint` is a hint. If it is missing or unusable, the log is listed for the newest readable checkpoint, or read
//! from the first commit. The result must reach the newest version in a listing of the log. So a damaged checkpoint or
//! a missing commit is an error that names it, and never an older table.
//!
//! **Cost**: one request each for the hint, the listing, each file of the checkpoint and each commit after it, and one
//! that finds no further commit. With 20 ms a request and a checkpoint every 100 commits, that is at most two seconds.

use super::super::action::{Action, CommitInfo, Protocol};
use super::super::checkpoint::{self, CheckpointError, Last};
use super::super::log_file::{self, Checkpoint, LogFile};
use super::super::objects::{File, Objects, StoreError};
use super::super::snapshot::Snapshot;
use super::OpenError;
use object_store::path::Path;

/// The log of a table.
#[derive(Clone, Debug)]
pub(super) struct Log {
    pub(super) objects: Objects,
    /// The root of the table.
    pub(super) root: Path,
}

/// The state of a table after a commit.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) snapshot: Snapshot,
    /// The version of the last commit.
    pub(super) version: u64,
    /// The version of the newest known checkpoint; zero if there is none.
    pub(super) checkpoint: u64,
}

impl State {
    fn apply(&mut self, actions: Vec<Action>) {
        actions.into_iter().for_each(|action| self.snapshot.apply(action));
    }
}

impl Log {
    /// Reads the commits since the last call. If they were cleaned away, begins with the newest checkpoint. After an
    /// error or a cancellation, `state` is that after some commit, and never after an earlier one than before, because
    /// the next number must be free.
    pub(super) async fn refresh(&self, state: &mut State) -> Result<(), OpenError> {
        self.follow(state).await?;
        let last = self.last_checkpoint().await?.map_or(0, |last| last.version);
        if last <= state.version {
            state.checkpoint = state.checkpoint.max(last);
        } else {
            let begun = self.begin().await?.filter(|begun| begun.version >= state.version);
            *state = begun.ok_or_else(|| OpenError::NoBeginning(self.root.clone()))?;
        }
        Ok(())
    }

    /// Reads the log from the newest checkpoint or the first commit; [`None`] when there is no table.
    pub(super) async fn begin(&self) -> Result<Option<State>, OpenError> {
        let Some(checkpoint) = self.last_checkpoint().await? else {
            return self.begin_by_listing().await;
        };
        let mut state = match self.begin_with(checkpoint).await {
            Ok(state) => state,
            Err(OpenError::Checkpoint { .. }) => return self.begin_by_listing().await,
            Err(error) => return Err(error),
        };
        let listed = self.objects.list(&self.folder()).await?.files;
        self.follow_to_newest(&mut state, &listed, None).await?;
        Ok(Some(state))
    }

    /// Follows the commits, at least up to the newest listed one. `unreadable` is the error of the newest checkpoint,
    /// if an older one had to be used.
    async fn follow_to_newest(
        &self,
        state: &mut State,
        listed: &[File],
        unreadable: Option<OpenError>,
    ) -> Result<(), OpenError> {
        self.follow(state).await?;
        let is_of_table = |file: &LogFile| !matches!(file, LogFile::Spare(_));
        let files = log_files(listed).map(|(file, _)| file).filter(is_of_table);
        match files.map(LogFile::version).max().filter(|newest| *newest > state.version) {
            None => Ok(()),
            Some(newest) => {
                let (root, missing) = (self.root.clone(), state.version + 1);
                Err(unreadable.unwrap_or(OpenError::Gap { root, missing, newest }))
            }
        }
    }

    async fn begin_by_listing(&self) -> Result<Option<State>, OpenError> {
        let listed = self.objects.list(&self.folder()).await?.files;
        if listed.is_empty() {
            return Ok(None);
        }
        let (mut state, unreadable) = self.begin_with_newest(&listed).await?;
        self.follow_to_newest(&mut state, &listed, unreadable).await?;
        Ok(Some(state))
    }

    /// Begins with the newest checkpoint that can be read, else with the first commit. Returns also the error of the
    /// newest checkpoint, if that one cannot be read.
    async fn begin_with_newest(
        &self,
        listed: &[File],
    ) -> Result<(State, Option<OpenError>), OpenError> {
        let mut unreadable = None;
        let checkpoints = Checkpoint::among(log_files(listed).map(|(file, _)| file));
        for checkpoint in checkpoints.into_iter().rev() {
            match self.begin_with(checkpoint).await {
                Ok(state) => return Ok((state, unreadable)),
                Err(error @ OpenError::Checkpoint { .. }) => _ = unreadable.get_or_insert(error),
                Err(error) => return Err(error),
            }
        }
        if let Some(first) = self.read(0).await? {
            let mut state = State::default();
            state.apply(first);
            return Ok((state, unreadable));
        }
        let later = log_files(listed).find(|(file, _)| matches!(file, LogFile::Later(_)));
        let later = later.map(|(_, of)| OpenError::Checkpoint {
            path: of.path.clone(),
            source: CheckpointError::Later,
        });
        let failure = unreadable.or(later);
        Err(failure.unwrap_or_else(|| OpenError::NoBeginning(self.root.clone())))
    }

    async fn begin_with(&self, checkpoint: Checkpoint) -> Result<State, OpenError> {
        let rows = self.read_checkpoint(checkpoint).await?;
        let Checkpoint { version, .. } = checkpoint;
        let mut state = State { version, checkpoint: version, ..State::default() };
        state.apply(rows);
        Ok(state)
    }

    /// Applies the commits after the last known one.
    async fn follow(&self, state: &mut State) -> Result<(), OpenError> {
        while let Some(actions) = self.read(state.version + 1).await? {
            state.apply(actions);
            state.version += 1;
        }
        Ok(())
    }

    /// Checks that we support the protocol versions that the table requires.
    fn check(&self, actions: &[Action]) -> Result<(), OpenError> {
        for action in actions {
            if let Action::Protocol(needed) = action
                && (needed.min_reader_version > Protocol::OURS.min_reader_version
                    || needed.min_writer_version > Protocol::OURS.min_writer_version)
            {
                let (root, needed) = (self.root.clone(), needed.clone());
                return Err(OpenError::Protocol { root, needed });
            }
        }
        Ok(())
    }

    /// The actions of a commit; [`None`] when there is none with this number.
    async fn read(&self, version: u64) -> Result<Option<Vec<Action>>, OpenError> {
        let path = self.commit_path(version);
        let Some(bytes) = self.objects.get(&path).await? else { return Ok(None) };
        if bytes.trim_ascii().is_empty() {
            return Err(OpenError::Empty(path));
        }
        let mut actions = Vec::new();
        for (nth, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if !line.trim_ascii().is_empty() {
                let malformed = |source| {
                    let (path, line) = (path.clone(), nth + 1);
                    OpenError::Malformed { path, line, source }
                };
                actions.extend(Action::of(serde_json::from_slice(line).map_err(malformed)?));
            }
        }
        if let Some(Action::CommitInfo(CommitInfo { checksum: Some(checksum), .. })) =
            actions.first()
        {
            let (_, rest) =
                bytes.split_at(bytes.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1));
            if checkpoint::checksum(rest) != *checksum {
                return Err(OpenError::Checksum(path));
            }
        }
        self.check(&actions)?;
        Ok(Some(actions))
    }

    /// The actions of a checkpoint with all of its files.
    pub(super) async fn read_checkpoint(
        &self,
        checkpoint: Checkpoint,
    ) -> Result<Vec<Action>, OpenError> {
        let mut rows = Vec::new();
        let mut path = self.folder();
        for name in checkpoint.names() {
            path = self.folder().join(name);
            let bytes = self.objects.get(&path).await?;
            let read = bytes.ok_or(CheckpointError::Missing).and_then(checkpoint::decode);
            match read {
                Ok(more) => rows.extend(more),
                Err(source) => return Err(OpenError::Checkpoint { path, source }),
            }
        }
        let is_protocol = |row: &Action| matches!(row, Action::Protocol(_));
        let is_metadata = |row: &Action| matches!(row, Action::MetaData(_));
        if !rows.iter().any(is_protocol) || !rows.iter().any(is_metadata) {
            return Err(OpenError::Checkpoint { path, source: CheckpointError::Incomplete });
        }
        self.check(&rows)?;
        Ok(rows)
    }

    /// The checkpoint in `_last_checkpoint`; [`None`] also when it cannot be read.
    pub(super) async fn last_checkpoint(&self) -> Result<Option<Checkpoint>, StoreError> {
        let bytes = self.objects.get(&self.last_path()).await?;
        let last = bytes.and_then(|bytes| serde_json::from_slice::<Last>(&bytes).ok());
        Ok(last.and_then(|last| Checkpoint::new(last.version, last.parts)))
    }

    /// Writes `_last_checkpoint`, unless it has this or a later version.
    pub(super) async fn point_to(&self, last: &Last) -> Result<(), StoreError> {
        let current = self.last_checkpoint().await?;
        if current.is_some_and(|current| current.version >= last.version) {
            return Ok(());
        }
        let bytes = serde_json::to_vec(last).expect("it is plain data");
        self.objects.put(&self.last_path(), bytes.into()).await
    }

    pub(super) fn folder(&self) -> Path {
        self.root.clone().join("_delta_log")
    }

    pub(super) fn commit_path(&self, version: u64) -> Path {
        self.folder().join(log_file::commit_name(version))
    }

    pub(super) fn last_path(&self) -> Path {
        self.folder().join(checkpoint::LAST_NAME)
    }
}

/// The files whose names are those of a log's files.
pub(super) fn log_files(listed: &[File]) -> impl Iterator<Item = (LogFile, &File)> {
    listed.iter().filter_map(|file| Some((LogFile::parse(file.path.filename()?)?, file)))
}

#[cfg(test)]
mod tests;

//! Uploads runs in parts: memory holds one part of one run, and the footer and indexes of each finished run.

use super::compact::CompactError;
use super::new_run::NewRun;
use super::run_set::RunSet;
use super::stored::StoredRun;
use crate::columns::Columns;
use crate::delta::WriteError;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStoreExt as _};
use std::mem;
use std::sync::Arc;

/// Minimum size of all parts but the last. Object stores reject parts of less than five million bytes.
const PART_BYTES: usize = 8 << 20;

/// Uploads the new runs of a day, one after another.
#[derive(Debug)]
pub(crate) struct Uploader {
    runs: Arc<RunSet>,
    day: String,
    current: Option<Upload>,
    uploaded: Vec<StoredRun>,
}

/// A run that is being uploaded. It exists once it is [finished](Self::finish).
#[derive(Debug)]
struct Upload {
    /// The path below the table's root.
    below: String,
    path: Path,
    upload: Box<dyn MultipartUpload>,
    new: NewRun,
    part: Vec<u8>,
    /// The size of the uploaded parts.
    bytes: u64,
}

impl Uploader {
    /// An uploader of runs of a day.
    pub(crate) fn new(runs: &Arc<RunSet>, day: &str) -> Self {
        let (runs, day) = (Arc::clone(runs), day.to_owned());
        Self { runs, day, current: None, uploaded: Vec::new() }
    }

    /// Adds a row group to the run at a path below the table's root. A path other than the last one begins another run.
    pub(crate) async fn push(&mut self, below: &str, group: &Columns) -> Result<(), CompactError> {
        if self.current.as_ref().is_none_or(|current| current.below != below) {
            self.end_run().await?;
            self.current = Some(Upload::begin(&self.runs, below).await?);
        }
        self.current.as_mut().expect("it has just begun, if not before").push(group).await
    }

    /// Ends the last run; returns all runs.
    pub(crate) async fn finish(mut self) -> Result<Vec<StoredRun>, CompactError> {
        if let Err(failed) = self.end_run().await {
            self.abort().await;
            return Err(failed);
        }
        Ok(self.uploaded)
    }

    /// Abandons the current run and deletes the uploaded runs, so that they do not fill a disk. If that fails, a later
    /// vacuum does it.
    pub(crate) async fn abort(self) {
        if let Some(mut current) = self.current {
            current.upload.abort().await.ok();
        }
        for run in &self.uploaded {
            self.runs.objects().delete(run.path()).await.ok();
        }
    }

    async fn end_run(&mut self) -> Result<(), CompactError> {
        if let Some(current) = self.current.take() {
            self.uploaded.push(current.finish(&self.day).await?);
        }
        Ok(())
    }
}

impl Upload {
    async fn begin(runs: &RunSet, below: &str) -> Result<Self, CompactError> {
        let path = runs.path(below);
        match runs.objects().put_multipart(&path).await {
            Ok(upload) => {
                let new = NewRun::new(runs.table());
                Ok(Self { below: below.to_owned(), path, upload, new, part: Vec::new(), bytes: 0 })
            }
            Err(source) => Err(WriteError { path, source }.into()),
        }
    }

    /// Adds a row group.
    async fn push(&mut self, group: &Columns) -> Result<(), CompactError> {
        self.new.push(group);
        self.part.append(&mut self.new.take());
        if self.part.len() < PART_BYTES {
            return Ok(());
        }
        self.bytes += self.part.len() as u64;
        let put = self.upload.put_part(mem::take(&mut self.part).into()).await;
        Ok(put.map_err(|source| WriteError { path: self.path.clone(), source })?)
    }

    /// Uploads the rest.
    async fn finish(self, day: &str) -> Result<StoredRun, CompactError> {
        let Self { below, path, mut upload, new, part, bytes } = self;
        let uploaded = async {
            let (part, run, add) = new
                .finish(part, bytes, (below, day))
                .map_err(|error| Error::Generic { store: "run", source: Box::new(error) })?;
            upload.put_part(part.into()).await?;
            upload.complete().await?;
            Ok::<_, Error>((run, add))
        };
        match uploaded.await {
            Ok((run, add)) => Ok(StoredRun::new(path, add, run)),
            Err(source) => {
                upload.abort().await.ok();
                Err(WriteError { path, source }.into())
            }
        }
    }
}

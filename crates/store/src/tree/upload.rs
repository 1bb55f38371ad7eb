//! Uploads a run in parts: memory holds one part.

use super::compact::CompactError;
use super::end::End;
use super::new_run::NewRun;
use crate::columns::Columns;
use crate::delta::Add;
use crate::run::Run;
use crate::schema::Schema;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt as _};
use std::collections::BTreeMap;
use std::mem;

/// Parts of this many bytes are uploaded; object stores take none of less than five million.
const PART_BYTES: usize = 8 << 20;

/// A run that is being uploaded. It exists once it is [finished](Self::finish).
#[derive(Debug)]
pub(crate) struct Upload {
    path: Path,
    schema: &'static Schema,
    upload: Box<dyn MultipartUpload>,
    new: NewRun,
    part: Vec<u8>,
    /// The size of the uploaded parts.
    bytes: u64,
}

/// An uploaded run.
#[derive(Debug)]
pub(crate) struct Uploaded {
    pub(crate) path: Path,
    pub(crate) run: Run,
    bytes: u64,
    /// The statistics of Delta.
    stats: String,
    end: End,
}

impl Upload {
    pub(crate) async fn begin(
        objects: &dyn ObjectStore,
        schema: &'static Schema,
        path: Path,
    ) -> Result<Self, CompactError> {
        match objects.put_multipart(&path).await {
            Ok(upload) => {
                let new = NewRun::new(schema);
                Ok(Self { path, schema, upload, new, part: Vec::new(), bytes: 0 })
            }
            Err(source) => Err(CompactError::Write { path, source }),
        }
    }

    /// Adds a row group.
    pub(crate) async fn push(&mut self, group: &Columns) -> Result<(), CompactError> {
        self.new.push(group);
        self.part.append(&mut self.new.take());
        if self.part.len() < PART_BYTES {
            return Ok(());
        }
        self.bytes += self.part.len() as u64;
        let put = self.upload.put_part(mem::take(&mut self.part).into()).await;
        put.map_err(|source| CompactError::Write { path: self.path.clone(), source })
    }

    /// Uploads the rest.
    pub(crate) async fn finish(self) -> Result<Uploaded, CompactError> {
        let Self { path, mut upload, schema, new, mut part, mut bytes } = self;
        let (mut rest, stats) = new.finish();
        part.append(&mut rest);
        bytes += part.len() as u64;
        let part = Bytes::from(part);
        // All of its end is in the last part.
        let uploaded = async {
            let run = Run::open(schema, &part, bytes)
                .map_err(|error| Error::Generic { store: "run", source: Box::new(error) })?;
            let end = End::of(&run, &part, bytes);
            upload.put_part(part.into()).await?;
            upload.complete().await?;
            Ok::<_, Error>((run, end))
        };
        match uploaded.await {
            Ok((run, end)) => Ok(Uploaded { path, run, bytes, stats, end }),
            Err(source) => {
                upload.abort().await.ok();
                Err(CompactError::Write { path, source })
            }
        }
    }

    /// Abandons the upload: its parts belong to no table.
    pub(crate) async fn abort(mut self) {
        self.upload.abort().await.ok();
    }
}

impl Uploaded {
    /// The file as the table has it, by its path below the table's root and its day.
    pub(crate) fn add(&self, below: String, day: &str, now_ms: i64) -> Add {
        Add {
            path: below,
            partition_values: BTreeMap::from([("day".to_owned(), Some(day.to_owned()))]),
            size: self.bytes,
            modification_time: now_ms,
            data_change: true,
            stats: Some(self.stats.clone()),
            tags: Some(self.end.tags()),
        }
    }
}

//! A run that is written in parts, so that it need not be in memory as a whole.

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

/// A run that is being uploaded. It is there when it is [finished](Self::finish), and not before.
#[derive(Debug)]
pub(crate) struct Upload {
    path: Path,
    schema: &'static Schema,
    upload: Box<dyn MultipartUpload>,
    new: NewRun,
    part: Vec<u8>,
    /// Of the parts that are uploaded.
    bytes: u64,
}

/// What was uploaded.
#[derive(Debug)]
pub(crate) struct Uploaded {
    /// What its end says: nobody need fetch it.
    pub(crate) run: Run,
    /// How many bytes.
    pub(crate) bytes: u64,
    /// What Delta says of its rows.
    pub(crate) stats: String,
    end: End,
}

impl Upload {
    pub(crate) async fn begin(
        objects: &dyn ObjectStore,
        schema: &'static Schema,
        path: Path,
    ) -> Result<Self, Error> {
        let upload = objects.put_multipart(&path).await?;
        let new = NewRun::new(schema);
        Ok(Self { path, schema, upload, new, part: Vec::new(), bytes: 0 })
    }

    /// Where it will be.
    pub(crate) const fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a row group.
    pub(crate) async fn push(&mut self, group: &Columns) -> Result<(), Error> {
        self.new.push(group);
        self.part.append(&mut self.new.take());
        if self.part.len() >= PART_BYTES { self.put_part().await } else { Ok(()) }
    }

    /// Uploads the rest.
    pub(crate) async fn finish(self) -> Result<Uploaded, Error> {
        let Self { mut upload, schema, new, mut part, mut bytes, .. } = self;
        let (mut rest, stats) = new.finish();
        part.append(&mut rest);
        bytes += part.len() as u64;
        let part = Bytes::from(part);
        // All of its end is in the last part.
        let run = Run::open(schema, &part, bytes);
        let run = run.map_err(|error| Error::Generic { store: "run", source: Box::new(error) });
        let run = run.map(|run| (End::of(&run, &part, bytes), run));
        let is_there = match run {
            Ok(run) => match upload.put_part(part.into()).await {
                Ok(()) => upload.complete().await.map(|_| run),
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        match is_there {
            Ok((end, run)) => Ok(Uploaded { run, bytes, stats, end }),
            Err(error) => {
                upload.abort().await.ok();
                Err(error)
            }
        }
    }

    /// Leaves it: what is left of it is no part of a table.
    pub(crate) async fn abort(mut self) {
        self.upload.abort().await.ok();
    }

    async fn put_part(&mut self) -> Result<(), Error> {
        self.bytes += self.part.len() as u64;
        self.upload.put_part(mem::take(&mut self.part).into()).await
    }
}

impl Uploaded {
    /// As the table is told: the run is at a path below its root, and of a day.
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

//! A folder of this machine: byte ranges are read by the calling thread, and files are written in pieces.
//!
//! `object_store` reads on tokio's blocking threads, so that a slow disk delays no other task. Our callers have their
//! own threads, and most reads hit the page cache, so switching threads would take longer than reading. After each
//! read, other tasks of the thread run, so that a query can be cancelled.
//!
//! A kernel without preemption switches to no other thread while it copies the bytes of a write: 8 MiB held a core for
//! 6 ms, and the log, woken on this core, waited. Therefore a write has at most [`WRITE_BYTES_MAX`].

use async_trait::async_trait;
use bytes::Bytes;
use futures_core::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
    UploadPart,
};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::time::{Duration, Instant};

/// Minimum time between two yields of a thread that reads.
const YIELD_AFTER: Duration = Duration::from_millis(1);

/// Maximum size of one write to a file.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// Objects in a folder; writes are durable.
#[derive(Debug)]
pub(crate) struct Folder(LocalFileSystem);

impl Folder {
    pub(crate) fn open(path: &std::path::Path) -> Result<Self> {
        Ok(Self(LocalFileSystem::new_with_prefix(path)?.with_fsync(true)))
    }
}

impl std::fmt::Display for Folder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Folder {
    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let path = self.0.path_to_filesystem(location)?;
        let read = File::open(path).and_then(|mut file| {
            ranges.iter().map(|range| read(&mut file, range)).collect::<io::Result<_>>()
        });
        yield_core();
        tokio::task::yield_now().await;
        read.map_err(|source| failed(location, source))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(location, options).await
    }

    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.0.put_opts(location, split(&payload), options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(FolderUpload(self.0.put_multipart_opts(location, options).await?)))
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.0.rename_opts(from, to, options).await
    }
}

/// Yields at most once in [`YIELD_AFTER`]: else the scheduler may let a woken log thread wait until the next tick, 4 ms.
fn yield_core() {
    thread_local!(static LAST: Cell<Option<Instant>> = const { Cell::new(None) });
    let now = Instant::now();
    if LAST.get().is_none_or(|last| now.duration_since(last) >= YIELD_AFTER) {
        std::thread::yield_now();
        LAST.set(Some(now));
    }
}

/// An upload in parts that writes each part in pieces.
#[derive(Debug)]
struct FolderUpload(Box<dyn MultipartUpload>);

#[async_trait]
impl MultipartUpload for FolderUpload {
    fn put_part(&mut self, part: PutPayload) -> UploadPart {
        self.0.put_part(split(&part))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.0.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.0.abort().await
    }
}

/// The same bytes in pieces of at most [`WRITE_BYTES_MAX`]; `LocalFileSystem` writes each piece on its own.
fn split(payload: &PutPayload) -> PutPayload {
    let pieces = payload.iter().flat_map(|bytes| {
        let starts = (0..bytes.len()).step_by(WRITE_BYTES_MAX);
        starts.map(|start| bytes.slice(start..bytes.len().min(start + WRITE_BYTES_MAX)))
    });
    pieces.collect()
}

fn read(file: &mut File, range: &Range<u64>) -> io::Result<Bytes> {
    let len = range.end - range.start;
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(usize::MAX));
    file.seek(SeekFrom::Start(range.start))?;
    let read = file.take(len).read_to_end(&mut bytes)? as u64;
    if read < len {
        let ends = format!("expected {len} bytes at {}, found {read}", range.start);
        return Err(io::Error::new(ErrorKind::UnexpectedEof, ends));
    }
    Ok(bytes.into())
}

fn failed(location: &Path, source: io::Error) -> Error {
    if source.kind() == ErrorKind::NotFound {
        Error::NotFound { path: location.to_string(), source: source.into() }
    } else {
        Error::Generic { store: "LocalFileSystem", source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt as _;

    #[tokio::test]
    async fn a_large_write_has_small_pieces_and_the_same_bytes() {
        let bytes: Bytes = (0..3 * WRITE_BYTES_MAX + 7).map(|at| at.to_le_bytes()[0]).collect();
        let pieces = split(&[bytes.slice(..5), bytes.slice(5..)].into_iter().collect());
        assert_eq!(pieces.iter().map(Bytes::len).max(), Some(WRITE_BYTES_MAX));
        assert_eq!(Bytes::from(pieces.clone()), bytes);

        let folder = std::env::temp_dir().join(format!("curtail-pieces-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let store = Folder::open(&folder).expect("opened");
        let (whole, parts) = (Path::from("whole"), Path::from("parts"));
        store.put(&whole, bytes.clone().into()).await.expect("put");
        let mut upload = store.put_multipart(&parts).await.expect("begun");
        for part in [bytes.slice(..100_000), bytes.slice(100_000..)] {
            upload.put_part(part.into()).await.expect("put");
        }
        upload.complete().await.expect("completed");
        for path in [whole, parts] {
            let read = store.get(&path).await.expect("there").bytes().await.expect("read");
            assert_eq!(read, bytes, "{path}");
        }
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[tokio::test]
    async fn ranges_are_read_and_missing_bytes_are_an_error() {
        let folder = std::env::temp_dir().join(format!("curtail-folder-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let store = Folder::open(&folder).expect("opened");
        let path = Path::from("day=2026-11-22/a.parquet");
        store.put(&path, Bytes::from_static(b"0123456789").into()).await.expect("put");
        let read = store.get_ranges(&path, &[7..10, 0..2, 4..4]).await.expect("read");
        assert_eq!(read, [&b"789"[..], b"01", b""]);
        let error = store.get_ranges(&path, &[0..1, 8..12]).await.expect_err("it is shorter");
        assert!(error.to_string().contains("expected 4 bytes at 8"), "{error}");
        let missing = store.get_ranges(&Path::from("b"), &[]).await;
        assert!(matches!(missing, Err(Error::NotFound { path, .. }) if path == "b"));
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}

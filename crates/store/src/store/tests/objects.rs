//! Objects in memory whose operations fail as planned.

use bytes::Bytes;
use futures_core::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt as _, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result, UploadPart,
};
use std::collections::BTreeSet;
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// When an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// Nothing is done.
    Before,
    /// The operation is done, but reports an error.
    After,
    /// Nothing is done, because of a conflicting write that never completes: S3 responds with 409.
    Conflict,
    /// A put reports an error, and is done when it is [delivered](Faulty::deliver). Other operations fail as
    /// with [`When::Before`].
    Late,
}

/// A put on its way.
#[derive(Debug)]
struct Put {
    path: Path,
    bytes: PutPayload,
    options: PutOptions,
}

#[derive(Debug, Default)]
pub(super) struct Faulty {
    objects: InMemory,
    faults: Arc<Faults>,
    /// Paths of the objects that were read.
    read_paths: Mutex<BTreeSet<String>>,
    late: Mutex<Option<Put>>,
    /// Number of operations until the late put is done, before the last of them; zero: never.
    until_delivered: AtomicUsize,
}

/// What fails, of the store and of uploads to it.
#[derive(Debug, Default)]
struct Faults {
    /// Number of operations until one fails, including that one; zero: no operation fails.
    left: AtomicUsize,
    when: Mutex<Option<When>>,
    /// Number of uploads that were neither completed nor aborted.
    open: AtomicUsize,
}

/// An upload: each part and its end are operations, which may fail.
#[derive(Debug)]
struct Uploading {
    upload: Box<dyn MultipartUpload>,
    faults: Arc<Faults>,
    is_open: bool,
}

impl Faulty {
    /// An independent copy of the objects, without faults.
    pub(super) fn copy(&self) -> Self {
        Self { objects: self.objects.fork(), ..Self::default() }
    }

    /// Lets an operation fail: the one with this number, counted from zero.
    pub(super) fn arm(&self, nth: usize, when: When) {
        *self.faults.when.lock().expect("no panic") = Some(when);
        self.faults.left.store(nth + 1, Ordering::Relaxed);
    }

    /// Stops failing operations; returns whether one has failed.
    pub(super) fn disarm(&self) -> bool {
        self.faults.left.swap(0, Ordering::Relaxed) == 0
    }

    /// Number of uploads that were neither completed nor aborted.
    pub(super) fn open_uploads(&self) -> usize {
        self.faults.open.load(Ordering::Relaxed)
    }

    /// Paths of the objects that were read since the last call.
    pub(super) fn take_read_paths(&self) -> Vec<String> {
        mem::take(&mut *self.read_paths.lock().expect("no panic")).into_iter().collect()
    }

    /// Delivers the late put before the operation with this number, counted from zero.
    pub(super) fn deliver(&self, before: usize) {
        self.until_delivered.store(before + 1, Ordering::Relaxed);
    }

    /// Whether a put is still late.
    pub(super) fn is_late(&self) -> bool {
        self.late.lock().expect("no panic").is_some()
    }

    /// Turns over one byte of an object.
    pub(super) async fn damage(&self, path: &Path, at: usize) {
        let mut bytes = self.bytes(path).await.to_vec();
        bytes[at] ^= 0x40;
        self.objects.put(path, bytes.into()).await.expect("memory");
    }

    /// Puts other bytes in the place of those of an object.
    pub(super) async fn replace(&self, path: &Path, by: impl FnOnce(&[u8]) -> Vec<u8>) {
        let bytes = by(&self.bytes(path).await);
        self.objects.put(path, bytes.into()).await.expect("memory");
    }

    /// Forgets all of an object but its beginning.
    pub(super) async fn cut(&self, path: &Path, len: usize) {
        let bytes = self.bytes(path).await.slice(..len);
        self.objects.put(path, bytes.into()).await.expect("memory");
    }

    /// What there is in a folder.
    pub(super) async fn paths(&self, folder: &str) -> Vec<String> {
        let list = self.objects.list_with_delimiter(Some(&Path::from(folder))).await;
        let objects = list.expect("memory").objects;
        objects.into_iter().map(|object| object.location.to_string()).collect()
    }

    async fn bytes(&self, path: &Path) -> Bytes {
        let object = self.objects.get(path).await.expect("it is there");
        object.bytes().await.expect("memory")
    }

    async fn attempt<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let until_delivered = self.until_delivered.load(Ordering::Relaxed);
        self.until_delivered.store(until_delivered.saturating_sub(1), Ordering::Relaxed);
        let late =
            if until_delivered == 1 { self.late.lock().expect("no panic").take() } else { None };
        if let Some(Put { path, bytes, options }) = late {
            // Its sender does not get the result.
            self.objects.put_opts(&path, bytes, options).await.ok();
        }
        self.faults.attempt(operation).await
    }
}

impl Faults {
    async fn attempt<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        let when = (left == 1).then(|| *self.when.lock().expect("no panic")).flatten();
        match when {
            Some(When::Before | When::Late) => Err(failed()),
            Some(When::Conflict) => {
                let (path, source) = (String::new(), "planned conflict".into());
                Err(Error::AlreadyExists { path, source })
            }
            Some(When::After) => operation.await.and_then(|_| Err(failed())),
            None => operation.await,
        }
    }
}

impl Uploading {
    fn close(&mut self) {
        if mem::take(&mut self.is_open) {
            self.faults.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[async_trait::async_trait]
impl MultipartUpload for Uploading {
    fn put_part(&mut self, bytes: PutPayload) -> UploadPart {
        let (part, faults) = (self.upload.put_part(bytes), Arc::clone(&self.faults));
        Box::pin(async move { faults.attempt(part).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let faults = Arc::clone(&self.faults);
        let complete = async {
            let completed = self.upload.complete().await?;
            self.close();
            Ok(completed)
        };
        faults.attempt(complete).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.close();
        self.upload.abort().await
    }
}

fn failed() -> Error {
    Error::Generic { store: "test", source: "planned failure".into() }
}

impl std::fmt::Display for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("memory")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        path: &Path,
        bytes: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let is_late = self.faults.left.load(Ordering::Relaxed) == 1
            && *self.faults.when.lock().expect("no panic") == Some(When::Late);
        if is_late {
            let put = Put { path: path.clone(), bytes: bytes.clone(), options: options.clone() };
            *self.late.lock().expect("no panic") = Some(put);
        }
        self.attempt(self.objects.put_opts(path, bytes, options)).await
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.attempt(self.objects.put_multipart_opts(path, options)).await?;
        self.faults.open.fetch_add(1, Ordering::Relaxed);
        let faults = Arc::clone(&self.faults);
        Ok(Box::new(Uploading { upload, faults, is_open: true }))
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.read_paths.lock().expect("no panic").insert(path.to_string());
        self.attempt(self.objects.get_opts(path, options)).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.read_paths.lock().expect("no panic").insert(path.to_string());
        self.attempt(self.objects.get_ranges(path, ranges)).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.attempt(self.objects.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.attempt(self.objects.copy_opts(from, to, options)).await
    }
}

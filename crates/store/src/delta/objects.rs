//! The five operations of a table on its object store, which tests can make fail.

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use std::sync::Arc;

/// An operation on the store failed.
#[derive(Debug, thiserror::Error)]
#[error("the store fails at {path}")]
pub struct StoreError {
    /// The path of the object.
    pub path: Path,
    /// The error of the store.
    #[source]
    pub source: object_store::Error,
}

/// An object cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{path} cannot be written")]
pub struct WriteError {
    /// The path of the object.
    pub path: Path,
    /// The error of the store.
    #[source]
    pub source: object_store::Error,
}

/// The object store of a table.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    store: Arc<dyn ObjectStore>,
    #[cfg(test)]
    pub(super) faults: Arc<faults::Faults>,
}

/// The content of a folder.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) folders: Vec<Path>,
    pub(super) files: Vec<File>,
}

/// A file in a folder.
#[derive(Clone, Debug)]
pub(super) struct File {
    pub(super) path: Path,
    /// The time of the last write by the store's clock, in milliseconds since 1970.
    pub(super) modified_ms: i64,
}

impl Objects {
    pub(super) fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self {
            store,
            #[cfg(test)]
            faults: Arc::default(),
        }
    }

    /// The content of an object; [`None`] when there is none.
    pub(super) async fn get(&self, path: &Path) -> Result<Option<Bytes>, StoreError> {
        let read = self.run(async { self.store.get(path).await?.bytes().await });
        match read.await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(StoreError { path: path.clone(), source }),
        }
    }

    /// Puts an object, if none exists there.
    pub(super) async fn put_new(
        &self,
        path: &Path,
        bytes: Bytes,
    ) -> Result<(), object_store::Error> {
        let options = PutOptions::from(PutMode::Create);
        self.run(async { self.store.put_opts(path, bytes.into(), options).await.map(drop) }).await
    }

    /// Puts an object, and replaces an existing one.
    pub(super) async fn put(&self, path: &Path, bytes: Bytes) -> Result<(), StoreError> {
        let put = self.run(async { self.store.put(path, bytes.into()).await.map(drop) });
        put.await.map_err(|source| StoreError { path: path.clone(), source })
    }

    /// Deletes an object, if it exists.
    pub(super) async fn delete(&self, path: &Path) -> Result<(), StoreError> {
        match self.run(self.store.delete(path)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(StoreError { path: path.clone(), source }),
        }
    }

    /// The content of a folder in the order of the names.
    pub(super) async fn list(&self, folder: &Path) -> Result<Listed, StoreError> {
        let listed = self.run(self.store.list_with_delimiter(Some(folder))).await;
        let listed = listed.map_err(|source| StoreError { path: folder.clone(), source })?;
        let file = |object: object_store::ObjectMeta| File {
            path: object.location,
            modified_ms: object.last_modified.timestamp_millis(),
        };
        let mut files: Vec<_> = listed.objects.into_iter().map(file).collect();
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Ok(Listed { folders: listed.common_prefixes, files })
    }

    async fn run<T>(
        &self,
        operation: impl Future<Output = Result<T, object_store::Error>>,
    ) -> Result<T, object_store::Error> {
        #[cfg(test)]
        let fault = self.faults.strike()?;
        let done = operation.await;
        #[cfg(test)]
        fault.strike()?;
        done
    }
}

#[cfg(test)]
pub(super) mod faults;

//! A cache of Parquet footers with their page indexes.
//!
//! A footer is read once, although a plan asks for it several times. Files never change, so no entry is stale.
//!
//! **Limits**: all cached footers have at most [`BYTES_MAX`]; a footer that does not fit is read each time.

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{ParquetFileMetrics, ParquetFileReaderFactory};
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::metadata::{
    PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader,
};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures_core::future::BoxFuture;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _};
use std::collections::HashMap;
use std::error::Error;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum size of all cached footers.
const BYTES_MAX: usize = 256 << 20;

/// The phrase that marks an error that already names its file.
pub(crate) const UNREADABLE: &str = "cannot be read";

/// The number of bytes that are fetched first from the end of a file; most footers are not longer.
const FOOTER_BYTES: usize = 256 << 10;

/// Number of latest files to report: Parquet's errors about damaged data name no file, but it is one of the latest.
const LAST_MAX: usize = 8;

/// The cache of footers.
#[derive(Debug)]
pub(crate) struct Footers {
    objects: Arc<dyn ObjectStore>,
    kept: Mutex<Kept>,
    /// The paths of the files that were fetched last, the latest at the end.
    last: Mutex<Vec<Path>>,
}

#[derive(Debug, Default)]
struct Kept {
    footers: HashMap<Path, Arc<ParquetMetaData>>,
    bytes: usize,
}

impl Footers {
    pub(crate) fn new(objects: Arc<dyn ObjectStore>) -> Self {
        Self { objects, kept: Mutex::default(), last: Mutex::default() }
    }

    pub(crate) fn last(&self) -> String {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().map(Path::as_ref).collect::<Vec<_>>().join(", ")
    }

    fn fetched(&self, path: &Path) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.retain(|other| other != path);
        if last.len() == LAST_MAX {
            last.remove(0);
        }
        last.push(path.clone());
    }

    fn keep(&self, path: Path, footer: &Arc<ParquetMetaData>) {
        let kept = &mut *self.kept();
        let bytes = footer.memory_size();
        if kept.bytes + bytes <= BYTES_MAX && !kept.footers.contains_key(&path) {
            kept.footers.insert(path, Arc::clone(footer));
            kept.bytes += bytes;
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads files for DataFusion.
#[derive(Debug)]
pub(crate) struct Readers(pub(crate) Arc<Footers>);

impl ParquetFileReaderFactory for Readers {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        _: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> datafusion::common::Result<Box<dyn AsyncFileReader + Send>> {
        let path = Path::from(file.path().as_ref());
        let metrics = ParquetFileMetrics::new(partition, path.as_ref(), metrics);
        let (footers, len) = (Arc::clone(&self.0), file.object_meta.size);
        Ok(Box::new(Reader { footers, path, len, metrics }))
    }
}

/// Reads a file.
struct Reader {
    footers: Arc<Footers>,
    path: Path,
    len: u64,
    metrics: ParquetFileMetrics,
}

impl Reader {
    /// Adds the path to an error, because the object store and Parquet do not always name it.
    fn failed(&self, source: impl Error + Send + Sync + 'static) -> ParquetError {
        ParquetError::General(format!("{} {UNREADABLE}: {source}", self.path))
    }
}

impl AsyncFileReader for Reader {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, Result<Bytes, ParquetError>> {
        Box::pin(async move {
            let bytes = self.footers.objects.get_range(&self.path, range).await;
            let bytes = bytes.map_err(|error| self.failed(error))?;
            self.metrics.bytes_scanned.add(bytes.len());
            Ok(bytes)
        })
    }

    fn get_byte_ranges(
        &mut self,
        ranges: Vec<Range<u64>>,
    ) -> BoxFuture<'_, Result<Vec<Bytes>, ParquetError>> {
        Box::pin(async move {
            let bytes = self.footers.objects.get_ranges(&self.path, &ranges).await;
            let bytes = bytes.map_err(|error| self.failed(error))?;
            self.metrics.bytes_scanned.add(bytes.iter().map(Bytes::len).sum());
            self.footers.fetched(&self.path);
            Ok(bytes)
        })
    }

    fn get_metadata<'a>(
        &'a mut self,
        _: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, Result<Arc<ParquetMetaData>, ParquetError>> {
        Box::pin(async move {
            if let Some(footer) = self.footers.kept().footers.get(&self.path) {
                return Ok(Arc::clone(footer));
            }
            let reader = ParquetMetaDataReader::new()
                .with_page_index_policy(PageIndexPolicy::Optional)
                .with_prefetch_hint(Some(FOOTER_BYTES));
            let len = self.len;
            let footer = reader.load_and_finish(&mut *self, len).await;
            let footer = Arc::new(footer.map_err(|error| self.failed(error))?);
            self.footers.keep(self.path.clone(), &footer);
            Ok(footer)
        })
    }
}

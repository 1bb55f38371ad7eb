//! The result of a query: a stream of batches, up to a maximum of rows.

use crate::error::QueryError;
use crate::footers::Footers;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnv;
use std::future::poll_fn;
use std::sync::Arc;

/// The result of a query in progress.
pub struct QueryResult {
    pub(crate) rows: SendableRecordBatchStream,
    pub(crate) runtime: Arc<RuntimeEnv>,
    pub(crate) footers: Arc<Footers>,
    /// The number of rows that remain until the maximum.
    pub(crate) left: usize,
    pub(crate) is_cut: bool,
}

impl std::fmt::Debug for QueryResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueryResult").field("left", &self.left).finish_non_exhaustive()
    }
}

impl QueryResult {
    /// Returns the columns of the result.
    #[must_use]
    pub fn columns(&self) -> SchemaRef {
        self.rows.schema()
    }

    /// Returns the next rows; [`None`] at the end of the result, or at the maximum number of rows.
    ///
    /// # Errors
    /// When a file cannot be read, memory does not suffice, or a value cannot be computed.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, QueryError> {
        if self.is_cut {
            return Ok(None);
        }
        let next = poll_fn(|context| self.rows.as_mut().poll_next(context)).await;
        let next =
            next.transpose().map_err(|error| QueryError::of(error).while_reading(&self.footers));
        let Some(batch) = next? else { return Ok(None) };
        self.is_cut = batch.num_rows() > self.left;
        let batch = batch.slice(0, batch.num_rows().min(self.left));
        self.left -= batch.num_rows();
        Ok(Some(batch))
    }

    /// Whether the result has more rows than were returned.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Creates a reservation in the query's memory, for buffered rows.
    #[must_use]
    pub fn reservation(&self) -> MemoryReservation {
        MemoryConsumer::new("rows to print").register(&self.runtime.memory_pool)
    }
}

//! The rows of several runs in their common order.

use super::compact::CompactError;
use super::run_set::RunSet;
use super::stored::StoredRun;
use crate::columns::Columns;
use crate::merge::{Merge, Step};
use std::sync::Arc;

impl RunSet {
    /// Reads fields of runs, of each row group what `pick` leaves of it, and gives them to `each` in their common
    /// order, a row group at a time. `pick` gets the number of the run, counted from zero. Returns the number of rows
    /// that were dropped as copies, which needs all fields.
    ///
    /// The fields by which runs are sorted must be among them. In memory are what is left of a row group of each
    /// run, and the one that is made.
    ///
    /// # Errors
    /// When a run cannot be read, and what `each` says.
    pub(crate) async fn in_order<E: From<CompactError>>(
        &self,
        runs: &[Arc<StoredRun>],
        fields: &[usize],
        mut pick: impl FnMut(usize, Columns) -> Columns,
        mut each: impl AsyncFnMut(Columns) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut merge = Merge::new(
            self.table(),
            runs.len(),
            fields.len() == self.table().schema().fields().len(),
        );
        let mut next = vec![0; runs.len()];
        loop {
            match merge.step() {
                Step::Needs(nth) => {
                    let (run, group) = (&runs[nth], next[nth]);
                    if group == run.run().groups() {
                        merge.end(nth);
                        continue;
                    }
                    let rows = 0..run.run().rows(group);
                    let rows = run.rows(self.objects(), group, fields, rows).await;
                    let failed = |source| CompactError::Read { path: run.path().clone(), source };
                    next[nth] += 1;
                    merge.give(nth, pick(nth, rows.map_err(failed)?));
                }
                Step::Made(group) => {
                    each(group).await?;
                    // Several may be made between two reads, and a flush on this thread should not wait for them.
                    tokio::task::yield_now().await;
                }
                Step::Done => return Ok(merge.copies()),
            }
        }
    }
}

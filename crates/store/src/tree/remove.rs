//! Removing runs that are not kept any longer.

use super::table_writer::TableWriter;
use crate::delta::{Add, Change, CommitError, Refused, Remove};
use std::collections::BTreeSet;

impl TableWriter {
    /// The runs of the table, as it was when we last looked; also those that cannot be read.
    pub(crate) fn files(&self) -> impl ExactSizeIterator<Item = &Add> {
        self.table.snapshot().files()
    }

    /// Removes runs, with their rows, in one commit; returns those that were still there. It is `now_ms`,
    /// milliseconds since 1970.
    ///
    /// Whoever else has removed one of them meanwhile has done so for good, or has put its rows into another
    /// run, which is none of these: the rest is removed then.
    pub(crate) async fn remove(
        &mut self,
        paths: &BTreeSet<String>,
        now_ms: i64,
    ) -> Result<Vec<Add>, CommitError> {
        let id = format!("{}-removes-{now_ms}", self.source);
        let removed = loop {
            let there = self.files().filter(|add| paths.contains(&add.path));
            let there: Vec<_> = there.cloned().collect();
            if there.is_empty() {
                break Ok(there);
            }
            let remove = there.iter().map(|add| Remove {
                path: add.path.clone(),
                deletion_timestamp: Some(now_ms),
                data_change: true,
            });
            let remove = remove.collect();
            let change = Change { operation: "DELETE", remove, ..Change::default() };
            match self.table.commit(&change, now_ms, &id).await {
                Ok(_) => break Ok(there),
                // It is not there any more: one less each time.
                Err(CommitError::Refused(Refused::Gone(_))) => {}
                Err(error) => break Err(error),
            }
        };
        // The table has been looked at either way.
        self.publish(None).await;
        removed
    }
}

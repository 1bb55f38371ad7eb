//! Removes expired runs.

use super::table_writer::TableWriter;
use crate::delta::{Add, Change, CommitError, Refused, Remove};
use std::collections::BTreeSet;

impl TableWriter {
    /// The runs of the table in its last known version, also unreadable ones.
    pub(crate) fn files(&self) -> impl ExactSizeIterator<Item = &Add> {
        self.table.snapshot().files()
    }

    /// Removes runs, with their rows, in one commit; returns those that were still there. It is `now_ms`,
    /// milliseconds since 1970.
    ///
    /// If another writer has removed or merged one of them meanwhile, only the rest is removed.
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
            let remove = there.iter().map(|add| Remove::of(add, now_ms, true)).collect();
            let change = Change { operation: "DELETE", remove, ..Change::default() };
            match self.table.commit(&change, now_ms, &id).await {
                Ok(_) => break Ok(there),
                // It is gone: one less each time.
                Err(CommitError::Refused(Refused::Gone(_))) => {}
                Err(error) => break Err(error),
            }
        };
        // The table was read in any case.
        self.publish(None).await;
        removed
    }
}

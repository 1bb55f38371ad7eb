//! Opens the runs of a table.

use super::AT_ONCE;
use super::stored::{ReadError, StoredRun, Unread};
use crate::delta::Add;
use crate::schema::Schema;
use futures_util::stream::{self, StreamExt as _};
use object_store::ObjectStore;
use object_store::path::Path;
use std::collections::HashMap;
use std::sync::Arc;

/// Opens the runs of a table, each of them once.
#[derive(Clone, Debug)]
pub(crate) struct Opener {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) schema: &'static Schema,
    /// Where the table is.
    pub(crate) root: Path,
    /// Damaged runs, which are not opened again.
    damaged: HashMap<String, Arc<ReadError>>,
}

impl Opener {
    pub(crate) fn new(objects: Arc<dyn ObjectStore>, schema: &'static Schema, root: Path) -> Self {
        Self { objects, schema, root, damaged: HashMap::new() }
    }

    /// Where a file of the table is.
    pub(crate) fn path(&self, below: &str) -> Path {
        Path::from(format!("{}/{below}", self.root))
    }

    /// Opens the runs of files, except known ones; returns also unreadable ones. If the store fails, a run is retried each
    /// time.
    pub(crate) async fn open(
        &mut self,
        files: impl Iterator<Item = &Add>,
        known: impl Iterator<Item = Arc<StoredRun>>,
    ) -> (Vec<Arc<StoredRun>>, Vec<Unread>) {
        let known: HashMap<_, _> = known.map(|run| (run.add().path.clone(), run)).collect();
        let (mut runs, mut added, mut unread) = (Vec::new(), Vec::new(), Vec::new());
        for add in files {
            if let Some(run) = known.get(&add.path) {
                runs.push(Arc::clone(run));
            } else if let Some(error) = self.damaged.get(&add.path) {
                unread.push(Unread { path: self.path(&add.path), error: Arc::clone(error) });
            } else {
                added.push(add.clone());
            }
        }
        for (add, opened) in self.fetch(added).await {
            match opened {
                Ok(run) => runs.push(Arc::new(run)),
                Err(error) => {
                    let error = Arc::new(error);
                    if matches!(*error, ReadError::Run(_)) {
                        self.damaged.insert(add.path.clone(), Arc::clone(&error));
                    }
                    unread.push(Unread { path: self.path(&add.path), error });
                }
            }
        }
        // As in the table.
        runs.sort_unstable_by(|one, other| one.add().path.cmp(&other.add().path));
        (runs, unread)
    }

    /// Fetches the ends of runs.
    async fn fetch(&self, added: Vec<Add>) -> Vec<(Add, Result<StoredRun, ReadError>)> {
        let opened = stream::iter(added).map(|add| async move {
            let path = self.path(&add.path);
            let opened = StoredRun::open(&*self.objects, self.schema, path, &add).await;
            (add, opened)
        });
        opened.buffered(AT_ONCE).collect().await
    }
}

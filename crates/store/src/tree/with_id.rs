//! Rows by their ID: the spans of a trace, its log records, the points of a series.

use super::stored::ReadError;
use super::{AT_ONCE, ReadView, Tree};
use crate::columns::Columns;
use crate::copies::is_copy;
use crate::memtable::Rows;
use crate::schema::envelope::TENANT;
use crate::sort::Place;
use curtail_otlp::BadRow;
use futures_util::stream::{self, StreamExt as _};
use object_store::path::Path;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;

/// The rows with an ID.
#[derive(Debug)]
pub struct WithId<R> {
    /// Rows of one tenant, in the order of their times; the table's columns.
    pub rows: Columns,
    /// Runs that may have more of them.
    pub unread: Vec<Unread>,
    of: PhantomData<R>,
}

/// A run that was not read.
#[derive(Clone, Debug)]
pub struct Unread {
    /// Which one.
    pub path: Path,
    /// Why.
    pub error: Arc<ReadError>,
}

impl<R: Rows> Tree<R> {
    /// The rows that a tenant has with an ID, which is that of a trace, or of a series of points; with those
    /// that came a moment ago. Where a run cannot be read, it is said, and the others answer.
    pub async fn with_id(&self, tenant: &str, id: u128) -> WithId<R> {
        let all: Vec<_> = (0..R::table().schema().fields().len()).collect();
        self.fields_with_id(tenant, id, &all).await
    }

    /// The same, of some fields alone: among them that of the tenant and that of the times.
    pub async fn fields_with_id(&self, tenant: &str, id: u128, fields: &[usize]) -> WithId<R> {
        let view = self.read_view();
        let mut rows = view.memory_with_id(id);
        let ReadView { runs, unopened: mut unread, .. } = view;
        let objects = self.objects();
        let asked = stream::iter(runs.to_vec()).map(|run| async move {
            let found = run.with_id(objects, (R::table().order().0, id), fields).await;
            (run, found)
        });
        let mut asked = pin!(asked.buffer_unordered(AT_ONCE));
        while let Some((run, found)) = asked.next().await {
            match found {
                Ok(found) => rows.extend(found),
                Err(error) => {
                    unread.push(Unread { path: run.path().clone(), error: error.into() });
                }
            }
        }
        let is_all = fields.len() == R::table().schema().fields().len();
        WithId { rows: of_tenant::<R>(&rows, tenant, is_all), unread, of: PhantomData }
    }
}

impl<R: Rows> WithId<R> {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows as a batch of OTLP, in protobuf.
    ///
    /// # Errors
    /// When what should be JSON in a row is none.
    pub fn batch(&self) -> Result<Vec<u8>, BadRow> {
        R::batch(std::slice::from_ref(&self.rows))
    }
}

/// The rows of a tenant from several sources, in order of time; without copies, if all fields are present.
fn of_tenant<R: Rows>(all: &[Columns], tenant: &str, is_all: bool) -> Columns {
    let mut theirs = Vec::new();
    for (batch, rows) in (0..).zip(all) {
        let (tenants, times) = (rows.coded(TENANT), rows.longs(R::table().order().1));
        for (row, time) in (0..).zip(times) {
            if tenants.text(row as usize) == tenant {
                theirs.push((*time, Place { batch, row }));
            }
        }
    }
    theirs.sort_unstable();
    let mut places = Vec::with_capacity(theirs.len());
    for (_, place) in theirs {
        if !is_all || !is_copy(R::table(), all, &places, place) {
            places.push(place);
        }
    }
    let sources: Vec<_> = all.iter().collect();
    Columns::gather(R::table().schema(), &sources, &places)
}

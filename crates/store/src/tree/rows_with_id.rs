//! Rows by ID, a window at a time, because a trace may have more spans than fit in memory.
//!
//! The times of its rows are read first, 16 bytes a row, and give the order. A window is a range of rows in that order;
//! in a run they are close together, so few pages are read.
//!
//! **Limits**: memtable rows with the ID are copied, at most the size of the memtables.

use super::stored::ReadError;
use super::{AT_ONCE, ReadView, RunSet, StoredRun, Tree, Unread};
use crate::columns::Columns;
use crate::copies::is_copy;
use crate::schema::Table;
use crate::schema::envelope::TENANT;
use crate::sort::Place;
use futures_util::stream::{self, StreamExt as _};
use object_store::ObjectStore;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// The maximum gap between two rows of a run that are read together, with the rows between them.
const GAP_ROWS: u32 = 1_024;

/// The positions of the rows with an ID.
#[derive(Debug)]
pub struct RowsWithId {
    runs: Arc<RunSet>,
    sources: Vec<Source>,
    /// In order of time.
    places: Vec<Place>,
    found: usize,
    unread: Vec<Unread>,
}

/// Some rows with an ID.
#[derive(Debug)]
pub struct Window {
    /// In order of time.
    pub rows: Columns,
    /// Runs with more rows that could not be read.
    pub unread: Vec<Unread>,
}

/// A part of a table with rows of the ID.
#[derive(Debug)]
enum Source {
    Memory(Columns),
    Run {
        run: Arc<StoredRun>,
        group: usize,
        /// The first of these rows in the row group.
        first: usize,
    },
}

/// A source with the tenants and the times of its rows.
type SourceTimes = (Source, Columns);

impl Tree {
    /// Finds the rows of a tenant with an ID, including those in memtables. Only the first `max` in order of time can
    /// be read.
    pub async fn rows_with_id(&self, tenant: &str, id: u128, max: usize) -> RowsWithId {
        let view = self.read_view();
        let (id_field, time_field) = self.table().order;
        let fields = [TENANT, time_field];
        let in_memory = view.memtables.iter().map(|memtable| {
            let rows = memtable.rows_with_id(id);
            let times = rows.only(&fields.into());
            (Source::Memory(rows), times)
        });
        let mut timed: Vec<SourceTimes> = in_memory.collect();
        let ReadView { runs, unopened: mut unread, .. } = view;
        let asked = stream::iter(runs.to_vec()).map(|run| async {
            let found = run.pages_with_id(self.objects(), (id_field, id), &fields).await;
            (run, found)
        });
        // In the order of the runs, so that the order of rows with equal times is deterministic.
        let asked: Vec<_> = asked.buffered(AT_ONCE).collect().await;
        for (run, found) in asked {
            match found {
                Ok(found) => timed.extend(found.into_iter().map(|(group, first, rows)| {
                    (Source::Run { run: Arc::clone(&run), group, first }, rows)
                })),
                Err(error) => {
                    unread.push(Unread { path: run.path().clone(), error: error.into() });
                }
            }
        }
        let mut theirs = Vec::new();
        for (batch, (_, rows)) in (0..).zip(&timed) {
            let (tenants, times) = (rows.coded(TENANT), rows.longs(time_field));
            for (row, time) in (0..).zip(times) {
                if tenants.text(row as usize) == tenant {
                    theirs.push((*time, Place { batch, row }));
                }
            }
        }
        theirs.sort_unstable();
        RowsWithId {
            runs: Arc::clone(&self.runs),
            sources: timed.into_iter().map(|(source, _)| source).collect(),
            found: theirs.len(),
            places: theirs.into_iter().take(max).map(|(_, place)| place).collect(),
            unread,
        }
    }
}

impl RowsWithId {
    /// The table of the rows.
    #[must_use]
    pub fn table(&self) -> &'static Table {
        self.runs.table()
    }

    /// The number of rows that can be read.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.places.len()
    }

    /// The number of rows found, which may be larger.
    #[must_use]
    pub const fn found(&self) -> usize {
        self.found
    }

    /// Whether there are no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Runs that could not be read and may have more rows.
    #[must_use]
    pub fn unread(&self) -> &[Unread] {
        &self.unread
    }

    /// Reads fields of a range of rows, in order of time. If `fields` has all fields, copies within the window are
    /// dropped.
    ///
    /// # Panics
    /// When the range is out of bounds.
    pub async fn window(&self, fields: &[usize], rows: Range<usize>) -> Window {
        let places = &self.places[rows];
        let mut of_sources = vec![Vec::new(); self.sources.len()];
        for place in places {
            of_sources[place.batch as usize].push(place.row);
        }
        let (mut read, mut starts, mut unread) = (Vec::new(), Vec::new(), Vec::new());
        for (source, rows) in self.sources.iter().zip(of_sources) {
            // By the first row of each part: its index in `read`, unless it could not be read.
            let mut parts = Vec::new();
            for part in merge_ranges(rows) {
                match source.read(self.runs.objects(), fields, &part).await {
                    Ok((first, rows)) => {
                        parts.push((first, u32::try_from(read.len()).ok()));
                        read.push(rows);
                    }
                    Err(missing) => {
                        parts.push((part.start, None));
                        unread.push(missing);
                    }
                }
            }
            starts.push(parts);
        }
        let moved = places.iter().filter_map(|place| {
            let parts: &[(u32, Option<u32>)] = &starts[place.batch as usize];
            let (first, batch) = parts[parts.partition_point(|(first, _)| *first <= place.row) - 1];
            Some(Place { batch: batch?, row: place.row - first })
        });
        let table = self.table();
        let is_all = fields.len() == table.schema().fields().len();
        let mut kept = Vec::with_capacity(places.len());
        for place in moved {
            if !is_all || !is_copy(table, &read, &kept, place) {
                kept.push(place);
            }
        }
        let sources: Vec<_> = read.iter().map(|rows: &Cow<'_, Columns>| &**rows).collect();
        Window { rows: Columns::gather(table.schema(), &sources, &kept), unread }
    }
}

impl Source {
    /// Reads rows; returns also the number of the first.
    async fn read(
        &self,
        objects: &dyn ObjectStore,
        fields: &[usize],
        rows: &Range<u32>,
    ) -> Result<(u32, Cow<'_, Columns>), Unread> {
        match self {
            Self::Memory(all) => Ok((0, Cow::Borrowed(all))),
            Self::Run { run, group, first } => {
                let of_group = first + rows.start as usize..first + rows.end as usize;
                let read = run.rows(objects, *group, fields, of_group).await;
                let unread =
                    |error: ReadError| Unread { path: run.path().clone(), error: error.into() };
                read.map(|read| (rows.start, Cow::Owned(read))).map_err(unread)
            }
        }
    }
}

/// Ranges that cover the rows and few others.
fn merge_ranges(mut rows: Vec<u32>) -> Vec<Range<u32>> {
    rows.sort_unstable();
    let mut parts: Vec<Range<u32>> = Vec::new();
    for row in rows {
        match parts.last_mut() {
            Some(last) if row - last.end <= GAP_ROWS => last.end = row + 1,
            _ => parts.push(row..row + 1),
        }
    }
    parts
}

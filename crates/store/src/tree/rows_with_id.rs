//! Reads rows by ID, a window at a time, because a trace may have more spans than fit in memory.
//!
//! The times of the rows are read first, 16 bytes a row, and give the order. A window is a range of rows in this order.
//! These rows are close together in a run, so few pages are read.
//!
//! **Limits**: memtable rows with the ID are copied, at most the size of the memtables.

use super::{AT_ONCE, ReadView, RunSet, StoredRun, Tree, Unread};
use crate::columns::Columns;
use crate::copies::CopyFinder;
use crate::schema::Table;
use crate::schema::envelope::TENANT;
use crate::sort::RowPosition;
use futures_util::stream::{self, StreamExt as _};
use object_store::ObjectStore;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// The maximum gap between two rows of a run that are read together, with the rows between them.
const GAP_ROWS: u32 = 1_024;

/// The rows with an ID, found but not read.
#[derive(Debug)]
pub struct RowsWithId {
    runs: Arc<RunSet>,
    sources: Vec<Source>,
    /// The positions of the rows, in order of time.
    positions: Vec<RowPosition>,
    found: usize,
    unread: Vec<Unread>,
}

/// Some rows with an ID.
#[derive(Debug)]
pub struct Window {
    /// The rows, in order of time.
    pub rows: Columns,
    /// Runs with more rows that could not be read.
    pub unread: Vec<Unread>,
}

/// A memtable, or a part of a row group, that has rows with the ID.
#[derive(Debug)]
enum Source {
    Memory(Columns),
    Run {
        run: Arc<StoredRun>,
        group: usize,
        /// The number of the first of these rows in the row group.
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
                Err(error) => unread.push(run.unread(error)),
            }
        }
        let mut theirs = Vec::new();
        for (batch, (_, rows)) in (0..).zip(&timed) {
            let (tenants, times) = (rows.coded(TENANT), rows.longs(time_field));
            for (row, time) in (0..).zip(times) {
                if tenants.text(row as usize) == tenant {
                    theirs.push((*time, RowPosition { batch, row }));
                }
            }
        }
        theirs.sort_unstable();
        RowsWithId {
            runs: Arc::clone(&self.runs),
            sources: timed.into_iter().map(|(source, _)| source).collect(),
            found: theirs.len(),
            positions: theirs.into_iter().take(max).map(|(_, position)| position).collect(),
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
        self.positions.len()
    }

    /// The number of rows found, also those beyond the maximum.
    #[must_use]
    pub const fn found(&self) -> usize {
        self.found
    }

    /// Whether there are no rows.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.positions.is_empty()
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
        let positions = &self.positions[rows];
        let mut of_sources = vec![Vec::new(); self.sources.len()];
        for position in positions {
            of_sources[position.batch as usize].push(position.row);
        }
        let (mut read, mut starts, mut unread) = (Vec::new(), Vec::new(), Vec::new());
        for (source, rows) in self.sources.iter().zip(of_sources) {
            // The first row of each part, and the index of the part in `read`, unless it could not be read.
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
        let moved = positions.iter().filter_map(|at| {
            let parts: &[(u32, Option<u32>)] = &starts[at.batch as usize];
            let (first, batch) = parts[parts.partition_point(|(first, _)| *first <= at.row) - 1];
            Some(RowPosition { batch: batch?, row: at.row - first })
        });
        let table = self.table();
        let is_all = fields.len() == table.schema().fields().len();
        let mut copies = CopyFinder::default();
        let is_kept = |at: &RowPosition| !is_all || !copies.add_row(table, &read, *at);
        let kept: Vec<_> = moved.filter(is_kept).collect();
        let sources: Vec<_> = read.iter().map(|rows: &Cow<'_, Columns>| &**rows).collect();
        Window { rows: Columns::gather(table.schema(), &sources, &kept), unread }
    }
}

impl Source {
    /// Reads a range of rows, or more. Returns also the number of the first row that was read.
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
                let read = read.map_err(|error| run.unread(error))?;
                Ok((rows.start, Cow::Owned(read)))
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

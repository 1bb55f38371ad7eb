//! Reads the spans that a filter selects, in parts, several of them in parallel.

use super::filter::{Filter, took};
use super::span_field::SpanField;
use crate::columns::Columns;
use crate::parallel::{run_in_order, worker_count};
use crate::run::PageMaximum;
use crate::schema::spans::{DURATION, SLOWEST, SPANS, START};
use crate::tree::{ReadError, ReadView, StoredRun, Tree, Unread};
use futures_util::StreamExt as _;
use object_store::ObjectStore;
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::pin::pin;
use std::sync::Arc;

/// The number of parts in parallel: at least 16, so that they wait for a remote object store together. Two for each
/// worker keep it busy while one part waits for its turn in the order.
const PARTS_MIN: usize = 16;
const PARTS_PER_WORKER: usize = 2;

/// Some rows of a run that may match.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) run: Arc<StoredRun>,
    pub(super) group: usize,
    pub(super) rows: Range<usize>,
    pub(super) bounds: Bounds,
}

/// The extremes of the starts and of the durations ([took]) of some rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) starts: RangeInclusive<i64>,
    pub(super) durations: RangeInclusive<i64>,
}

impl Bounds {
    /// The bounds of rows about which nothing is known.
    pub(super) const NONE: Self =
        Self { starts: i64::MIN..=i64::MAX, durations: i64::MIN..=i64::MAX };
}

impl Part {
    pub(super) async fn read(
        &self,
        objects: &dyn ObjectStore,
        fields: &BTreeSet<usize>,
        keys: Option<&BTreeSet<String>>,
    ) -> Result<Columns, ReadError> {
        let fields: Vec<_> = fields.iter().copied().collect();
        let wanted = self.run.run().want(self.group, &fields, self.rows.clone());
        self.run.read(objects, &wanted.with_keys(keys)).await
    }
}

/// The columns of a query besides those of its filter.
#[derive(Clone, Debug, Default)]
pub(super) struct Projection {
    pub(super) fields: BTreeSet<usize>,
    /// The keys that the query looks up in maps of attributes; [`None`]: all.
    pub(super) keys: Option<BTreeSet<String>>,
}

impl Projection {
    /// These fields, and the columns that `values` need.
    pub(super) fn of<'a>(
        fields: impl IntoIterator<Item = usize>,
        values: impl IntoIterator<Item = &'a SpanField>,
    ) -> Self {
        let (mut fields, mut keys) = (BTreeSet::from_iter(fields), BTreeSet::new());
        for value in values {
            value.read(&mut fields);
            value.add_key(&mut keys);
        }
        Self { fields, keys: Some(keys) }
    }
}

/// Ends a scan, because enough was found.
pub(super) struct ScanStopped;

/// The shared state of the tasks of a query.
struct Scan<F> {
    objects: Arc<dyn ObjectStore>,
    filter: Filter,
    fields: BTreeSet<usize>,
    keys: Option<BTreeSet<String>>,
    compute: F,
}

/// The rows of one task.
enum Source {
    Memtable(Arc<Columns>),
    Part(Part),
}

impl<F, T> Scan<F>
where
    F: Fn(&Columns, Vec<usize>) -> T,
{
    /// The partial result of some rows; [`None`] if none of the rows is selected.
    async fn partial(&self, source: Source) -> Result<Option<T>, Unread> {
        let compute = |rows: &Columns, selected: Vec<usize>| {
            (!selected.is_empty()).then(|| (self.compute)(rows, selected))
        };
        match source {
            Source::Memtable(rows) => Ok(compute(&rows, self.filter.rows(&rows))),
            Source::Part(part) => {
                let selected = self.select(&part).await;
                let (rows, selected) = selected.map_err(|error| part.run.unread(error))?;
                Ok(compute(&rows, selected))
            }
        }
    }

    /// Selects rows and reads their fields. If the filter has conditions, its fields are read first, then those of the
    /// query, from the first to the last selected row.
    async fn select(&self, part: &Part) -> Result<(Columns, Vec<usize>), ReadError> {
        let (objects, mut fields) = (&*self.objects, self.filter.fields(&part.bounds));
        if self.filter.conditions.is_empty() {
            fields.extend(&self.fields);
        }
        let keys = self.keys.as_ref();
        let rows = part.read(objects, &fields, keys).await?;
        let mut selected = self.filter.select(&rows, &part.bounds);
        let (Some(first), Some(last)) = (selected.first().copied(), selected.last().copied())
        else {
            return Ok((rows, selected));
        };
        if self.fields.is_subset(&fields) {
            return Ok((rows, selected));
        }
        selected.iter_mut().for_each(|row| *row -= first);
        let rows = part.rows.start + first..part.rows.start + last + 1;
        let selected_part = Part { rows, ..part.clone() };
        Ok((selected_part.read(objects, &self.fields, keys).await?, selected))
    }
}

impl Tree {
    /// A view of the table of spans.
    ///
    /// # Panics
    /// When this is not the table of spans.
    pub(super) fn view_of_spans(&self) -> ReadView {
        assert!(std::ptr::eq(self.table(), &*SPANS), "only spans are queried");
        self.read_view()
    }

    /// Computes partial results of the spans that a filter selects, for several parts in parallel, and merges them in
    /// the order of the parts: memtables, then runs, the last run first. `compute` gets the projected columns, and at
    /// least one selected row. An error of `merge` ends the scan. Returns also the runs that could not be read.
    pub(super) async fn scan<T, E>(
        &self,
        filter: &Filter,
        projection: Projection,
        compute: impl Fn(&Columns, Vec<usize>) -> T + Send + Sync + 'static,
        mut merge: impl FnMut(T) -> Result<(), E>,
    ) -> (Vec<Unread>, Result<(), E>)
    where
        T: Send + 'static,
    {
        let Projection { fields, keys } = projection;
        let all = filter.fields(&Bounds::NONE).union(&fields).copied().collect();
        let view = self.view_of_spans();
        let memory = view.memory(&all);
        let ReadView { runs, unopened: mut unread, .. } = view;
        let parts = together(runs.iter().rev().flat_map(|run| pages(run, filter)));
        let scan = Arc::new(Scan {
            objects: Arc::clone(self.objects()),
            filter: filter.clone(),
            fields,
            keys: keys.map(|keys| keys.union(&filter.keys()).cloned().collect()),
            compute,
        });
        let memory = memory.into_iter().map(Source::Memtable);
        let tasks = memory.chain(parts.into_iter().map(Source::Part)).map(|source| {
            let scan = Arc::clone(&scan);
            async move { scan.partial(source).await }
        });
        let mut partials =
            pin!(run_in_order(PARTS_MIN.max(PARTS_PER_WORKER * worker_count()), tasks));
        while let Some(partial) = partials.next().await {
            match partial.map(|partial| partial.map_or(Ok(()), &mut merge)) {
                Ok(Ok(())) => {}
                Ok(ended) => return (unread, ended),
                Err(missing) => unread.push(missing),
            }
        }
        (unread, Ok(()))
    }
}

/// The pages of a run that may have spans that a filter selects. If the filter names a service, the longest duration of
/// a page is that of the service's spans.
pub(super) fn pages<'a>(
    run: &'a Arc<StoredRun>,
    filter: &'a Filter,
) -> impl Iterator<Item = Part> + 'a {
    let of_service = filter.service().map(|service| run.run().maxima(SLOWEST, service));
    (0..run.run().groups()).flat_map(move |group| {
        let starts = run.run().extremes(group, START);
        let durations = run.run().extremes(group, DURATION);
        // Both columns have the same pages, because columns of numbers are always divided into pages.
        starts.zip(durations).enumerate().filter_map(move |(page, (start, duration))| {
            let (rows, first, last) = start;
            let (_, shortest, longest) = duration;
            let known = of_service.map_or(PageMaximum::Unknown, |of| of.in_page(group, page));
            let longest = match known {
                PageMaximum::Unknown => longest,
                PageMaximum::NoRow => return None,
                PageMaximum::Is(maximum) => maximum,
            };
            let bounds = Bounds { starts: first..=last, durations: took(shortest)..=took(longest) };
            let run = Arc::clone(run);
            filter.may_have(&bounds).then_some(Part { run, group, rows, bounds })
        })
    })
}

/// Joins adjacent pages.
fn together(pages: impl Iterator<Item = Part>) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for page in pages {
        match parts.last_mut() {
            Some(last)
                if last.group == page.group
                    && last.rows.end == page.rows.start
                    && Arc::ptr_eq(&last.run, &page.run) =>
            {
                last.rows.end = page.rows.end;
                last.bounds = Bounds {
                    starts: hull(&last.bounds.starts, &page.bounds.starts),
                    durations: hull(&last.bounds.durations, &page.bounds.durations),
                };
            }
            _ => parts.push(page),
        }
    }
    parts
}

fn hull(one: &RangeInclusive<i64>, other: &RangeInclusive<i64>) -> RangeInclusive<i64> {
    *one.start().min(other.start())..=*one.end().max(other.end())
}

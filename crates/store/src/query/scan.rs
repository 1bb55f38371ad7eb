//! Looking at spans, a part at a time.

use super::filter::{Filter, took};
use crate::columns::Columns;
use crate::memtable::SpanRows;
use crate::run::Known;
use crate::schema::spans::{DURATION, START};
use crate::tree::{Moment, ReadError, StoredRun, Tree, Unread};
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// Some rows of a run, which may have what is asked for.
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
    /// Of rows of which nothing is known.
    pub(super) const NONE: Self =
        Self { starts: i64::MIN..=i64::MAX, durations: i64::MIN..=i64::MAX };
}

impl Part {
    pub(super) async fn read(
        &self,
        tree: &Tree<SpanRows>,
        fields: &BTreeSet<usize>,
    ) -> Result<Columns, ReadError> {
        let fields: Vec<_> = fields.iter().copied().collect();
        self.run.rows(tree.objects(), self.group, &fields, self.rows.clone()).await
    }

    pub(super) fn unread(&self, error: ReadError) -> Unread {
        Unread { path: self.run.path().clone(), error: Arc::new(error) }
    }
}

impl Tree<SpanRows> {
    /// Gives all spans that are asked for, some at a time, those of the last runs first: their columns, and
    /// their rows in them. Besides what the filter needs, `fields` are read. Returns the runs that may have more.
    pub(super) async fn each<E>(
        &self,
        filter: &Filter,
        fields: &BTreeSet<usize>,
        mut take: impl FnMut(&Columns, Vec<usize>) -> Result<(), E>,
    ) -> Result<Vec<Unread>, E> {
        let read = |bounds: &Bounds| filter.fields(bounds).union(fields).copied().collect();
        let Moment { memory, runs, unopened: mut unread } = self.moment(&read(&Bounds::NONE));
        for rows in &memory {
            take(rows, filter.rows(rows))?;
        }
        for part in together(runs.iter().rev().flat_map(|run| pages(run, filter))) {
            match part.read(self, &read(&part.bounds)).await {
                Ok(rows) => take(&rows, filter.select(&rows, &part.bounds))?,
                Err(error) => unread.push(part.unread(error)),
            }
        }
        Ok(unread)
    }
}

/// The pages of a run that may have spans of these starts and durations, and of the service that is asked for; the
/// bounds are those of spans of that service.
pub(super) fn pages<'a>(
    run: &'a Arc<StoredRun>,
    filter: &'a Filter,
) -> impl Iterator<Item = Part> + 'a {
    let of_service = filter.service().map(|service| run.run().slowest(service));
    (0..run.run().groups()).flat_map(move |group| {
        let starts = run.run().extremes(group, START);
        let durations = run.run().extremes(group, DURATION);
        // Both columns have pages of the same rows: no number is the same in all rows.
        starts.zip(durations).enumerate().filter_map(move |(page, (start, duration))| {
            let (rows, first, last) = start;
            let (_, shortest, longest) = duration;
            let known = of_service.map_or(Known::Nothing, |of| of.in_page(group, page));
            let longest = match known {
                Known::Nothing => longest,
                Known::None => return None,
                Known::Most(most) => most,
            };
            let bounds = Bounds { starts: first..=last, durations: took(shortest)..=took(longest) };
            let run = Arc::clone(run);
            filter.may_have(&bounds).then_some(Part { run, group, rows, bounds })
        })
    })
}

/// Pages that follow each other, as one.
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

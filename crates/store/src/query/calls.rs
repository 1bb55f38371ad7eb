//! The calls between services: spans whose parent is a span of another service.
//!
//! A query reads a run in parts. Spans of a trace are adjacent in a run, so the parent of a call is looked up only in
//! the part with the call, the part before and the part after.
//!
//! **Limits**: a call whose two spans are in different runs is not counted until a merge; the query ends early at more
//! than [`PAIRS_MAX`] pairs of services.

use super::filter::Filter;
use super::measure::weight;
use super::scan::{Projection, ScanStopped};
use crate::columns::Columns;
use crate::schema::envelope::SERVICE;
use crate::schema::spans::{PARENT_ID, SPAN_ID, TRACE_ID, WEIGHT};
use crate::tree::{Tree, Unread};
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// Maximum number of pairs: a picture of more pairs is unreadable.
const PAIRS_MAX: usize = 10_000;

/// The calls between services.
#[derive(Debug, Default)]
pub struct ServiceCalls {
    /// The number of calls by the calling and the called service.
    pub pairs: BTreeMap<(String, String), u64>,
    /// Whether there are more pairs.
    pub is_cut: bool,
    /// Runs that could not be read and may have more calls.
    pub unread: Vec<Unread>,
}

/// The IDs of a trace and of one of its spans.
type Id = (u128, u64);

/// The calls by pair of services.
type Pairs = BTreeMap<(String, String), u64>;

/// A call whose parent has not been found yet.
#[derive(Debug)]
struct Call {
    parent: Id,
    service: String,
    weight: u64,
}

/// The calls among some rows.
#[derive(Debug, Default)]
struct Partial {
    pairs: Pairs,
    /// The service of each span, as an index of `names`.
    services: HashMap<Id, u32>,
    /// The names of services. The first name is that of spans without a service.
    names: Vec<String>,
    /// Calls whose parents are not among the rows.
    open: Vec<Call>,
}

impl Tree {
    /// Counts the calls from one service to another if a filter selects both the call and its parent.
    pub async fn calls(&self, filter: &Filter) -> ServiceCalls {
        let projection = Projection::of([TRACE_ID, SPAN_ID, PARENT_ID, SERVICE, WEIGHT], []);
        let (mut pairs, mut last) = (Pairs::new(), Partial::default());
        let partial = |rows: &Columns, selected: Vec<usize>| Partial::of_rows(rows, &selected);
        let scanned = self.scan(filter, projection, partial, |mut partial: Partial| {
            partial.follow(&last);
            for (pair, count) in std::mem::take(&mut partial.pairs) {
                *pairs.entry(pair).or_default() += count;
            }
            last = partial;
            if pairs.len() > PAIRS_MAX { Err(ScanStopped) } else { Ok(()) }
        });
        let (unread, ended) = scanned.await;
        ServiceCalls { pairs, is_cut: ended.is_err(), unread }
    }
}

impl Partial {
    fn of_rows(rows: &Columns, selected: &[usize]) -> Self {
        let (traces, spans) = (rows.wide(TRACE_ID), rows.narrow(SPAN_ID));
        let (parents, services) = (rows.narrow(PARENT_ID), rows.coded(SERVICE));
        let names = std::iter::once(String::new())
            .chain(services.dictionary.iter().map(|name| String::from_utf8_lossy(name).into()));
        let mut partial = Self { names: names.collect(), ..Self::default() };
        partial
            .services
            .extend(selected.iter().map(|row| ((traces[*row], spans[*row]), services.code(*row))));
        let mut counts = HashMap::<(u32, u32), u64>::new();
        for row in selected {
            let parent = (traces[*row], parents.get(*row).copied().unwrap_or(0));
            if parent.1 == 0 {
                continue;
            }
            let (called, weight) = (services.code(*row), weight(rows.coded(WEIGHT), *row));
            if let Some(calls) = partial.services.get(&parent) {
                *counts.entry((*calls, called)).or_default() += weight;
                continue;
            }
            let service = partial.names[called as usize].clone();
            partial.open.push(Call { parent, service, weight });
        }
        for ((calls, called), count) in counts {
            let names = &partial.names;
            add(&mut partial.pairs, &names[calls as usize], &names[called as usize], count);
        }
        partial
    }

    /// Counts the calls between these rows and the rows `before` them.
    fn follow(&mut self, before: &Self) {
        let Self { pairs, services, names, open } = self;
        open.retain(|call| match before.services.get(&call.parent) {
            None => true,
            Some(calls) => {
                add(pairs, &before.names[*calls as usize], &call.service, call.weight);
                false
            }
        });
        for call in &before.open {
            if let Some(calls) = services.get(&call.parent) {
                add(pairs, &names[*calls as usize], &call.service, call.weight);
            }
        }
    }
}

/// Counts calls, except those of a service to itself.
fn add(pairs: &mut Pairs, calls: &str, called: &str, count: u64) {
    if calls != called {
        *pairs.entry((calls.to_owned(), called.to_owned())).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::Memtable;
    use crate::schema::spans::SPANS;
    use curtail_otlp::{BatchWriter, Decoded, Limits, ResourceText, ScopeText, Signal, SpanRow};

    /// Of a trace, a span, its parent and its service.
    type Sent = (u128, u64, u64, &'static str);

    fn columns(spans: &[Sent]) -> Columns {
        let mut writer = BatchWriter::new();
        for (trace_id, span_id, parent_id, service) in spans {
            let attributes = format!(r#"{{"service.name":"{service}"}}"#);
            let resource = ResourceText { attributes: &attributes, ..ResourceText::default() };
            let (trace_id, span_id, parent_id) = (*trace_id, *span_id, *parent_id);
            let row = SpanRow { trace_id, span_id, parent_id, ..SpanRow::default() };
            writer.span(&resource, &ScopeText::default(), &row).expect("plain JSON");
        }
        let batch = writer.finish();
        let (rows, _) = Decoded::of(Signal::Traces, &batch, &Limits::default()).expect("a batch");
        let mut memtable = Memtable::new(&SPANS);
        memtable.insert("shop", &batch, &rows);
        memtable.columns().clone()
    }

    fn counted(parts: &[&[Sent]]) -> Pairs {
        let mut last = Partial::default();
        let mut pairs = Pairs::new();
        for spans in parts {
            let rows = columns(spans);
            let selected: Vec<_> = (0..rows.len()).collect();
            let mut partial = Partial::of_rows(&rows, &selected);
            partial.follow(&last);
            for (pair, count) in &partial.pairs {
                *pairs.entry(pair.clone()).or_default() += count;
            }
            last = partial;
        }
        pairs
    }

    #[test]
    fn a_call_is_counted_once_wherever_a_trace_is_cut() {
        let all = [
            (1, 10, 0, "front"),
            (1, 11, 10, "cart"),
            (1, 12, 10, "cart"),
            (1, 13, 11, "stock"),
            (1, 14, 13, "stock"),
            (2, 10, 99, "cart"),
            (2, 11, 10, "front"),
        ];
        let pair = |calls: &str, called: &str| (calls.to_owned(), called.to_owned());
        let wanted = BTreeMap::from([
            (pair("front", "cart"), 2),
            (pair("cart", "stock"), 1),
            (pair("cart", "front"), 1),
        ]);
        let mut other_way: Vec<_> = all.to_vec();
        other_way.reverse();
        for spans in [&all[..], &other_way] {
            for cut in 0..=spans.len() {
                let (one, other) = spans.split_at(cut);
                assert_eq!(counted(&[one, other]), wanted, "cut at {cut}");
            }
        }
    }
}

//! Which services call which: spans whose parent is a span of another service.
//!
//! The spans of a trace lie together in a run, so a parent is looked for among the rows that are looked at together with
//! the call, and among those before and after.
//!
//! **Limits**: a call is not counted when its two spans came so far apart that they are in different runs which were not
//! merged yet; [`PAIRS_MAX`] pairs of services.

use super::filter::Filter;
use super::measure::weight;
use crate::columns::Columns;
use crate::memtable::SpanRows;
use crate::schema::envelope::SERVICE;
use crate::schema::spans::{PARENT_ID, SPAN_ID, TRACE_ID, WEIGHT};
use crate::tree::{Tree, Unread};
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Nobody looks at a picture of more.
const PAIRS_MAX: usize = 10_000;

/// Who calls whom.
#[derive(Debug, Default)]
pub struct Calls {
    /// How many calls there are, by the service that calls and the one that is called.
    pub pairs: BTreeMap<(String, String), u64>,
    /// There are more of them.
    pub is_cut: bool,
    /// Runs that may have more.
    pub unread: Vec<Unread>,
}

/// Enough was found.
struct Enough;

/// A span of a trace.
type Id = (u128, u64);

/// A call of which the parent has not been found yet.
struct Call {
    parent: Id,
    service: String,
    weight: u64,
}

/// Rows that were looked at together.
#[derive(Default)]
struct Part {
    /// The service of each span, by its number.
    services: HashMap<Id, u32>,
    /// By these numbers; none has number zero.
    names: Vec<String>,
    /// Calls whose parent is not in it.
    open: Vec<Call>,
}

impl Tree<SpanRows> {
    /// Counts the calls from one service to another that a filter lets through, with the spans that they come from.
    pub async fn calls(&self, filter: &Filter) -> Calls {
        let fields = BTreeSet::from([TRACE_ID, SPAN_ID, PARENT_ID, SERVICE, WEIGHT]);
        let (mut pairs, mut before) = (BTreeMap::new(), Part::default());
        let looked = self.each(filter, &fields, |rows, selected| {
            before = before.next(rows, &selected, &mut pairs);
            if pairs.len() > PAIRS_MAX { Err(Enough) } else { Ok(()) }
        });
        let looked = looked.await;
        let is_cut = looked.is_err();
        Calls { pairs, is_cut, unread: looked.unwrap_or_default() }
    }
}

impl Part {
    /// The rows that follow. Calls among them, and between them and these, are counted.
    fn next(
        &self,
        rows: &Columns,
        selected: &[usize],
        pairs: &mut BTreeMap<(String, String), u64>,
    ) -> Self {
        let (traces, spans) = (rows.wide(TRACE_ID), rows.narrow(SPAN_ID));
        let (parents, services) = (rows.narrow(PARENT_ID), rows.coded(SERVICE));
        let names = std::iter::once(String::new())
            .chain(services.dictionary.iter().map(|name| String::from_utf8_lossy(name).into()));
        let mut part = Self { names: names.collect(), ..Self::default() };
        part.services
            .extend(selected.iter().map(|row| ((traces[*row], spans[*row]), services.code(*row))));
        let mut counts = HashMap::<(u32, u32), u64>::new();
        for row in selected {
            let parent = (traces[*row], parents.get(*row).copied().unwrap_or(0));
            if parent.1 == 0 {
                continue;
            }
            let (called, weight) = (services.code(*row), weight(rows.coded(WEIGHT), *row));
            if let Some(calls) = part.services.get(&parent) {
                *counts.entry((*calls, called)).or_default() += weight;
                continue;
            }
            let service = part.names[called as usize].clone();
            let call = Call { parent, service, weight };
            if !self.count(&call, pairs) {
                part.open.push(call);
            }
        }
        for ((calls, called), count) in counts {
            add(pairs, &part.names[calls as usize], &part.names[called as usize], count);
        }
        for call in &self.open {
            part.count(call, pairs);
        }
        part
    }

    /// Counts a call, if it comes from here; returns whether it does.
    fn count(&self, call: &Call, pairs: &mut BTreeMap<(String, String), u64>) -> bool {
        let Some(calls) = self.services.get(&call.parent) else { return false };
        add(pairs, &self.names[*calls as usize], &call.service, call.weight);
        true
    }
}

/// What a service does within itself is no call.
fn add(pairs: &mut BTreeMap<(String, String), u64>, calls: &str, called: &str, count: u64) {
    if calls != called {
        *pairs.entry((calls.to_owned(), called.to_owned())).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::Memtable;
    use curtail_otlp::{Limits, ResourceText, ScopeText, SpanRow, Spans, TracesWriter};

    /// Of a trace, a span, its parent and its service.
    type Sent = (u128, u64, u64, &'static str);

    fn columns(spans: &[Sent]) -> Columns {
        let mut writer = TracesWriter::new();
        for (trace_id, span_id, parent_id, service) in spans {
            let attributes = format!(r#"{{"service.name":"{service}"}}"#);
            let resource = ResourceText { attributes: &attributes, ..ResourceText::default() };
            let (trace_id, span_id, parent_id) = (*trace_id, *span_id, *parent_id);
            let row = SpanRow { trace_id, span_id, parent_id, ..SpanRow::default() };
            writer.span(&resource, &ScopeText::default(), &row).expect("plain JSON");
        }
        let batch = writer.finish();
        let (rows, _) = Spans::decode(&batch, &Limits::default()).expect("a batch");
        let mut memtable = Memtable::<SpanRows>::default();
        memtable.insert("shop", &batch, &rows);
        memtable.columns().clone()
    }

    fn counted(parts: &[&[Sent]]) -> BTreeMap<(String, String), u64> {
        let (mut pairs, mut before) = (BTreeMap::new(), Part::default());
        for spans in parts {
            let rows = columns(spans);
            let selected: Vec<_> = (0..rows.len()).collect();
            before = before.next(&rows, &selected, &mut pairs);
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

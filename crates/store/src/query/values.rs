//! The values of a field, and the keys of attributes, for completion in query editors.

use super::filter::Filter;
use super::measure::weight;
use super::scan::{Projection, ScanStopped};
use super::span_field::SpanField;
use super::value::Value;
use crate::columns::{Columns, Values, text};
use crate::schema::envelope::{MAPS, RESOURCE, SCOPE};
use crate::schema::spans::{EVENTS, LINKS, SPANS, WEIGHT};
use crate::tree::{Tree, Unread};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Maximum number of spans whose keys are read, those of the last runs first: maps are the largest columns.
const KEYED_MAX: usize = 2 << 20;

/// Maximum number of keys. If there are more, keys contain values.
const KEYS_MAX: usize = 10_000;

/// A value, and the number of its spans.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ValueCount {
    /// The kind, as in [`Value::kind`].
    pub kind: &'static str,
    /// The value as text.
    pub text: String,
    /// The number of spans.
    pub count: u64,
}

/// The values of a field.
#[derive(Debug, Default)]
pub struct ValueCounts {
    /// The values in descending order of their counts.
    pub values: Vec<ValueCount>,
    /// Whether there are more values.
    pub is_cut: bool,
    /// Runs that could not be read and may have more values.
    pub unread: Vec<Unread>,
}

/// Keys of attributes.
#[derive(Debug, Default)]
pub struct AttributeKeys {
    /// Keys of spans.
    pub spans: BTreeSet<String>,
    /// Keys of resources.
    pub resources: BTreeSet<String>,
    /// Keys of scopes, the libraries that made the spans.
    pub scopes: BTreeSet<String>,
    /// Keys of events.
    pub events: BTreeSet<String>,
    /// Keys of links.
    pub links: BTreeSet<String>,
    /// Runs that could not be read and may have more keys.
    pub unread: Vec<Unread>,
}

impl Tree {
    /// At most `count` distinct values of a field among the selected spans. The values of a list are its elements. A
    /// field that differs in nearly every span (an ID, a duration) has no values here.
    pub async fn values(&self, filter: &Filter, of: &SpanField, count: usize) -> ValueCounts {
        if !of.is_coded() && !matches!(of, SpanField::Entry(_)) {
            return ValueCounts::default();
        }
        let projection = Projection::of([WEIGHT], [of]);
        let mut all = BTreeMap::<_, u64>::new();
        let field = of.clone();
        let partial = move |rows: &Columns, selected: Vec<usize>| field.count(rows, &selected);
        let scanned = self.scan(filter, projection, partial, |partial| {
            for (value, spans) in partial {
                *all.entry(value).or_default() += spans;
            }
            if all.len() > count { Err(ScanStopped) } else { Ok(()) }
        });
        let (unread, ended) = scanned.await;
        let value = |((kind, text), count)| ValueCount { kind, text, count };
        let mut values: Vec<_> = all.into_iter().map(value).collect();
        values.sort_by(|one, other| other.count.cmp(&one.count).then_with(|| one.cmp(other)));
        values.truncate(count);
        ValueCounts { values, is_cut: ended.is_err(), unread }
    }

    /// The keys of attributes of the last two million spans, and of their resources, scopes, events and links.
    pub async fn keys(&self, filter: &Filter) -> AttributeKeys {
        let mut fields = BTreeSet::from([RESOURCE, SCOPE, EVENTS, LINKS]);
        fields.extend(MAPS.map(|(field, _)| field));
        fields.extend(SPANS.schema().keys.iter().map(|(field, ..)| *field));
        let projection = Projection { fields, keys: None };
        let (mut keys, mut looked_at) = (AttributeKeys::default(), 0);
        let partial = |rows: &Columns, selected: Vec<usize>| {
            (AttributeKeys::of_rows(rows, &selected), selected.len())
        };
        let scanned = self.scan(filter, projection, partial, |(partial, rows)| {
            keys.merge(partial);
            looked_at += rows;
            if looked_at > KEYED_MAX { Err(ScanStopped) } else { Ok(()) }
        });
        keys.unread = scanned.await.0;
        keys
    }
}

impl SpanField {
    /// The kinds and texts of the distinct values of some rows, with the number of spans of each.
    fn count(&self, rows: &Columns, selected: &[usize]) -> BTreeMap<(&'static str, String), u64> {
        let weights = rows.coded(WEIGHT);
        let (coding, lists) = self.coding_and_lists(rows);
        let mut of_codes = vec![0_u64; coding.values.len() + 1];
        for row in selected {
            match lists {
                None => of_codes[coding.code(*row) as usize] += weight(weights, *row),
                // A span counts once, even if several of its entries have the value.
                Some(lists) => coding
                    .codes_in(lists.entries(*row))
                    .into_iter()
                    .for_each(|code| of_codes[code as usize] += weight(weights, *row)),
            }
        }
        let mut counts = BTreeMap::new();
        let each = coding.values.iter().zip(of_codes.into_iter().skip(1));
        for (value, spans) in each.filter(|(_, spans)| *spans > 0) {
            let one = std::slice::from_ref(value);
            let elements = if let Value::List(all) = value { &**all } else { one };
            for value in elements {
                *counts.entry((value.kind(), value.to_string())).or_default() += spans;
            }
        }
        counts
    }
}

impl AttributeKeys {
    fn of_rows(rows: &Columns, selected: &[usize]) -> Self {
        let mut all = Self::default();
        for (field, key, _) in &SPANS.schema().keys {
            let coded = rows.coded(*field);
            if selected.iter().any(|row| coded.code(*row) != 0) {
                add(&mut all.spans, key);
            }
        }
        for (field, _) in MAPS {
            for key in used(rows, field, 0, selected) {
                add(&mut all.spans, text(key));
            }
        }
        for (field, keys) in [(RESOURCE, &mut all.resources), (SCOPE, &mut all.scopes)] {
            let coded = rows.coded(field);
            let codes: HashSet<_> = selected.iter().map(|row| coded.code(*row)).collect();
            for code in codes.into_iter().filter(|code| *code != 0) {
                add_members(keys, coded.dictionary.get(code));
            }
        }
        for (field, part, keys) in [(EVENTS, 2, &mut all.events), (LINKS, 3, &mut all.links)] {
            for json in used(rows, field, part, selected) {
                add_members(keys, json);
            }
        }
        all
    }

    fn merge(&mut self, later: Self) {
        let Self { spans, resources, scopes, events, links, .. } = later;
        for (all, later) in [
            (&mut self.spans, spans),
            (&mut self.resources, resources),
            (&mut self.scopes, scopes),
            (&mut self.events, events),
            (&mut self.links, links),
        ] {
            later.iter().for_each(|key| add(all, key));
        }
    }
}

/// The distinct values of a part of the entries of some rows.
fn used<'a>(rows: &'a Columns, field: usize, part: usize, selected: &[usize]) -> Vec<&'a [u8]> {
    let lists = rows.lists(field);
    let Some(Values::Coded(coded)) = lists.parts().get(part) else { return Vec::new() };
    let mut is_used = vec![false; coded.dictionary.len() as usize + 1];
    for entry in selected.iter().flat_map(|row| lists.entries(*row)) {
        is_used[coded.code(entry) as usize] = true;
    }
    coded
        .dictionary
        .iter()
        .zip(&is_used[1..])
        .filter(|(_, is)| **is)
        .map(|(value, _)| value)
        .collect()
}

fn add_members(keys: &mut BTreeSet<String>, json: &[u8]) {
    if let Ok(serde_json::Value::Object(object)) = serde_json::from_slice(json) {
        object.keys().for_each(|key| add(keys, key));
    }
}

fn add(keys: &mut BTreeSet<String>, key: &str) {
    if keys.len() < KEYS_MAX && !keys.contains(key) {
        keys.insert(key.to_owned());
    }
}

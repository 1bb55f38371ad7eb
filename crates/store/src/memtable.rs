//! The memtable: what came since the last run, in memory, as it came.
//!
//! A batch stays whole: its bytes, and its rows with their places in them. Rows are gathered in the order of
//! the run only when it is written, and until then a trace is found by looking at one number of each span.
//!
//! **Limits**: none of its own; whoever fills it looks at [`Memtable::bytes`] and begins another.

use crate::sort::{Key, Place, sort};
use bytes::Bytes;
use curtail_otlp::{Attribute, Envelope, Event, Link, Span, Spans};
use std::mem::size_of_val;
use std::sync::Arc;

/// Spans that one sender sent at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Whose they are.
    pub tenant: Arc<str>,
    /// When they came, in nanoseconds since 1970.
    pub received_ns: u64,
    /// OTLP in protobuf, where all texts stand.
    pub batch: Bytes,
    /// What was read of it.
    pub rows: Spans,
}

/// Batches of spans, and how to find one in them.
#[derive(Debug, Default)]
pub struct Memtable {
    batches: Vec<Batch>,
    /// The second half of each span's trace ID, which no tracer leaves empty, and where the span is.
    found_by: Vec<(u64, Place)>,
    bytes: usize,
}

impl Memtable {
    /// Adds a batch.
    ///
    /// # Panics
    /// When it is the 2^32nd.
    pub fn insert(&mut self, batch: Batch) {
        let number = u32::try_from(self.batches.len()).expect("memory ends before");
        let rows = (0..).zip(&batch.rows.spans);
        self.found_by.extend(
            rows.map(|(row, span)| (second_half(span.trace_id), Place { batch: number, row })),
        );
        self.bytes += bytes(&batch);
        self.batches.push(batch);
    }

    /// What all of it takes in memory.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many spans there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.found_by.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found_by.is_empty()
    }

    /// The batch and the span at a place.
    ///
    /// # Panics
    /// When it is a place in another memtable.
    #[must_use]
    pub fn get(&self, place: Place) -> (&Batch, &Span) {
        let batch = &self.batches[place.batch as usize];
        (batch, &batch.rows.spans[place.row as usize])
    }

    /// The spans of a trace, in the order in which they came.
    pub fn trace(&self, trace_id: u128) -> impl Iterator<Item = Place> {
        let half = second_half(trace_id);
        let alike = self.found_by.iter().filter(move |(found, _)| *found == half);
        alike.map(|(_, place)| *place).filter(move |place| self.get(*place).1.trace_id == trace_id)
    }

    /// All spans in the order of a run: by trace, then by start.
    #[must_use]
    pub fn sorted(&self) -> Vec<Key> {
        let mut keys = Vec::with_capacity(self.len());
        for (number, batch) in (0..).zip(&self.batches) {
            keys.extend((0..).zip(&batch.rows.spans).map(|(row, span)| Key {
                trace_id: span.trace_id,
                start_ns: span.start_ns,
                place: Place { batch: number, row },
            }));
        }
        sort(&mut keys);
        keys
    }
}

const fn second_half(trace_id: u128) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "the second half is meant")]
    let half = trace_id as u64;
    half
}

/// What a batch takes with its rows.
fn bytes(batch: &Batch) -> usize {
    let Spans { spans, attributes, events, links, inner_attributes, envelope } = &batch.rows;
    let Envelope { resources, scopes, attributes: around } = envelope;
    let rows: [usize; 5] = [
        spans.capacity() * (size_of::<Span>() + size_of::<(u64, Place)>()),
        (attributes.capacity() + inner_attributes.capacity()) * size_of::<Attribute>(),
        events.capacity() * size_of::<Event>(),
        links.capacity() * size_of::<Link>(),
        size_of_val(&**resources) + size_of_val(&**scopes) + size_of_val(&**around),
    ];
    size_of::<Batch>() + batch.batch.len() + rows.iter().sum::<usize>()
}

#[cfg(test)]
mod tests;

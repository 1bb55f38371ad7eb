//! Questions about spans, asked of memtables and runs alike.
//!
//! | question | answer |
//! |---|---|
//! | [`Tree::top`](crate::tree::Tree::top) | the slowest spans, or the newest, or the traces of these: truly those, not the first that are found |
//! | [`Tree::measure`](crate::tree::Tree::measure) | how many there are, quantiles, extremes and buckets of a number, by time and by values: exact, or with a known error when there are very many |
//! | [`Tree::values`](crate::tree::Tree::values) | which values there are of something, and of how many spans |
//! | [`Tree::calls`](crate::tree::Tree::calls) | which services call which, and how often |
//! | [`Tree::keys`](crate::tree::Tree::keys) | which keys attributes have |
//!
//! Only the columns that a [`Filter`] names are read, and of these only pages that may have what is asked for.
//! A condition is asked once for each different value of a page, in its dictionary, and not for each row.
//!
//! **When it hurts**: a question about attributes without a column of their own reads the maps, which are the
//! largest columns.

mod calls;
mod filter;
mod grouping;
mod measure;
mod partial;
mod scan;
mod select;
mod span_field;
mod top;
mod value;
mod values;

pub use calls::ServiceCalls;
pub use filter::{Condition, Filter};
pub use measure::{Aggregate, AggregateError, AggregateQuery, AggregateResult, Group, Numbers};
pub use span_field::{Entry, SpanField};
pub use top::{Hit, HitUnit, Order, TopHits};
pub use value::{Pattern, Test, Value};
pub use values::{AttributeKeys, ValueCount, ValueCounts};

#[cfg(test)]
mod tests;

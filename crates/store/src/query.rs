//! Queries for spans, over memtables and runs alike.
//!
//! | query | result |
//! |---|---|
//! | [`Tree::top`](crate::tree::Tree::top) | the slowest or the newest spans, or their traces |
//! | [`Tree::measure`](crate::tree::Tree::measure) | span counts, and quantiles, extremes and buckets of a numeric field, by time and by values: exact, or for very many numbers with a known error |
//! | [`Tree::values`](crate::tree::Tree::values) | the values of a field, with their counts |
//! | [`Tree::calls`](crate::tree::Tree::calls) | the calls between services, with their counts |
//! | [`Tree::keys`](crate::tree::Tree::keys) | the keys of attributes |
//! | [`Tree::roots`](crate::tree::Tree::roots), [`Tree::spans_of`](crate::tree::Tree::spans_of) | the traces that begin at a service, and all their spans |
//!
//! A query reads only the columns of its [`Filter`] and its result, and only pages that may have matching spans. A
//! condition is tested once for each distinct value, in the dictionary.
//!
//! **When it hurts**: attributes without a column of their own are in maps, the largest columns.

mod calls;
mod filter;
mod grouping;
mod measure;
mod partial;
mod roots;
mod scan;
mod select;
mod span_field;
mod top;
mod value;
mod values;

pub use calls::ServiceCalls;
pub use filter::{Condition, Filter};
pub use measure::{Aggregate, AggregateError, AggregateQuery, AggregateResult, Group, Numbers};
pub use roots::RootSpans;
pub use span_field::{Entry, SpanField};
pub use top::{Hit, HitUnit, Order, TopHits};
pub use value::{Pattern, Test, Value};
pub use values::{AttributeKeys, ValueCount, ValueCounts};

#[cfg(test)]
mod tests;

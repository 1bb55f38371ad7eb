//! TraceQL, the query language of Grafana Tempo.
//!
//! ```text
//! { resource.service.name = "cart" && span.http.response.status_code >= 500 && duration > 100ms }
//! { name =~ "GET .*" } | quantile_over_time(duration, .5, .99) by (resource.service.name)
//! ```
//!
//! | part | supported |
//! |---|---|
//! | conditions | `=` `!=` `<` `<=` `>` `>=` `=~` `!~`, `&&`, `\|\|`, `!`, parentheses |
//! | operands | attributes of any scope, quoted or not; intrinsics such as `duration` or `trace:id` |
//! | literals | texts with Go's escapes, raw texts in backquotes, numbers, durations, `true`, `false`, `nil`, names of status and kind |
//! | functions | `rate`, `count_over_time`, `min_`, `max_`, `avg_`, `sum_over_time`, `quantile_over_time`, `histogram_over_time`, each `by (…)` |
//! | others | `select(…)`, `with (…)` |
//!
//! An error is unsupported TraceQL ([`Fault::Unsupported`]) or invalid text ([`Fault::Expected`]), with its position.
//!
//! **Limits**: conditions are nested at most 64 deep, and a query has at most 16 KiB.
//!
//! **Source**: Grafana Tempo's documentation of TraceQL 3.0.

mod parse;
mod query;
mod tokens;

pub use parse::parse;
pub use query::{Comparison, Expression, Function, Literal, Measure, Operand, Query, Scope};

/// Why a query cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: {fault}")]
pub struct QueryError {
    /// The position of the fault in the query: a byte, from zero.
    pub at: usize,
    /// The fault.
    pub fault: Fault,
}

/// A fault of a query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Invalid text.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// The expected words.
        expected: &'static str,
        /// The word at the position of the fault.
        found: String,
    },
    /// TraceQL that is not supported.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// The query is too long or too deep.
    #[error("the query is too {0}")]
    Too(&'static str),
}

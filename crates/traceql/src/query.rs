//! The syntax tree of a query.

/// A query.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The condition for selected spans; absent: all spans.
    pub filter: Option<Expression>,
    /// The measure of the spans; absent: a search.
    pub measure: Option<Measure>,
    /// Further fields of each span in a search.
    pub select: Vec<Operand>,
    /// The hints of `with (…)`.
    pub hints: Vec<(String, Literal)>,
}

/// A condition on spans.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// All conditions must be true.
    All(Vec<Self>),
    /// At least one condition must be true.
    Any(Vec<Self>),
    /// The negation of a condition: true for a missing value, unlike [`Comparison::NotEqual`].
    Not(Box<Self>),
    /// The comparison of a field with a literal.
    Is(Operand, Comparison, Literal),
    /// True for all spans, or for none.
    Always(bool),
}

/// A field of a span.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// An attribute.
    Attribute(Scope, String),
    /// An intrinsic, by its short name: `duration`, `name`, `status`, `trace:id`.
    Intrinsic(&'static str),
}

/// The scope of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// The span, or else its resource.
    Any,
    /// The span.
    Span,
    /// Its resource.
    Resource,
    /// One of its events.
    Event,
    /// One of its links.
    Link,
    /// The library that recorded the span.
    Instrumentation,
}

/// A comparison of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
    /// `=~`: a regular expression matches the whole value.
    Matches,
    /// `!~`: a regular expression does not match the whole value.
    MatchesNot,
}

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// A text in quotes, or the name of a status or a kind.
    Text(String),
    /// An integer.
    Int(i64),
    /// A double.
    Double(f64),
    /// True or false.
    Bool(bool),
    /// A duration in nanoseconds.
    Duration(i64),
    /// No value.
    Nil,
}

/// A measure of spans over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// The function.
    pub function: Function,
    /// The fields to group by.
    pub by: Vec<Operand>,
}

/// A function of spans.
#[derive(Clone, Debug, PartialEq)]
pub enum Function {
    /// Spans a second.
    Rate,
    /// The number of spans.
    Count,
    /// The minimum of values.
    Min(Operand),
    /// The maximum of values.
    Max(Operand),
    /// The mean of values.
    Mean(Operand),
    /// The sum of values.
    Sum(Operand),
    /// Quantiles of values, each from 0 to 1.
    Quantiles(Operand, Vec<f64>),
    /// The number of values in each bucket; the bounds of buckets are powers of two.
    Histogram(Operand),
}

//! The syntax tree of a query.

/// A query.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The selected spans; absent: all.
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
    /// All conditions.
    All(Vec<Self>),
    /// At least one condition.
    Any(Vec<Self>),
    /// The negation of a condition. A missing value meets it, unlike [`Comparison::NotEqual`].
    Not(Box<Self>),
    /// A value compared with another.
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
    /// The library that made it.
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
    /// `!~`: it does not match.
    MatchesNot,
}

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// In quotes, or the name of a status or a kind.
    Text(String),
    /// An integer.
    Int(i64),
    /// A double.
    Double(f64),
    /// True or false.
    Bool(bool),
    /// Nanoseconds.
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
    /// The minimum.
    Min(Operand),
    /// The maximum.
    Max(Operand),
    /// The mean of values.
    Mean(Operand),
    /// The sum of values.
    Sum(Operand),
    /// Quantiles of values, each from 0 to 1.
    Quantiles(Operand, Vec<f64>),
    /// The number of values in each bucket, by powers of two.
    Histogram(Operand),
}

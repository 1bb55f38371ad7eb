//! The syntax tree of a query.

/// A query.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Which spans; without it, all.
    pub filter: Option<Expression>,
    /// What is measured of them; without it, they are searched for.
    pub measure: Option<Measure>,
    /// What else a search shows of each span.
    pub select: Vec<Operand>,
    /// What `with (…)` says.
    pub hints: Vec<(String, Literal)>,
}

/// Which spans.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// All of these.
    All(Vec<Self>),
    /// One of these.
    Any(Vec<Self>),
    /// The negation of a condition. A missing value meets it, unlike [`Comparison::NotEqual`].
    Not(Box<Self>),
    /// A value compared with another.
    Is(Operand, Comparison, Literal),
    /// It is always so, or never.
    Always(bool),
}

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// An attribute.
    Attribute(Scope, String),
    /// What every span has, in its short form: `duration`, `name`, `status`, `trace:id`.
    Intrinsic(&'static str),
}

/// Where an attribute is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Of the span, or else of its resource.
    Any,
    /// Of the span.
    Span,
    /// Of its resource.
    Resource,
    /// Of one of its events.
    Event,
    /// Of one of its links.
    Link,
    /// Of the library that made it.
    Instrumentation,
}

/// How values are compared.
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
    /// `=~`: a regular expression matches all of it.
    Matches,
    /// `!~`: it does not.
    MatchesNot,
}

/// A value to compare with.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// In quotes, or the name of a status or a kind.
    Text(String),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Double(f64),
    /// True or false.
    Bool(bool),
    /// Nanoseconds.
    Duration(i64),
    /// No value.
    Nil,
}

/// What is measured of spans, over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// What.
    pub function: Function,
    /// For each of these values.
    pub by: Vec<Operand>,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Function {
    /// Spans a second.
    Rate,
    /// How many spans.
    Count,
    /// The least value.
    Min(Operand),
    /// The greatest value.
    Max(Operand),
    /// The mean of values.
    Mean(Operand),
    /// The sum of values.
    Sum(Operand),
    /// Quantiles of values, each from 0 to 1.
    Quantiles(Operand, Vec<f64>),
    /// How many values are in each bucket, by powers of two.
    Histogram(Operand),
}

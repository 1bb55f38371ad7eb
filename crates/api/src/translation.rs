//! Translates TraceQL to queries of the store.

use crate::api_error::ApiError;
use crate::query_request::trace_id;
use curtail_store::query::{Aggregate, Condition, Entry, Filter, Pattern, SpanField, Test, Value};
use curtail_store::schema::envelope::{SCOPE_NAME, SCOPE_VERSION};
use curtail_store::schema::spans::{
    DURATION, KIND, NAME, PARENT_ID, SPAN_ID, STATUS, STATUS_MESSAGE, TRACE_ID,
};
use curtail_traceql::{Comparison, Expression, Function, Literal, Operand, Query, Scope, parse};
use curtail_units::Quantile;
use std::ops::{Range, RangeInclusive};

/// Parses a query; an absent query selects all spans.
pub(crate) fn parse_query(text: Option<&str>) -> Result<Query, ApiError> {
    Ok(parse(text.unwrap_or("{}"))?)
}

/// Returns the filter for the spans that a query selects.
pub(crate) fn filter(query: &Query, tenant: &str, starts: Range<i64>) -> Result<Filter, ApiError> {
    let mut filter = Filter { starts, ..Filter::of(tenant) };
    let all = match &query.filter {
        None => &[],
        Some(Expression::All(all)) => &**all,
        Some(one) => std::slice::from_ref(one),
    };
    for expression in all {
        if let Expression::Is(Operand::Intrinsic("duration"), comparison, literal) = expression
            && *comparison != Comparison::NotEqual
        {
            // Pages without these durations are not read.
            let durations = durations(*comparison, literal)?;
            let (from, to) = (*filter.durations.start(), *filter.durations.end());
            filter.durations = from.max(*durations.start())..=to.min(*durations.end());
        } else {
            filter.conditions.push(condition(expression)?);
        }
    }
    Ok(filter)
}

/// Returns the aggregate of a function.
pub(crate) fn aggregate(function: &Function) -> Result<Aggregate, ApiError> {
    Ok(match function {
        Function::Rate | Function::Count => Aggregate::Count,
        Function::Min(of) | Function::Max(of) | Function::Mean(of) | Function::Sum(of) => {
            Aggregate::Extremes(number(of)?)
        }
        Function::Histogram(of) => Aggregate::Buckets(number(of)?),
        Function::Quantiles(of, quantiles) => {
            let quantiles = quantiles.iter().map(|quantile| Quantile::new(*quantile));
            let quantiles = quantiles.collect::<Result<_, _>>();
            let quantiles = quantiles.map_err(|error| ApiError::wrong(format!("q: {error}")))?;
            Aggregate::Quantiles(number(of)?, quantiles)
        }
    })
}

/// Returns the field of an operand.
pub(crate) fn span_field(operand: &Operand) -> Result<SpanField, ApiError> {
    Ok(match operand {
        Operand::Attribute(scope, key) => {
            let key = key.clone();
            match scope {
                Scope::Any => SpanField::Either(key),
                Scope::Span => SpanField::Attribute(key),
                Scope::Resource => SpanField::Resource(key),
                Scope::Instrumentation => SpanField::Scope(key),
                Scope::Event => SpanField::Entry(Entry::Event(key)),
                Scope::Link => SpanField::Entry(Entry::Link(key)),
            }
        }
        Operand::Intrinsic(name) => match *name {
            "name" => SpanField::Column(NAME),
            "status" => SpanField::Column(STATUS),
            "statusMessage" => SpanField::Column(STATUS_MESSAGE),
            "kind" => SpanField::Column(KIND),
            "duration" => SpanField::Column(DURATION),
            "trace:id" => SpanField::Column(TRACE_ID),
            "span:id" => SpanField::Column(SPAN_ID),
            "span:parentID" => SpanField::Column(PARENT_ID),
            "event:name" => SpanField::Entry(Entry::EventName),
            "link:traceID" => SpanField::Entry(Entry::LinkTrace),
            "link:spanID" => SpanField::Entry(Entry::LinkSpan),
            "instrumentation:name" => SpanField::Column(SCOPE_NAME),
            "instrumentation:version" => SpanField::Column(SCOPE_VERSION),
            other => return Err(unsupported(other)),
        },
    })
}

fn unsupported(what: &str) -> ApiError {
    ApiError::unsupported(format!("q: {what} is not supported"))
}

/// Rejects a comparison by order of values that have no order.
fn no_order(value: &str) -> ApiError {
    ApiError::wrong(format!("q: expected = or != for {value}"))
}

/// Returns the field of a measured number.
fn number(operand: &Operand) -> Result<SpanField, ApiError> {
    let of = span_field(operand)?;
    if of == SpanField::Column(DURATION)
        || !matches!(of, SpanField::Column(_) | SpanField::Entry(_))
    {
        return Ok(of);
    }
    Err(ApiError::wrong(format!(
        "q: expected duration or an attribute to measure, found {operand:?}"
    )))
}

fn condition(expression: &Expression) -> Result<Condition, ApiError> {
    let each = |all: &[Expression]| all.iter().map(condition).collect::<Result<_, _>>();
    Ok(match expression {
        Expression::All(all) => Condition::All(each(all)?),
        Expression::Any(any) => Condition::Any(each(any)?),
        Expression::Not(negated) => Condition::Not(Box::new(condition(negated)?)),
        Expression::Always(true) => Condition::All(Vec::new()),
        Expression::Always(false) => Condition::Any(Vec::new()),
        Expression::Is(operand, comparison, literal) => is(operand, *comparison, literal)?,
    })
}

fn is(operand: &Operand, comparison: Comparison, literal: &Literal) -> Result<Condition, ApiError> {
    if *operand == Operand::Intrinsic("nestedSetParent") {
        return is_root(comparison, literal);
    }
    let of = span_field(operand)?;
    let exists = Condition::Is(of.clone(), Test::Exists);
    match (literal, comparison) {
        (Literal::Nil, Comparison::Equal) => return Ok(Condition::Not(Box::new(exists))),
        (Literal::Nil, Comparison::NotEqual) => return Ok(exists),
        _ => {}
    }
    let is_id = matches!(of, SpanField::Column(TRACE_ID | SPAN_ID | PARENT_ID))
        || matches!(of, SpanField::Entry(Entry::LinkTrace | Entry::LinkSpan));
    let value = match literal {
        Literal::Text(text) if is_id => Value::Id(trace_id(text)?),
        Literal::Text(text) => Value::from(&**text),
        Literal::Int(number) | Literal::Duration(number) => Value::Int(*number),
        Literal::Double(number) => Value::Double(*number),
        Literal::Bool(is) => Value::Bool(*is),
        Literal::Nil => return Err(no_order("nil")),
    };
    Ok(Condition::Is(of, test(comparison, value)?))
}

fn test(comparison: Comparison, value: Value<'static>) -> Result<Test, ApiError> {
    let pattern = |value: &Value<'_>| {
        let Value::Text(text) = value else {
            return Err(ApiError::wrong(format!("q: expected a pattern in quotes, found {value}")));
        };
        Pattern::new(text).map_err(|error| ApiError::wrong(format!("q: {error}")))
    };
    let ordered = |value: Value<'static>| {
        if let Value::Bool(is) = value {
            return Err(no_order(if is { "true" } else { "false" }));
        }
        let has_order = value.has_order();
        has_order.then_some(value).ok_or_else(|| unsupported("an order comparison of IDs"))
    };
    Ok(match comparison {
        Comparison::Equal => Test::Is(value),
        Comparison::NotEqual => Test::IsNot(value),
        Comparison::Matches => Test::Matches(pattern(&value)?),
        Comparison::MatchesNot => Test::MatchesNot(pattern(&value)?),
        Comparison::Less => Test::Less(ordered(value)?),
        Comparison::AtMost => Test::AtMost(ordered(value)?),
        Comparison::Greater => Test::Greater(ordered(value)?),
        Comparison::AtLeast => Test::AtLeast(ordered(value)?),
    })
}

fn durations(comparison: Comparison, literal: &Literal) -> Result<RangeInclusive<i64>, ApiError> {
    if matches!(comparison, Comparison::Matches | Comparison::MatchesNot) {
        return Err(ApiError::wrong(
            "q: expected =, !=, <, <=, > or >= for duration, found a pattern",
        ));
    }
    let (Literal::Duration(ns) | Literal::Int(ns)) = literal else {
        return Err(ApiError::wrong(format!(
            "q: expected a duration, as 100ms, found {literal:?}"
        )));
    };
    Ok(match comparison {
        Comparison::Equal => *ns..=*ns,
        Comparison::Less => i64::MIN..=ns.saturating_sub(1),
        Comparison::AtMost => i64::MIN..=*ns,
        Comparison::Greater => ns.saturating_add(1)..=i64::MAX,
        Comparison::AtLeast => *ns..=i64::MAX,
        Comparison::NotEqual | Comparison::Matches | Comparison::MatchesNot => {
            return Err(unsupported("this comparison of durations"));
        }
    })
}

/// Translates a comparison of `nestedSetParent`, which is known only for spans without a parent: below zero.
fn is_root(comparison: Comparison, literal: &Literal) -> Result<Condition, ApiError> {
    let has_parent = Condition::Is(SpanField::Column(PARENT_ID), Test::Exists);
    match (comparison, literal) {
        (Comparison::Less, Literal::Int(0))
        | (Comparison::Equal | Comparison::AtMost, Literal::Int(-1)) => {
            Ok(Condition::Not(Box::new(has_parent)))
        }
        (Comparison::AtLeast, Literal::Int(0))
        | (Comparison::NotEqual | Comparison::Greater, Literal::Int(-1)) => Ok(has_parent),
        _ => Err(unsupported("nestedSetParent other than < 0 or >= 0")),
    }
}

#[cfg(test)]
mod tests;

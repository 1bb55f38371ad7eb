//! Parses tokens into a query.

use crate::query::{Comparison, Expression, Function, Literal, Measure, Operand, Query, Scope};
use crate::tokens::{Part, Token, Word, tokens};
use crate::{Fault, QueryError};

/// Maximum nesting of conditions.
const DEPTH_MAX: usize = 64;

/// The intrinsics of spans: the short name, and the name with a scope.
const INTRINSICS: [(&str, &str); 21] = [
    ("name", "span:name"),
    ("status", "span:status"),
    ("statusMessage", "span:statusMessage"),
    ("kind", "span:kind"),
    ("duration", "span:duration"),
    ("span:id", "span:id"),
    ("span:parentID", "span:parentID"),
    ("childCount", "span:childCount"),
    ("traceDuration", "trace:duration"),
    ("rootName", "trace:rootName"),
    ("rootServiceName", "trace:rootService"),
    ("trace:id", "trace:id"),
    ("nestedSetLeft", "span:nestedSetLeft"),
    ("nestedSetRight", "span:nestedSetRight"),
    ("nestedSetParent", "span:nestedSetParent"),
    ("event:name", "event:name"),
    ("event:timeSinceStart", "event:timeSinceStart"),
    ("link:traceID", "link:traceID"),
    ("link:spanID", "link:spanID"),
    ("instrumentation:name", "instrumentation:name"),
    ("instrumentation:version", "instrumentation:version"),
];

/// Names that are values of these intrinsics, and not operands; with a text for errors.
const NAMED_VALUES: [(&str, &[&str], &str); 2] = [
    ("status", &["error", "ok", "unset"], "error, ok or unset"),
    (
        "kind",
        &["unspecified", "internal", "server", "client", "producer", "consumer"],
        "unspecified, internal, server, client, producer or consumer",
    ),
];

/// Functions of TraceQL, over span sets and over metrics, that are not supported.
const SPANSET_FUNCTIONS: [&str; 7] = ["count", "min", "max", "avg", "sum", "by", "coalesce"];
const SERIES_FUNCTIONS: [&str; 2] = ["topk", "bottomk"];

/// Reads a query.
///
/// # Errors
/// When the text is not TraceQL, or not supported.
pub fn parse(query: &str) -> Result<Query, QueryError> {
    let tokens = tokens(query)?;
    let mut parser = Parser { tokens: &tokens, depth: 0 };
    let query = parser.query()?;
    if *parser.peek() == Word::End {
        return Ok(query);
    }
    if matches!(parser.peek(), Word::Sign(sign) if is_structural(sign)) {
        return Err(parser.unsupported("a relation between sets of spans"));
    }
    Err(parser.expected("the end of the query"))
}

fn is_structural(sign: &str) -> bool {
    [
        "&&", "||", ">>", "<<", ">", "<", "~", "!>>", "!<<", "!>", "!<", "!~", "&>>", "&<<", "&>",
        "&<", "&~",
    ]
    .contains(&sign)
}

struct Parser<'a> {
    /// The remaining tokens; the last token is the end.
    tokens: &'a [Token],
    depth: usize,
}

impl Parser<'_> {
    fn query(&mut self) -> Result<Query, QueryError> {
        let mut query =
            Query { filter: None, measure: None, select: Vec::new(), hints: Vec::new() };
        self.sign("{", "{")?;
        if !self.takes("}") {
            query.filter = Some(self.any()?);
            self.sign("}", "}, && or ||")?;
        }
        while self.takes("|") {
            self.stage(&mut query)?;
        }
        if self.takes_name("with") {
            query.hints = self.hints()?;
        }
        Ok(query)
    }

    fn any(&mut self) -> Result<Expression, QueryError> {
        let mut any = vec![self.all()?];
        while self.takes("||") {
            any.push(self.all()?);
        }
        Ok(if any.len() == 1 { any.remove(0) } else { Expression::Any(any) })
    }

    fn all(&mut self) -> Result<Expression, QueryError> {
        let mut all = vec![self.condition()?];
        while self.takes("&&") {
            all.push(self.condition()?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Expression::All(all) })
    }

    fn condition(&mut self) -> Result<Expression, QueryError> {
        if self.takes("(") {
            self.deeper()?;
            if *self.peek() == Word::Sign(")") {
                return Err(self.expected("a condition such as duration > 100ms"));
            }
            let inner = self.any()?;
            self.depth -= 1;
            self.sign(")", "), && or ||")?;
            return Ok(inner);
        }
        if self.takes("!") {
            self.deeper()?;
            let negated = self.condition()?;
            self.depth -= 1;
            return Ok(Expression::Not(Box::new(negated)));
        }
        if let Some(always) = self.takes_bool() {
            return Ok(Expression::Always(always));
        }
        // Either side may be the one that is looked at.
        if self.is_literal() {
            let value = self.tokens;
            let literal = self.literal()?;
            let comparison = self.comparison()?;
            let operand = self.operand()?;
            Parser { tokens: value, ..*self }.check_named_value(&operand)?;
            return Ok(Expression::Is(operand, turned(comparison), literal));
        }
        let operand = self.operand()?;
        if matches!(self.peek(), Word::Sign("}" | ")" | "&&" | "||")) {
            return Ok(Expression::Is(operand, Comparison::Equal, Literal::Bool(true)));
        }
        let comparison = self.comparison()?;
        if let Word::Name(parts) = self.peek()
            && (is_parent(parts) || operand_of(parts).is_some())
        {
            return Err(self.unsupported("a comparison of two values of a span"));
        }
        self.check_named_value(&operand)?;
        Ok(Expression::Is(operand, comparison, self.literal()?))
    }

    /// Checks that the next token, if it is a name, is a value of `operand`.
    fn check_named_value(&self, operand: &Operand) -> Result<(), QueryError> {
        let Word::Name(parts) = self.peek() else { return Ok(()) };
        let Operand::Intrinsic(intrinsic) = operand else { return Ok(()) };
        match NAMED_VALUES.iter().find(|(of, ..)| of == intrinsic) {
            Some((_, names, expected))
                if !names.iter().chain(&["nil"]).any(|name| is_name(parts, name)) =>
            {
                Err(self.expected(expected))
            }
            _ => Ok(()),
        }
    }

    fn deeper(&mut self) -> Result<(), QueryError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX { Err(self.fault(Fault::Too("deep"))) } else { Ok(()) }
    }

    fn comparison(&mut self) -> Result<Comparison, QueryError> {
        let Word::Sign(sign) = self.peek() else { return Err(self.expected("a comparison")) };
        let comparison = match *sign {
            "=" => Comparison::Equal,
            "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::AtMost,
            ">" => Comparison::Greater,
            ">=" => Comparison::AtLeast,
            "=~" => Comparison::Matches,
            "!~" => Comparison::MatchesNot,
            "+" | "-" | "*" | "/" | "%" | "^" => return Err(self.unsupported("arithmetic")),
            _ => return Err(self.expected("a comparison")),
        };
        self.next();
        Ok(comparison)
    }

    fn is_literal(&self) -> bool {
        match self.peek() {
            Word::Name(parts) => is_value(parts),
            Word::Sign(sign) => *sign == "-",
            Word::Text(_) | Word::Int(_) | Word::Double(_) | Word::Duration(_) => true,
            Word::End => false,
        }
    }

    fn literal(&mut self) -> Result<Literal, QueryError> {
        let is_negative = self.takes("-");
        let sign = if is_negative { -1 } else { 1 };
        let literal = match self.peek() {
            Word::Int(int) => Literal::Int(sign * int),
            Word::Double(double) if is_negative => Literal::Double(-double),
            Word::Double(double) => Literal::Double(*double),
            Word::Duration(ns) => Literal::Duration(sign * ns),
            Word::Text(text) if !is_negative => Literal::Text(text.clone()),
            Word::Name(parts) if !is_negative && is_value(parts) => match &*parts[0].text {
                "true" => Literal::Bool(true),
                "false" => Literal::Bool(false),
                "nil" => Literal::Nil,
                name => Literal::Text(name.to_owned()),
            },
            Word::Text(_) | Word::Name(_) | Word::Sign(_) | Word::End => {
                return Err(self.expected("a text, a number, a duration, true, false or nil"));
            }
        };
        self.next();
        Ok(literal)
    }

    fn operand(&mut self) -> Result<Operand, QueryError> {
        let Word::Name(parts) = self.peek() else {
            return Err(
                self.expected("an attribute, as span.http.route, or an intrinsic, as duration")
            );
        };
        let Some(operand) = operand_of(parts) else {
            return Err(if is_parent(parts) {
                self.unsupported("an attribute of the parent")
            } else {
                self.expected("a scope (span., resource., event., link., instrumentation., or .)")
            });
        };
        self.next();
        Ok(operand)
    }

    /// Parses the stage after a `|`.
    fn stage(&mut self, query: &mut Query) -> Result<(), QueryError> {
        let Word::Name(parts) = self.peek() else { return Err(self.expected("a function")) };
        let name = if parts.len() == 1 { parts[0].text.clone() } else { String::new() };
        let at = self.tokens;
        self.next();
        if name == "select" {
            query.select.extend(self.operands()?);
            return Ok(());
        }
        if query.measure.is_some() {
            self.tokens = at;
            return Err(if SERIES_FUNCTIONS.contains(&&*name) {
                self.unsupported("a function of what was measured")
            } else {
                self.expected("select or the end of the query")
            });
        }
        let Some(function) = self.function(&name)? else {
            self.tokens = at;
            return Err(match &*name {
                "compare" => self.unsupported("compare"),
                name if SPANSET_FUNCTIONS.contains(&name) => {
                    self.unsupported("a function of a set of spans")
                }
                _ => self.expected(
                    "rate, count_over_time, min_over_time, max_over_time, avg_over_time, sum_over_time, \
                     quantile_over_time, histogram_over_time or select",
                ),
            });
        };
        let by = if self.takes_name("by") { self.operands()? } else { Vec::new() };
        query.measure = Some(Measure { function, by });
        Ok(())
    }

    fn function(&mut self, name: &str) -> Result<Option<Function>, QueryError> {
        let without_operand = match name {
            "rate" => Some(Function::Rate),
            "count_over_time" => Some(Function::Count),
            _ => None,
        };
        if without_operand.is_some() {
            self.sign("(", "(")?;
            self.sign(")", ")")?;
            return Ok(without_operand);
        }
        let of: fn(Operand, Vec<f64>) -> Function = match name {
            "min_over_time" => |of, _| Function::Min(of),
            "max_over_time" => |of, _| Function::Max(of),
            "avg_over_time" => |of, _| Function::Mean(of),
            "sum_over_time" => |of, _| Function::Sum(of),
            "histogram_over_time" => |of, _| Function::Histogram(of),
            "quantile_over_time" => Function::Quantiles,
            _ => return Ok(None),
        };
        self.sign("(", "(")?;
        let operand = self.operand()?;
        let mut quantiles = Vec::new();
        while name == "quantile_over_time" && self.takes(",") {
            quantiles.push(self.quantile()?);
        }
        if name == "quantile_over_time" && quantiles.is_empty() {
            return Err(self.expected(", and a quantile from 0 to 1"));
        }
        self.sign(")", ")")?;
        Ok(Some(of(operand, quantiles)))
    }

    fn quantile(&mut self) -> Result<f64, QueryError> {
        let quantile = match self.peek() {
            Word::Double(quantile) => Some(*quantile),
            Word::Int(0) => Some(0.0),
            Word::Int(1) => Some(1.0),
            Word::Sign(_)
            | Word::Name(_)
            | Word::Text(_)
            | Word::Int(_)
            | Word::Duration(_)
            | Word::End => None,
        };
        let quantile = quantile.filter(|quantile| (0.0..=1.0).contains(quantile));
        let quantile =
            quantile.ok_or_else(|| self.expected("a quantile from 0 to 1 (0.99, not 99)"))?;
        self.next();
        Ok(quantile)
    }

    fn operands(&mut self) -> Result<Vec<Operand>, QueryError> {
        self.sign("(", "(")?;
        let mut operands = vec![self.operand()?];
        while self.takes(",") {
            operands.push(self.operand()?);
        }
        self.sign(")", ") or ,")?;
        Ok(operands)
    }

    fn hints(&mut self) -> Result<Vec<(String, Literal)>, QueryError> {
        self.sign("(", "(")?;
        let mut hints = Vec::new();
        loop {
            let Word::Name(parts) = self.peek() else { return Err(self.expected("a hint")) };
            let name = parts[0].text.clone();
            self.next();
            self.sign("=", "=")?;
            hints.push((name, self.literal()?));
            if !self.takes(",") {
                break;
            }
        }
        self.sign(")", ") or ,")?;
        Ok(hints)
    }

    fn peek(&self) -> &Word {
        &self.tokens[0].word
    }

    /// Moves to the next token, but never past the end.
    fn next(&mut self) {
        if self.tokens.len() > 1 {
            self.tokens = &self.tokens[1..];
        }
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is_it = matches!(self.peek(), Word::Sign(found) if *found == sign);
        if is_it {
            self.next();
        }
        is_it
    }

    fn takes_name(&mut self, name: &str) -> bool {
        let is_it = matches!(self.peek(), Word::Name(parts) if is_name(parts, name));
        if is_it {
            self.next();
        }
        is_it
    }

    /// Takes `true` or `false` that stands alone, and is not part of a comparison.
    fn takes_bool(&mut self) -> Option<bool> {
        let Word::Name(parts) = self.peek() else { return None };
        let always = [true, false].into_iter().find(|is| is_name(parts, &is.to_string()))?;
        let is_alone = matches!(self.tokens.get(1)?.word, Word::Sign("}" | ")" | "&&" | "||"));
        if is_alone {
            self.next();
        }
        is_alone.then_some(always)
    }

    fn sign(&mut self, sign: &str, expected: &'static str) -> Result<(), QueryError> {
        if self.takes(sign) { Ok(()) } else { Err(self.expected(expected)) }
    }

    fn expected(&self, expected: &'static str) -> QueryError {
        let found = match self.peek() {
            Word::Sign(sign) => format!("{sign:?}"),
            Word::Name(parts) => format!("{:?}", name(parts)),
            Word::Text(text) => format!("the text {text:?}"),
            Word::Int(number) => number.to_string(),
            Word::Double(number) => number.to_string(),
            Word::Duration(ns) => format!("a duration of {ns} ns"),
            Word::End => "the end".to_owned(),
        };
        self.fault(Fault::Expected { expected, found })
    }

    fn unsupported(&self, what: &'static str) -> QueryError {
        self.fault(Fault::Unsupported(what))
    }

    fn fault(&self, fault: Fault) -> QueryError {
        QueryError { at: self.tokens[0].at, fault }
    }
}

/// Returns the name as written, without quotes.
fn name(parts: &[Part]) -> String {
    let mut name = String::new();
    for part in parts {
        name.extend(part.before);
        name.push_str(&part.text);
    }
    name
}

fn is_name(parts: &[Part], name: &str) -> bool {
    matches!(parts, [Part { before: None, text }] if text == name)
}

fn is_value(parts: &[Part]) -> bool {
    let names = NAMED_VALUES.iter().flat_map(|(_, names, _)| *names);
    names.chain(&["true", "false", "nil"]).any(|name| is_name(parts, name))
}

fn is_parent(parts: &[Part]) -> bool {
    parts.len() > 1 && parts[0].text == "parent"
}

fn operand_of(parts: &[Part]) -> Option<Operand> {
    let whole = name(parts);
    let is_intrinsic = |(short, long): &&(&str, &str)| whole == *short || whole == *long;
    if let Some((short, _)) = INTRINSICS.iter().find(is_intrinsic) {
        return Some(Operand::Intrinsic(short));
    }
    let (scope, of_scope) = match parts.first()? {
        Part { before: Some('.'), .. } => (Scope::Any, parts),
        Part { before: None, text } => {
            let scope = match &**text {
                "span" => Scope::Span,
                "resource" => Scope::Resource,
                "event" => Scope::Event,
                "link" => Scope::Link,
                "instrumentation" => Scope::Instrumentation,
                _ => return None,
            };
            (scope, &parts[1..])
        }
        Part { .. } => return None,
    };
    // The point before its first part is that of the scope.
    let key = name(of_scope).strip_prefix('.')?.to_owned();
    Some(Operand::Attribute(scope, key))
}

/// Returns the comparison with swapped sides.
const fn turned(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Less => Comparison::Greater,
        Comparison::AtMost => Comparison::AtLeast,
        Comparison::Greater => Comparison::Less,
        Comparison::AtLeast => Comparison::AtMost,
        Comparison::Equal | Comparison::NotEqual | Comparison::Matches | Comparison::MatchesNot => {
            comparison
        }
    }
}

#[cfg(test)]
mod tests;

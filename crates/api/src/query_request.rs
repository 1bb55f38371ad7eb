//! The path, the parameters and the tenant of a request.
//!
//! | parameter | format |
//! |---|---|
//! | a time | seconds, milliseconds, microseconds or nanoseconds since 1970, distinguished by their size; or RFC 3339 |
//! | a duration | `1h30m`, `500ms`, `1.5s`; a number without a unit is in seconds |

use crate::api_error::ApiError;
use curtail_http::access::TENANT;
use curtail_http::clock::unix_time;
use curtail_store::DEFAULT_TENANT;
use curtail_store::query::Order;
use curtail_text::expectation;
use http::header::{ACCEPT, HeaderValue};
use http::{HeaderMap, Uri};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

const SECOND_NS: f64 = 1e9;

/// The length of the range of a request without `start` and `since`, as in Tempo.
const RECENT_NS: i64 = 3_600_000_000_000;

/// Units of time, in nanoseconds. A name comes before names with which it begins.
const UNITS: [(&str, f64); 9] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", SECOND_NS),
    ("m", 60.0 * SECOND_NS),
    ("h", 3_600.0 * SECOND_NS),
    ("d", 86_400.0 * SECOND_NS),
    ("w", 604_800.0 * SECOND_NS),
];

/// A request of a client.
#[derive(Debug)]
pub(crate) struct QueryRequest<'a> {
    pub(crate) path: &'a str,
    pub(crate) tenant: &'a str,
    pub(crate) head: &'a HeaderMap,
    parameters: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> QueryRequest<'a> {
    pub(crate) fn of(uri: &'a Uri, head: &'a HeaderMap) -> Result<Self, ApiError> {
        let tenant = head.get(TENANT).map_or(Ok(DEFAULT_TENANT), HeaderValue::to_str);
        let tenant =
            tenant.map_err(|_| ApiError::wrong("expected a tenant in ASCII in x-scope-orgid"))?;
        let query = uri.query().unwrap_or_default();
        let parameters = form_urlencoded::parse(query.as_bytes()).collect();
        Ok(Self { path: uri.path(), tenant, head, parameters })
    }

    /// Rejects a parameter that is not one of `known`, or that occurs twice. Only for Curtail's own paths: clients of Tempo
    /// and Jaeger send parameters that Curtail does not know.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), ApiError> {
        let mut names = BTreeSet::new();
        for (name, _) in &self.parameters {
            if !known.contains(&&**name) {
                let expected = expectation(name, known, "this path has no parameters");
                return Err(ApiError::wrong(format!("unknown parameter {name:?}: {expected}")));
            }
            if !names.insert(name) {
                return Err(ApiError::wrong(format!("{name}: expected once, found twice")));
            }
        }
        Ok(())
    }

    /// Returns the first value of a parameter that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut of_name = self.parameters.iter().filter(|(each, _)| each == name);
        of_name.find(|(_, value)| !value.is_empty()).map(|(_, value)| &**value)
    }

    /// Returns all parameters with a value.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.parameters.iter().filter(|(_, value)| !value.is_empty());
        all.map(|(name, value)| (&**name, &**value))
    }

    /// Whether the client accepts a media type that contains `part`.
    pub(crate) fn accepts(&self, part: &str) -> bool {
        let mut accepted = self.head.get_all(ACCEPT).iter();
        accepted.any(|types| types.to_str().is_ok_and(|types| types.contains(part)))
    }

    /// Parses a parameter: a non-negative integer.
    pub(crate) fn number(&self, name: &str) -> Result<Option<usize>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let number = value.parse().map_err(|_| expected(name, value, "a whole number"))?;
        Ok(Some(number))
    }

    /// Parses a parameter: a count from one to `max`.
    pub(crate) fn count(&self, name: &str, default: usize, max: usize) -> Result<usize, ApiError> {
        let Some(value) = self.get(name) else { return Ok(default) };
        let count = value.parse().ok().filter(|count| (1..=max).contains(count));
        count.ok_or_else(|| expected(name, value, &format!("a number from 1 to {max}")))
    }

    /// Parses a parameter: a count from one to the maximum; zero means the maximum.
    pub(crate) fn count_or_all(
        &self,
        name: &str,
        default: usize,
        max: usize,
    ) -> Result<usize, ApiError> {
        if self.get(name) == Some("0") { Ok(max) } else { self.count(name, default, max) }
    }

    /// Parses a parameter: a duration, in nanoseconds.
    pub(crate) fn duration(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        // A time before now without a unit is more often meant in minutes than in seconds.
        let has_unit = !matches!(name, "since" | "until") || value.parse::<f64>().is_err();
        let duration = duration_ns(value).filter(|ns| *ns >= 0 && has_unit);
        let wrong = || expected(name, value, "a length of time, as 1m30s or 500ms");
        duration.ok_or_else(wrong).map(Some)
    }

    /// Parses a parameter: a time, in nanoseconds since 1970.
    pub(crate) fn time(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let wrong = || expected(name, value, "a time: seconds since 1970, or RFC 3339");
        time_ns(value).ok_or_else(wrong).map(Some)
    }

    /// Parses the order of a search; absent if the request has none.
    pub(crate) fn order(&self) -> Result<Option<Order>, ApiError> {
        match self.get("order") {
            None => Ok(None),
            Some("newest") => Ok(Some(Order::Newest)),
            Some("slowest") => Ok(Some(Order::Slowest)),
            Some(other) => Err(expected("order", other, "slowest or newest")),
        }
    }

    /// Returns the range from `start` to `end`; an absent parameter is no limit.
    pub(crate) fn range(&self) -> Result<Range<i64>, ApiError> {
        let (start, end) = (self.time("start")?, self.time("end")?);
        ordered(start.unwrap_or(i64::MIN)..end.unwrap_or(i64::MAX))
    }

    /// Returns the range from `start`, or `since` before its end, to `end` or now; by default, the last hour.
    pub(crate) fn recent_range(&self) -> Result<Range<i64>, ApiError> {
        let (start, end) = (self.time("start")?, self.time("end")?);
        let since = self.duration("since")?.unwrap_or(RECENT_NS);
        let end = end.unwrap_or_else(now_ns);
        ordered(start.unwrap_or_else(|| end.saturating_sub(since))..end)
    }

    /// Returns the [recent range](Self::recent_range), whose end may be `until`, a time before now. Only for Curtail's own
    /// paths: of two parameters that state the same time, no one is ignored.
    pub(crate) fn recent_range_until(&self) -> Result<Range<i64>, ApiError> {
        for [one, other] in [["start", "since"], ["end", "until"]] {
            if self.get(one).is_some() && self.get(other).is_some() {
                return Err(ApiError::wrong(format!("expected {one} or {other}, found both")));
            }
        }
        let Some(until) = self.duration("until")? else { return self.recent_range() };
        let since = self.duration("since")?;
        if since.is_some_and(|since| since <= until) {
            return Err(ApiError::wrong("since: expected a longer time before now than until"));
        }
        let now = now_ns();
        let end = now.saturating_sub(until);
        let start = since.map_or(end.saturating_sub(RECENT_NS), |since| now.saturating_sub(since));
        ordered(self.time("start")?.unwrap_or(start)..end)
    }

    /// Returns the decoded path after a prefix; decodes twice, because clients often encode twice.
    pub(crate) fn after(&self, prefix: &str) -> Option<Cow<'a, str>> {
        let rest = self.path.strip_prefix(prefix)?;
        let once = percent_decode_str(rest).decode_utf8().ok()?;
        Some(match percent_decode_str(&once).decode_utf8() {
            Ok(Cow::Owned(twice)) => Cow::Owned(twice),
            Ok(Cow::Borrowed(_)) | Err(_) => once,
        })
    }
}

fn ordered(range: Range<i64>) -> Result<Range<i64>, ApiError> {
    if range.start >= range.end {
        return Err(ApiError::wrong("start: expected a time before end"));
    }
    Ok(range)
}

/// The time in nanoseconds since 1970.
pub(crate) fn now_ns() -> i64 {
    i64::try_from(unix_time().as_ns()).unwrap_or(i64::MAX)
}

pub(crate) fn expected(name: &str, value: &str, what: &str) -> ApiError {
    ApiError::wrong(format!("{name}: expected {what}, found {value:?}"))
}

/// Parses an ID in hexadecimal digits; leading zeros may be absent.
pub(crate) fn trace_id(id: &str) -> Result<u128, ApiError> {
    let is_id = (1..=32).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let id = is_id.then(|| u128::from_str_radix(id, 16).ok()).flatten();
    id.ok_or_else(|| ApiError::wrong("expected a trace ID: 1 to 32 hexadecimal digits"))
}

pub(crate) fn time_ns(text: &str) -> Option<i64> {
    if let Ok(time) = chrono::DateTime::parse_from_rfc3339(text) {
        return time.timestamp_nanos_opt();
    }
    if let Ok(number) = text.parse::<i64>() {
        // The year 2001 in each, and the year 5138 in the one before.
        let unit = match number.unsigned_abs() {
            0..100_000_000_000 => 1_000_000_000,
            100_000_000_000..100_000_000_000_000 => 1_000_000,
            100_000_000_000_000..100_000_000_000_000_000 => 1_000,
            _ => 1,
        };
        return number.checked_mul(unit);
    }
    whole(text.parse::<f64>().ok()? * SECOND_NS)
}

/// Parses a duration, in nanoseconds: `1h30m`, `500ms`, `1.5s`; a number without a unit is in seconds.
#[must_use]
pub fn duration_ns(text: &str) -> Option<i64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return whole(seconds * SECOND_NS);
    }
    let (mut rest, mut all) = (text, 0.0);
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let (unit, ns) = UNITS.iter().find(|(unit, _)| {
            // `m` is no `ms`.
            rest[end..]
                .strip_prefix(unit)
                .is_some_and(|after| !after.starts_with(|c: char| c.is_alphabetic()))
        })?;
        all += number * ns;
        rest = &rest[end + unit.len()..];
    }
    (!text.is_empty()).then(|| whole(all)).flatten()
}

fn whole(ns: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "it is checked")]
    (ns.abs() < 9e18).then_some(ns as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_hexadecimal_digits() {
        let id = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
        assert_eq!(trace_id("4bf92f3577b34da6a3ce929d0e0e4736"), Ok(id));
        assert_eq!(trace_id("1"), Ok(1));
        for wrong in ["", "g", "+1", " 1", "4bf92f3577b34da6a3ce929d0e0e47361"] {
            assert!(trace_id(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn lengths_of_time_have_units() {
        for (text, ns) in [
            ("500ms", Some(500_000_000)),
            ("1m30s", Some(90_000_000_000)),
            ("1.5s", Some(1_500_000_000)),
            ("2h", Some(7_200_000_000_000)),
            ("10us", Some(10_000)),
            ("10µs", Some(10_000)),
            ("15", Some(15_000_000_000)),
            ("0.5", Some(500_000_000)),
            ("", None),
            ("s", None),
            ("5x", None),
            ("5mss", None),
            ("1e30", None),
            ("NaN", None),
        ] {
            assert_eq!(duration_ns(text), ns, "{text:?}");
        }
    }

    #[test]
    fn times_are_distinguished_by_their_size() {
        let ns = 1_750_000_000_000_000_000;
        for text in [
            "1750000000",
            "1750000000000",
            "1750000000000000",
            "1750000000000000000",
            "1750000000.0",
            "2025-06-15T15:06:40Z",
        ] {
            assert_eq!(time_ns(text), Some(ns), "{text}");
        }
        for wrong in ["", "soon", "inf", "2025-06-15"] {
            assert_eq!(time_ns(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn parameters_are_decoded() {
        let uri: Uri = "/api/x/span%252Eid?q=%7B+name%3D%22a%22+%7D&limit=&limit=7&start=5&end=4"
            .parse()
            .expect("a target");
        let head = HeaderMap::new();
        let request = QueryRequest::of(&uri, &head).expect("a request");
        assert_eq!(request.get("q"), Some("{ name=\"a\" }"));
        assert_eq!(request.count("limit", 20, 100), Ok(7));
        assert_eq!(request.count("spss", 3, 100), Ok(3));
        assert!(request.count("limit", 20, 6).is_err() && request.range().is_err());
        assert_eq!(request.after("/api/x/").as_deref(), Some("span.id"));
        assert_eq!(request.tenant, DEFAULT_TENANT);
    }
}

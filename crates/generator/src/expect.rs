//! The expected response: its status, texts in its body, numbers in its JSON.

use crate::flight::RequestFailure;
use curtail_config::Section;
use curtail_load::Failure;
use curtail_units::Bytes;
use http::StatusCode;
use serde_json::Value;

/// Maximum size of a response, unless the request has a maximum of its own.
pub const RESPONSE_BYTES_MAX: Bytes = Bytes::from_kib(64 << 10);

/// The expected response.
#[derive(Clone, Debug, PartialEq)]
pub struct Expect {
    /// The only successful status; all from 200 to 399 when absent.
    pub status: Option<u16>,
    /// Texts that the body contains.
    pub contains: Vec<String>,
    /// Conditions on numbers in the body, which is JSON.
    pub counts: Vec<Count>,
    /// Maximum size of the body.
    pub bytes_max: Bytes,
}

/// A condition on a number in a response.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    /// The place of the number: a JSON pointer (RFC 6901).
    pub pointer: String,
    /// The minimum of the number.
    pub at_least: f64,
    /// The maximum of the number.
    pub at_most: f64,
}

impl Default for Expect {
    fn default() -> Self {
        Self {
            status: None,
            contains: Vec::new(),
            counts: Vec::new(),
            bytes_max: RESPONSE_BYTES_MAX,
        }
    }
}

impl Expect {
    /// Reads the keys of an expected response.
    pub fn read(s: &mut Section<'_>) -> Self {
        Self {
            status: s
                .field("status", "Expected status; absent: 200 to 399.")
                .range(100..=599)
                .optional(),
            contains: s.values("contains", "Texts that the body contains."),
            counts: s.list("counts", "Conditions on numbers in a JSON body.", Count::read),
            bytes_max: s
                .field("bytes_max", "Maximum size of a body; a longer body is a failure.")
                .default(RESPONSE_BYTES_MAX),
        }
    }

    /// Whether a status is successful.
    #[must_use]
    pub fn allows(&self, status: u16) -> bool {
        self.status.map_or((200..400).contains(&status), |good| status == good)
    }

    /// Whether the body is checked.
    #[must_use]
    pub const fn looks_at_body(&self) -> bool {
        !self.contains.is_empty() || !self.counts.is_empty()
    }

    /// Checks a body.
    ///
    /// # Errors
    /// The first difference, in words.
    pub fn check(&self, body: &[u8]) -> Result<(), String> {
        for text in &self.contains {
            if memchr::memmem::find(body, text.as_bytes()).is_none() {
                return Err(format!("the response does not contain {text:?}"));
            }
        }
        if self.counts.is_empty() {
            return Ok(());
        }
        let json: Value = serde_json::from_slice(body)
            .map_err(|error| format!("the response is no JSON: {error}"))?;
        self.counts.iter().try_for_each(|count| count.check(&json))
    }
}

#[derive(Debug)]
pub(crate) struct ResponseCheck<'e> {
    expect: &'e Expect,
    received_bytes: u64,
    body: Vec<u8>,
}

impl<'e> ResponseCheck<'e> {
    pub(crate) const fn new(expect: &'e Expect) -> Self {
        Self { expect, received_bytes: 0, body: Vec::new() }
    }

    pub(crate) const fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    pub(crate) fn take(&mut self, data: &[u8]) -> Result<(), RequestFailure> {
        self.received_bytes += data.len() as u64;
        let max = self.expect.bytes_max.get();
        if self.received_bytes > max {
            let text = format!("a response is longer than {max} bytes");
            return Err(RequestFailure::new(Failure::TooLong, text));
        }
        if self.expect.looks_at_body() {
            self.body.extend_from_slice(data);
        }
        Ok(())
    }

    pub(crate) fn judge_status(&self, status: StatusCode) -> Result<(), RequestFailure> {
        if self.expect.allows(status.as_u16()) {
            return Ok(());
        }
        Err(RequestFailure::new(Failure::Status, format!("status {}", status.as_u16())))
    }

    pub(crate) fn judge_body(&self) -> Result<(), RequestFailure> {
        if !self.expect.looks_at_body() {
            return Ok(());
        }
        self.expect.check(&self.body).map_err(|text| RequestFailure::new(Failure::Check, text))
    }
}

/// Reads the key `pointer` of a number in JSON.
pub fn read_pointer(s: &mut Section<'_>, doc: &'static str) -> String {
    let pointer: String = s.field("pointer", doc).required();
    if !pointer.starts_with('/') {
        s.error("pointer", format!("{pointer:?} does not begin with /: expected a JSON pointer"));
    }
    pointer
}

impl Count {
    fn read(s: &mut Section<'_>) -> Self {
        let pointer = read_pointer(s, "JSON pointer to the number, such as /response/numFound.");
        let equals: Option<f64> = s.field("equals", "Expected value.").optional();
        let at_least = s.field("at_least", "Minimum value.").optional();
        let at_most = s.field("at_most", "Maximum value.").optional();
        if equals.is_some() && (at_least.is_some() || at_most.is_some()) {
            s.error("equals", "there are bounds as well: expected one or the other");
        }
        Self {
            pointer,
            at_least: equals.or(at_least).unwrap_or(f64::NEG_INFINITY),
            at_most: equals.or(at_most).unwrap_or(f64::INFINITY),
        }
    }

    fn check(&self, json: &Value) -> Result<(), String> {
        let Self { pointer, at_least, at_most } = self;
        let found = json
            .pointer(pointer)
            .ok_or_else(|| format!("the response has nothing at {pointer}"))?;
        let number =
            found.as_f64().ok_or_else(|| format!("{pointer} is {found}: expected a number"))?;
        if (*at_least..=*at_most).contains(&number) {
            return Ok(());
        }
        let expected = if at_least == at_most {
            format!("{at_least}")
        } else if at_most.is_infinite() {
            format!("at least {at_least}")
        } else if at_least.is_infinite() {
            format!("at most {at_most}")
        } else {
            format!("{at_least} to {at_most}")
        };
        Err(format!("{pointer} is {number}: expected {expected}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Count, Expect};

    fn count(text: &str) -> Count {
        curtail_config::read("c", text, Count::read).expect("no errors")
    }

    #[test]
    fn a_status_is_good_or_not() {
        let any = Expect::default();
        assert!(any.allows(200) && any.allows(304) && !any.allows(404) && !any.allows(503));
        let one = Expect { status: Some(404), ..Expect::default() };
        assert!(one.allows(404) && !one.allows(200));
    }

    #[test]
    fn a_body_is_held_against_what_was_expected() {
        let counts = vec![count("{pointer: /response/numFound, at_least: 5}")];
        let expect =
            Expect { contains: vec!["\"status\":0".to_owned()], counts, ..Expect::default() };
        let body = |n: u32| format!("{{\"status\":0,\"response\":{{\"numFound\":{n}}}}}");
        assert_eq!(expect.check(body(5).as_bytes()), Ok(()));
        let few = expect.check(body(4).as_bytes()).expect_err("too few");
        assert_eq!(few, "/response/numFound is 4: expected at least 5");
        assert!(expect.check(b"\"status\":0 <html>").expect_err("no JSON").contains("no JSON"));
        assert!(expect.check(b"{}").expect_err("lacks it").contains("does not contain"));
    }

    #[test]
    fn counts_that_contradict_themselves_are_errors() {
        let read = |text| curtail_config::read("c", text, Count::read).map_err(|m| m.to_string());
        assert!(
            read("{pointer: /a, equals: 1, at_least: 1}")
                .expect_err("both")
                .contains("there are bounds as well")
        );
        assert!(
            read("{pointer: a, equals: 1}")
                .expect_err("no pointer")
                .contains("does not begin with /")
        );
        assert_eq!(count("{pointer: /a, equals: 3}").at_most, 3.0);
    }
}

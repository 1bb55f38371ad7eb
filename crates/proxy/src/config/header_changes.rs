//! The keys `request_headers` and `response_headers` of a route: headers that the proxy sets, adds and removes.
//!
//! A value is a constant, or has fields in braces. The headers with which the proxy itself frames, connects, forwards and
//! traces messages cannot be changed, apart from the host that the replicas get.
//! **Limits**: [`CHANGES_MAX`] headers of one key, whose values have at most [`VALUE_BYTES_MAX`] bytes.

use crate::access_log::format::header_name;
use crate::template;
use curtail_config::Section;
use curtail_http::forwarding::HOP_BY_HOP;
use curtail_http::head::{Known, is_host};
use curtail_text::expectation;

/// Maximum number of headers that a route changes in a request, or in a response.
const CHANGES_MAX: usize = 64;

/// Maximum length of a value as it is written: many servers accept no longer header.
const VALUE_BYTES_MAX: usize = 8_192;

/// The headers of a message that only the proxy writes.
const OF_MESSAGES: u32 = HOP_BY_HOP | Known::ContentLength.bit() | Known::FramingAlias.bit();

/// The headers of a request that only the proxy writes.
const OF_REQUESTS: u32 = OF_MESSAGES
    | Known::Expect.bit()
    | Known::MaxForwards.bit()
    | Known::Traceparent.bit()
    | Known::Tracestate.bit()
    | Known::Forwarded.bit()
    | Known::ForwardedFor.bit()
    | Known::ForwardedProto.bit();

/// The changes of the headers of requests or of responses.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeaderChanges {
    /// The names of removed headers in lower case, with those of `set`.
    pub(crate) removed: Vec<String>,
    /// The headers of `set` and `add`, by their names in lower case.
    pub(crate) added: Vec<(String, HeaderValue)>,
}

/// A value of a header: its parts in order.
pub(crate) type HeaderValue = Vec<ValuePart>;

/// A part of a header's value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValuePart {
    Literal(String),
    Field(ValueField),
}

/// A property of the request. Those with the same name in the access log have the same value there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueField {
    Client,
    Host,
    Scheme,
    TraceId,
}

impl ValueField {
    const NAMES: [(&'static str, Self); 4] = [
        ("client", Self::Client),
        ("host", Self::Host),
        ("scheme", Self::Scheme),
        ("trace_id", Self::TraceId),
    ];

    fn from_name(name: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, field)| *field).ok_or_else(|| {
            let known: Vec<_> = Self::NAMES.iter().map(|(name, _)| *name).collect();
            format!("{name:?} is not a field: {}", expectation(name, &known, ""))
        })
    }
}

impl HeaderChanges {
    /// Whether no header changes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }

    /// Whether the header with this name, in lower case, changes.
    pub(super) fn changes(&self, name: &str) -> bool {
        let added = self.added.iter().map(|(name, _)| name);
        self.removed.iter().chain(added).any(|changed| changed == name)
    }

    /// The number of changed headers.
    #[must_use]
    pub fn count(&self) -> usize {
        let is_set = |name: &&String| self.added.iter().any(|(added, _)| added == *name);
        self.added.len() + self.removed.len() - self.removed.iter().filter(is_set).count()
    }
}

/// The messages that a section changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageKind {
    Request,
    Response,
}

/// Reads the section of one kind of message.
pub(super) fn read(s: &mut Section<'_>, kind: MessageKind) -> HeaderChanges {
    let set: Vec<(String, String)> = s.named_values(
        "set",
        "Headers with their values, which replace headers of the same name. Fields: {client}, {host}, {scheme}, {trace_id}; {{ and }} stand for braces.",
    );
    let add: Vec<(String, String)> = s.named_values(
        "add",
        "Headers with their values, which are added to headers of the same name. Fields as in `set`.",
    );
    let remove: Vec<String> = s.values("remove", "Names of headers that are removed.");
    s.check_len("set", set.len() + add.len() + remove.len(), CHANGES_MAX);
    let mut changes = HeaderChanges::default();
    let mut seen: Vec<String> = Vec::new();
    let listed =
        remove.iter().enumerate().map(|(at, name)| ("remove", format!("remove[{at}]"), name, None));
    let valued = [("set", &set), ("add", &add)].into_iter().flat_map(|(key, named)| {
        named.iter().map(move |(name, value)| (key, format!("{key}.{name}"), name, Some(value)))
    });
    for (key, path, name, value) in valued.chain(listed) {
        let checked = check_name(kind, key, name).and_then(|name| {
            if seen.contains(&name) {
                return Err(format!(
                    "{name} is here twice: expected each header once in `set`, `add` and `remove`"
                ));
            }
            let value = value.map(|value| parse_value(&name, value)).transpose()?;
            Ok((name, value))
        });
        match checked {
            Err(text) => s.value_error(&path, text),
            Ok((name, value)) => {
                seen.push(name.clone());
                if key != "add" {
                    changes.removed.push(name.clone());
                }
                changes.added.extend(value.map(|value| (name, value)));
            }
        }
    }
    changes
}

/// Returns the name in lower case, if a route may change this header.
fn check_name(kind: MessageKind, key: &str, name: &str) -> Result<String, String> {
    let name = header_name(name)?;
    let known = Known::of(name.as_bytes());
    let own = if kind == MessageKind::Request { OF_REQUESTS } else { OF_MESSAGES };
    let is_alias =
        kind == MessageKind::Request && known == Known::ForwardedOther && name.contains('_');
    let is_own = known.bit() & own != 0 || is_alias || name == "trailer";
    if is_own || name.starts_with("curtail-") {
        return Err(format!("only the proxy itself writes {name}: expected another header"));
    }
    if kind == MessageKind::Request && known == Known::Host && key != "set" {
        return Err("a request has exactly one host: expected `set` for another one".to_owned());
    }
    Ok(name)
}

fn parse_value(name: &str, text: &str) -> Result<HeaderValue, String> {
    if text.len() > VALUE_BYTES_MAX {
        return Err(format!("has {} bytes: expected at most {VALUE_BYTES_MAX}", text.len()));
    }
    let is_printable = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if !is_printable || text.trim() != text {
        return Err(format!(
            "{text:?} is not the value of a header: expected printable ASCII without spaces at its ends"
        ));
    }
    if name == Known::Host.name() && !is_host(text.as_bytes()) {
        return Err(format!(
            "{text:?} is not a host: expected a name or an address, with or without a port, such as search.example.org"
        ));
    }
    let field = |name: &str| ValueField::from_name(name).map(ValuePart::Field);
    let (value, _) = template::parse(text, "{client}", ValuePart::Literal, field)?;
    Ok(value)
}

#[cfg(test)]
mod tests;

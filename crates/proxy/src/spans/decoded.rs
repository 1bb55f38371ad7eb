//! OTLP as tests read it: by the schema and strictly, with nothing shared with the encoder.
//!
//! Any byte that the schema does not explain fails the test.

use std::collections::BTreeMap;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Any {
    Text(String),
    Bool(bool),
    Int(i64),
}

pub(crate) type Attributes = Vec<(String, Any)>;

/// `ExportTraceServiceRequest` with one resource and one scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) resource: Attributes,
    pub(crate) scope: (String, String),
    pub(crate) spans: Vec<Span>,
}

/// `Span`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) trace_id: Vec<u8>,
    pub(crate) span_id: Vec<u8>,
    pub(crate) trace_state: String,
    pub(crate) parent: Vec<u8>,
    pub(crate) name: String,
    pub(crate) kind: u64,
    pub(crate) start_unix_ns: u64,
    pub(crate) end_unix_ns: u64,
    pub(crate) attributes: Attributes,
    pub(crate) events: Vec<Event>,
    pub(crate) status: u64,
    pub(crate) flags: u64,
}

/// `Span.Event`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) unix_ns: u64,
    pub(crate) name: String,
    pub(crate) attributes: Attributes,
}

impl Span {
    pub(crate) fn get(&self, key: &str) -> Option<&Any> {
        self.attributes.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Any::Text(text) => Some(text),
            Any::Bool(_) | Any::Int(_) => panic!("{key} is not a text"),
        }
    }

    pub(crate) fn int(&self, key: &str) -> Option<i64> {
        match self.get(key)? {
            Any::Int(int) => Some(*int),
            Any::Bool(_) | Any::Text(_) => panic!("{key} is not an integer"),
        }
    }

    /// The attributes, one a line.
    pub(crate) fn lines(&self) -> String {
        lines(&self.attributes)
    }
}

pub(crate) fn lines(attributes: &Attributes) -> String {
    let line = |(key, value): &(String, Any)| match value {
        Any::Text(text) => format!("{key}: {text}\n"),
        Any::Bool(flag) => format!("{key}: {flag}\n"),
        Any::Int(int) => format!("{key}: {int}\n"),
    };
    attributes.iter().map(line).collect()
}

/// The value of a field.
#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Int(u64),
    Bits64(u64),
    Bits32(u32),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    fn bytes(self) -> &'a [u8] {
        let Self::Bytes(bytes) = self else { panic!("expected bytes, not {self:?}") };
        bytes
    }

    fn text(self) -> String {
        String::from_utf8(self.bytes().to_vec()).expect("texts are UTF-8")
    }

    fn int(self) -> u64 {
        let Self::Int(int) = self else { panic!("expected a varint, not {self:?}") };
        int
    }

    fn fixed64(self) -> u64 {
        let Self::Bits64(bits) = self else { panic!("expected 64 bits, not {self:?}") };
        bits
    }

    fn fixed32(self) -> u64 {
        let Self::Bits32(bits) = self else { panic!("expected 32 bits, not {self:?}") };
        bits.into()
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let end = bytes.iter().position(|byte| byte & 0x80 == 0).expect("a varint ends");
    let (digits, rest) = bytes.split_at(end + 1);
    *bytes = rest;
    let value = digits.iter().rev().fold(0_u128, |n, byte| n << 7 | u128::from(byte & 0x7f));
    u64::try_from(value).expect("a varint is at most 64 bits")
}

/// The fields of a message, in order.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let mut take = |len: usize| {
            let (taken, rest) = bytes.split_at_checked(len).expect("the field is whole");
            bytes = rest;
            taken
        };
        let value = match tag & 7 {
            0 => Value::Int(varint(&mut bytes)),
            1 => Value::Bits64(u64::from_le_bytes(take(8).try_into().expect("eight"))),
            5 => Value::Bits32(u32::from_le_bytes(take(4).try_into().expect("four"))),
            2 => {
                let len = usize::try_from(varint(&mut bytes)).expect("a length");
                let (taken, rest) = bytes.split_at_checked(len).expect("the field is whole");
                bytes = rest;
                Value::Bytes(taken)
            }
            wire => panic!("wire type {wire}"),
        };
        all.push((tag >> 3, value));
    }
    all
}

/// `ExportTraceServiceRequest { resource_spans = 1 }`.
pub(crate) fn request(bytes: &[u8]) -> Request {
    let [(1, resource_spans)] = fields(bytes)[..] else { panic!("one resource_spans") };
    let mut request = Request::default();
    // `ResourceSpans { resource = 1, scope_spans = 2, schema_url = 3 }`.
    for (field, value) in fields(resource_spans.bytes()) {
        match field {
            1 => {
                for (field, value) in fields(value.bytes()) {
                    assert_eq!(field, 1, "Resource {{ attributes = 1 }}");
                    request.resource.push(key_value(value.bytes()));
                }
            }
            2 => scope_spans(value.bytes(), &mut request),
            other => panic!("field {other} of ResourceSpans"),
        }
    }
    request
}

/// `ScopeSpans { scope = 1, spans = 2, schema_url = 3 }`.
pub(crate) fn scope_spans(bytes: &[u8], request: &mut Request) {
    for (field, value) in fields(bytes) {
        match field {
            1 => {
                let scope: BTreeMap<_, _> = fields(value.bytes()).into_iter().collect();
                request.scope = (scope[&1].text(), scope[&2].text());
            }
            2 => request.spans.push(span(value.bytes())),
            other => panic!("field {other} of ScopeSpans"),
        }
    }
}

fn span(bytes: &[u8]) -> Span {
    let mut span = Span::default();
    for (field, value) in fields(bytes) {
        match field {
            1 => span.trace_id = value.bytes().to_vec(),
            2 => span.span_id = value.bytes().to_vec(),
            3 => span.trace_state = value.text(),
            4 => span.parent = value.bytes().to_vec(),
            5 => span.name = value.text(),
            6 => span.kind = value.int(),
            7 => span.start_unix_ns = value.fixed64(),
            8 => span.end_unix_ns = value.fixed64(),
            9 => span.attributes.push(key_value(value.bytes())),
            11 => span.events.push(event(value.bytes())),
            15 => {
                let [(3, code)] = fields(value.bytes())[..] else { panic!("a code alone") };
                span.status = code.int();
            }
            16 => span.flags = value.fixed32(),
            other => panic!("field {other} of Span"),
        }
    }
    let keys: std::collections::BTreeSet<_> = span.attributes.iter().map(|(key, _)| key).collect();
    assert_eq!(keys.len(), span.attributes.len(), "a key twice in {:?}", span.attributes);
    span
}

fn event(bytes: &[u8]) -> Event {
    let mut event = Event::default();
    for (field, value) in fields(bytes) {
        match field {
            1 => event.unix_ns = value.fixed64(),
            2 => event.name = value.text(),
            3 => event.attributes.push(key_value(value.bytes())),
            other => panic!("field {other} of Event"),
        }
    }
    event
}

/// `KeyValue { key = 1, value = 2 }`, `AnyValue { string_value = 1, bool_value = 2, int_value = 3 }`.
fn key_value(bytes: &[u8]) -> (String, Any) {
    let [(1, key), (2, value)] = fields(bytes)[..] else { panic!("a key and a value") };
    let [(kind, value)] = fields(value.bytes())[..] else { panic!("one value") };
    let value = match kind {
        1 => Any::Text(value.text()),
        2 => Any::Bool(value.int() == 1),
        3 => Any::Int(value.int().cast_signed()),
        other => panic!("field {other} of AnyValue"),
    };
    (key.text(), value)
}

//! The trace that a request belongs to, and the headers that pass it to the replicas.
//!
//! The proxy continues a client's valid `traceparent`, with the span of the attempt as parent, and keeps `tracestate`.
//! Other requests begin a sampled trace without a `tracestate`. The proxy always writes version 00. If no spans are
//! configured, both headers pass unchanged, because a new sampled trace would make the replicas record every request.
//! **Source**: W3C Recommendation "Trace Context" (2021), sections 3.2 and 4.3; level 2, section 3.2.2.5.2, for the
//! random flag.

use curtail_http::head::{Fields, Known};
use curtail_http::outbound_request::{TRACEPARENT_LEN, Traceparent};
use curtail_units::Rng;
use std::hash::{BuildHasher, RandomState};

/// Names a trace; never all zero.
pub(crate) type TraceId = [u8; 16];

/// Names a span within its trace; never all zero.
pub(crate) type SpanId = [u8; 8];

/// The caller may have recorded the trace.
const FLAG_SAMPLED: u8 = 0x01;

/// The trace ID is random, so that samplers may rely on it.
const FLAG_RANDOM: u8 = 0x02;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceContext {
    pub(crate) trace_id: TraceId,
    pub(crate) span_id: SpanId,
    /// The client's span; absent: the trace begins here.
    pub(crate) parent: Option<SpanId>,
    pub(crate) sampled: bool,
    pub(crate) random: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parsed {
    trace_id: TraceId,
    parent: SpanId,
    flags: u8,
}

impl TraceContext {
    /// The context of a request with these fields: the trace that they name, or a new one.
    pub(crate) fn from_fields(fields: &Fields, rng: &mut Rng) -> Self {
        let span_id = new_span_id(rng);
        match sole_traceparent(fields) {
            Some(Parsed { trace_id, parent, flags }) => Self {
                trace_id,
                span_id,
                parent: Some(parent),
                sampled: flags & FLAG_SAMPLED != 0,
                random: flags & FLAG_RANDOM != 0,
            },
            None => Self {
                trace_id: new_trace_id(rng),
                span_id,
                parent: None,
                sampled: true,
                random: true,
            },
        }
    }

    /// Removes the client's `tracestate` if the proxy does not continue the client's trace.
    pub(crate) fn clean(&self, fields: &mut Fields) {
        if self.parent.is_none() {
            fields.remove(Known::Tracestate.bit());
        }
    }

    /// The context of a part of the request with a span of its own.
    pub(crate) const fn child(&self, span_id: SpanId) -> Self {
        Self { span_id, parent: Some(self.span_id), ..*self }
    }

    /// The `traceparent` of an attempt whose span is `span_id`.
    pub(crate) fn child_header(&self, span_id: SpanId) -> Traceparent {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(&mut text[3..35], &self.trace_id);
        write_hex(&mut text[36..52], &span_id);
        let sampled = if self.sampled { FLAG_SAMPLED } else { 0 };
        let random = if self.random { FLAG_RANDOM } else { 0 };
        write_hex(&mut text[53..55], &[sampled | random]);
        text
    }
}

/// A new generator for IDs, seeded from the entropy that the standard library takes from the system for its hash maps.
/// It is not for secrets.
pub(crate) fn entropy_rng() -> Rng {
    // Two hashes of the same value differ, because each state has keys of its own.
    Rng::new(RandomState::new().hash_one(0_u8))
}

pub(crate) fn new_span_id(rng: &mut Rng) -> SpanId {
    loop {
        let id = rng.next_u64();
        if id != 0 {
            return id.to_be_bytes();
        }
    }
}

fn new_trace_id(rng: &mut Rng) -> TraceId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&rng.next_u64().to_be_bytes());
    // The random flag requires that the right half alone is random. It is never zero, and so neither is the whole ID.
    id[8..].copy_from_slice(&new_span_id(rng));
    id
}

/// The `traceparent`, when there is exactly one and it is valid.
fn sole_traceparent(fields: &Fields) -> Option<Parsed> {
    let mut values = fields.all(Known::Traceparent);
    match (values.next(), values.next()) {
        (Some(only), None) => parse(only),
        (None | Some(_), _) => None,
    }
}

fn parse(text: &[u8]) -> Option<Parsed> {
    let (known, beyond) = text.split_at_checked(TRACEPARENT_LEN)?;
    let [version] = read_hex::<1>(&known[..2])?;
    // Later versions may have more fields after another dash; version ff will never exist.
    let beyond_fits = match version {
        0x00 => beyond.is_empty(),
        0xff => false,
        _ => beyond.first().is_none_or(|&byte| byte == b'-'),
    };
    let dashed = known[2] == b'-' && known[35] == b'-' && known[52] == b'-';
    if !beyond_fits || !dashed {
        return None;
    }
    let trace_id = read_hex::<16>(&known[3..35])?;
    let parent = read_hex::<8>(&known[36..52])?;
    let [flags] = read_hex::<1>(&known[53..55])?;
    let named = trace_id != [0; 16] && parent != [0; 8];
    named.then_some(Parsed { trace_id, parent, flags })
}

/// The bytes that `2 * N` hexadecimal digits stand for; letters must be lower case.
fn read_hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

const fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// Writes two hexadecimal digits for each byte.
pub(crate) fn write_hex(digits: &mut [u8], bytes: &[u8]) {
    /// The digits of each byte.
    static DIGITS: [[u8; 2]; 256] = {
        let digits = b"0123456789abcdef";
        let mut pairs = [[0; 2]; 256];
        let mut byte = 0;
        while byte < pairs.len() {
            pairs[byte] = [digits[byte >> 4], digits[byte & 0xf]];
            byte += 1;
        }
        pairs
    };
    let (pairs, _) = digits.as_chunks_mut::<2>();
    for (pair, byte) in pairs.iter_mut().zip(bytes) {
        *pair = DIGITS[usize::from(*byte)];
    }
}

#[cfg(test)]
mod tests;

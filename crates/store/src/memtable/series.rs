//! The series of a point.
//!
//! A series is identified by the tenant, the attributes of the resource, the name, version and attributes of the scope,
//! the name, unit, kind, temporality and monotonicity of the metric, and the attributes of the point. Descriptions,
//! schema URLs, dropped counts and the order of attributes do not matter, so new releases of a library keep the series.
//!
//! The ID is a hash of 128 bits, the same in every process and version, because files keep it. Each 64-bit word of the
//! input changes both halves of the hash: each half takes a multiplication, with its own factor, and a shift. The
//! hashes of attributes are added up, so that their order does not matter.
//!
//! **Limits**: a tenant can construct two series with one ID. Their rows interleave, but
//! each row has its tenant, its metric and its attributes, so no other tenant sees a difference.

use curtail_otlp::{Attribute, Envelope, Metric, Scope, Value};

/// The state of a hash, to which parts are added one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series([u64; 2]);

/// The factors are odd, with about as many ones as zeros: the first digits of pi and of e.
const FACTORS: [u64; 2] = [0x243F_6A88_85A3_08D3, 0xB7E1_5162_8AED_2A6B];

impl Series {
    /// The hash of the fields that all points of a scope share.
    pub(super) fn of_scope(tenant: &str, batch: &[u8], envelope: &Envelope, scope: &Scope) -> Self {
        let resource = &envelope.resources[scope.resource as usize];
        let mut series = Self(FACTORS);
        series.bytes(tenant.as_bytes());
        series.attributes(resource.attributes.of(&envelope.attributes), batch);
        series.bytes(scope.name.of(batch));
        series.bytes(scope.version.of(batch));
        series.attributes(scope.attributes.of(&envelope.attributes), batch);
        series
    }

    /// The hash of the fields that all points of a metric in the scope share.
    pub(super) fn of_metric(mut self, batch: &[u8], metric: &Metric) -> Self {
        self.bytes(metric.name.of(batch));
        self.bytes(metric.unit.of(batch));
        self.word(metric.form as u64);
        self.word(u64::from(metric.temporality.cast_unsigned()));
        self.word(u64::from(metric.is_monotonic));
        self
    }

    /// The ID of the series of a point with these attributes.
    pub(super) fn id(mut self, attributes: &[Attribute], batch: &[u8]) -> u128 {
        self.attributes(attributes, batch);
        self.finish()
    }

    fn attributes(&mut self, attributes: &[Attribute], batch: &[u8]) {
        let hashes = attributes.iter().map(|attribute| {
            let mut hash = Self(FACTORS);
            hash.bytes(attribute.key.of(batch));
            hash.value(&attribute.value, batch);
            hash.finish()
        });
        let sum = hashes.fold(0, u128::wrapping_add);
        for half in sum.to_le_bytes().as_chunks().0 {
            self.word(u64::from_le_bytes(*half));
        }
    }

    /// Hashes the kind with the value, so that values of different kinds differ.
    fn value(&mut self, value: &Value, batch: &[u8]) {
        let (kind, word) = match *value {
            Value::Empty => (0, 0),
            Value::Bool(is) => (1, u64::from(is)),
            Value::Int(number) => (2, number.cast_unsigned()),
            Value::Double(number) => (3, number.to_bits()),
            Value::Text(slice) => return self.bytes_of(4, slice.of(batch)),
            Value::List(slice) => return self.bytes_of(5, slice.of(batch)),
            Value::Map(slice) => return self.bytes_of(6, slice.of(batch)),
            Value::Bytes(slice) => return self.bytes_of(7, slice.of(batch)),
        };
        self.word(kind);
        self.word(word);
    }

    fn bytes_of(&mut self, kind: u64, bytes: &[u8]) {
        self.word(kind);
        self.bytes(bytes);
    }

    /// Hashes the length of the bytes, then the bytes.
    fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.word(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.word(u64::from_le_bytes(last));
        }
    }

    /// Hashes a word. Both steps are invertible, so different words give different states.
    #[inline]
    fn word(&mut self, word: u64) {
        for (state, factor) in self.0.iter_mut().zip(FACTORS) {
            *state = (*state ^ word).wrapping_mul(factor);
            *state ^= *state >> 32;
        }
    }

    /// Mixes each half, so that each bit of the hash depends on all bits of its half.
    fn finish(mut self) -> u128 {
        self.word(FACTORS[1]);
        self.word(FACTORS[0]);
        u128::from(self.0[0]) << 64 | u128::from(self.0[1])
    }
}

#[cfg(test)]
mod tests;

//! A batch that grows row by row, grouped by resource and scope.
//!
//! The messages that contain rows have the same field numbers in all three signals.

use super::{BadRow, ResourceText, RowPart, ScopeText, number, object, text};
use curtail_protobuf as protobuf;
use std::collections::HashMap;

/// A batch of traces, or of logs, that grows row by row. All rows must be of the same signal.
#[derive(Debug, Default)]
pub struct BatchWriter {
    /// The resources, in the order of first occurrence.
    resources: Vec<ResourceRows>,
    /// The number of each resource, by [`Key::resource`].
    resource_numbers: HashMap<Box<[u8]>, usize>,
    /// The number of each scope, by [`Key::whole`].
    scope_numbers: HashMap<Box<[u8]>, ScopeNumber>,
    /// The key of the current row.
    key: Key,
    row: Vec<u8>,
    bytes: usize,
}

/// The number of a resource, and of a scope within the resource.
type ScopeNumber = (usize, usize);

#[derive(Debug)]
struct ResourceRows {
    /// The encoded fields of the message.
    message: Vec<u8>,
    schema_url: Box<str>,
    /// The scopes, in the order of first occurrence.
    scopes: Vec<ScopeRows>,
}

#[derive(Debug)]
struct ScopeRows {
    /// The encoded fields of the message.
    message: Vec<u8>,
    schema_url: Box<str>,
    /// The rows, encoded as fields of the scope's message.
    rows: Vec<u8>,
}

/// The texts of a resource and a scope, each after its length, so that two keys are equal only if all texts are equal.
#[derive(Debug, Default)]
struct Key {
    bytes: Vec<u8>,
    resource_len: usize,
}

impl Key {
    fn set(&mut self, resource: &ResourceText<'_>, scope: &ScopeText<'_>) {
        let out = &mut self.bytes;
        out.clear();
        protobuf::bytes_field(out, 1, resource.attributes.as_bytes());
        protobuf::varint_field(out, 2, u64::from(resource.dropped_attributes));
        protobuf::bytes_field(out, 3, resource.schema_url.as_bytes());
        self.resource_len = out.len();
        for text in [scope.name, scope.version, scope.attributes, scope.schema_url] {
            protobuf::bytes_field(out, 4, text.as_bytes());
        }
        protobuf::varint_field(out, 5, u64::from(scope.dropped_attributes));
    }

    fn resource(&self) -> &[u8] {
        &self.bytes[..self.resource_len]
    }

    fn whole(&self) -> &[u8] {
        &self.bytes
    }
}

impl BatchWriter {
    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a row, whose message `write` writes. A row that fails is not in the batch.
    pub(super) fn row(
        &mut self,
        resource: &ResourceText<'_>,
        scope: &ScopeText<'_>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), BadRow>,
    ) -> Result<(), BadRow> {
        self.row.clear();
        write(&mut self.row)?;
        self.key.set(resource, scope);
        let (resource, scope) = match self.scope_numbers.get(self.key.whole()) {
            Some(&numbers) => numbers,
            None => self.add(resource, scope)?,
        };
        let rows = &mut self.resources[resource].scopes[scope].rows;
        let len = rows.len();
        protobuf::bytes_field(rows, 2, &self.row);
        self.bytes += rows.len() - len;
        Ok(())
    }

    /// Adds a new scope, and its resource if it is also new.
    fn add(
        &mut self,
        resource: &ResourceText<'_>,
        scope: &ScopeText<'_>,
    ) -> Result<ScopeNumber, BadRow> {
        let new_scope = ScopeRows::new(scope)?;
        let known = self.resource_numbers.get(self.key.resource()).copied();
        let resource_number = match known {
            Some(number) => number,
            None => {
                let new_resource = ResourceRows::new(resource)?;
                self.bytes += new_resource.message.len() + new_resource.schema_url.len();
                self.resources.push(new_resource);
                let number = self.resources.len() - 1;
                self.resource_numbers.insert(self.key.resource().into(), number);
                number
            }
        };
        self.bytes += new_scope.message.len() + new_scope.schema_url.len();
        let scopes = &mut self.resources[resource_number].scopes;
        scopes.push(new_scope);
        let numbers = (resource_number, scopes.len() - 1);
        self.scope_numbers.insert(self.key.whole().into(), numbers);
        Ok(numbers)
    }

    /// Returns the number of bytes so far, without some 20 bytes for each resource and scope.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the batch: `TracesData` or `LogsData`, which have the same encoding as export requests.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        let around = 20 * (self.resource_numbers.len() + self.scope_numbers.len());
        let mut out = Vec::with_capacity(self.bytes + around);
        for resource in &self.resources {
            protobuf::long_message_field(&mut out, 1, |out| resource.write(out));
        }
        out
    }
}

impl ResourceRows {
    fn new(resource: &ResourceText<'_>) -> Result<Self, BadRow> {
        let mut message = Vec::new();
        object(&mut message, 1, resource.attributes)
            .map_err(|fault| RowPart::Resource.is(fault))?;
        number(&mut message, 2, resource.dropped_attributes);
        Ok(Self { message, schema_url: resource.schema_url.into(), scopes: Vec::new() })
    }

    fn write(&self, out: &mut Vec<u8>) {
        protobuf::bytes_field(out, 1, &self.message);
        for scope in &self.scopes {
            protobuf::long_message_field(out, 2, |out| scope.write(out));
        }
        text(out, 3, &self.schema_url);
    }
}

impl ScopeRows {
    fn new(scope: &ScopeText<'_>) -> Result<Self, BadRow> {
        let mut message = Vec::new();
        text(&mut message, 1, scope.name);
        text(&mut message, 2, scope.version);
        object(&mut message, 3, scope.attributes).map_err(|fault| RowPart::Scope.is(fault))?;
        number(&mut message, 4, scope.dropped_attributes);
        Ok(Self { message, schema_url: scope.schema_url.into(), rows: Vec::new() })
    }

    fn write(&self, out: &mut Vec<u8>) {
        protobuf::bytes_field(out, 1, &self.message);
        out.extend_from_slice(&self.rows);
        text(out, 3, &self.schema_url);
    }
}

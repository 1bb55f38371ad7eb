//! The resource and the scope of rows.
//!
//! A resource may follow its rows in the message, so the message is read twice: for its fields, then for its rows.

use crate::attributes::{Attribute, push};
use crate::error::{Broken, Fault, Refused};
use crate::judge::Judge;
use crate::limits::Limits;
use crate::schema::{Message, RESOURCE, SCOPE};
use crate::slice::{Slice, short};
use crate::wire::{LEN, Reader, VARINT};

/// Resources and scopes of one batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Envelope {
    /// The resources, in the order of the batch.
    pub resources: Vec<Resource>,
    /// The scopes; a row has the index of its scope.
    pub scopes: Vec<Scope>,
    /// The attributes of resources and scopes.
    pub attributes: Vec<Attribute>,
}

/// A resource: the origin of rows, usually a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resource {
    /// The attributes, in [`Envelope::attributes`].
    pub attributes: Slice,
    /// The number of attributes that the sender dropped.
    pub dropped_attributes: u32,
    /// The schema of the attribute names.
    pub schema_url: Slice,
}

/// A scope: the library that recorded the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// The index of the resource in [`Envelope::resources`].
    pub resource: u32,
    /// The name.
    pub name: Slice,
    /// The version.
    pub version: Slice,
    /// The attributes, in [`Envelope::attributes`].
    pub attributes: Slice,
    /// The number of attributes that the sender dropped.
    pub dropped_attributes: u32,
    /// The schema of the attribute names of the rows.
    pub schema_url: Slice,
}

/// The rows of one signal, which read themselves from a batch.
pub(crate) trait ReadRow: Default {
    /// The message of a batch of this signal.
    const BATCH: &'static Message;

    /// Creates an empty list of rows, with capacity for a batch of this size.
    fn of_bytes(_: usize) -> Self {
        Self::default()
    }

    /// Reads a row of a scope: a span, a record, or a metric with its points.
    fn read_row(
        &mut self,
        within: &mut Reader<'_>,
        scope: u32,
        judge: &mut Judge<'_>,
    ) -> Result<(), Broken>;
}

/// Reads a whole batch.
pub(crate) fn decode<R: ReadRow>(
    batch: &[u8],
    limits: &Limits,
) -> Result<(R, Envelope, Refused), Broken> {
    let mut reader = Reader::new(batch, R::BATCH);
    let max = limits.batch_bytes;
    if batch.len() > max as usize {
        return Err(reader.fault(Fault::Batch { len: batch.len(), max }));
    }
    let (mut rows, mut envelope, mut judge) =
        (R::of_bytes(batch.len()), Envelope::default(), Judge::new(limits));
    // The messages of the three signals have the same numbers.
    let of_resource = R::BATCH.part(1);
    while let Some(tag) = reader.tag()? {
        match (tag.field, tag.wire_type) {
            (1, LEN) => {
                let message = reader.message(of_resource)?;
                envelope.read_resource(message, of_resource.part(2), &mut rows, &mut judge)?;
            }
            _ => reader.other(tag)?,
        }
    }
    Ok((rows, envelope, judge.refused()))
}

impl Envelope {
    fn read_resource<R: ReadRow>(
        &mut self,
        message: Reader<'_>,
        of_scope: &'static Message,
        rows: &mut R,
        judge: &mut Judge<'_>,
    ) -> Result<(), Broken> {
        judge.part(&message)?;
        let mut resource = Resource::default();
        let from = self.attributes.len();
        let mut reader = message;
        while let Some(tag) = reader.tag()? {
            match (tag.field, tag.wire_type) {
                (1, LEN) => self.resource(&mut reader, &mut resource, from, judge)?,
                (3, LEN) => resource.schema_url = judge.checked(&mut reader)?,
                _ => reader.other(tag)?,
            }
        }
        resource.attributes = Slice::to_end(from, &self.attributes);
        let number = short(self.resources.len());
        self.resources.push(resource);
        let outer = judge.begin_rows();
        let mut reader = message;
        while let Some(tag) = reader.tag()? {
            match (tag.field, tag.wire_type) {
                (2, LEN) => self.read_scope(reader.message(of_scope)?, number, rows, judge)?,
                _ => reader.skip(tag)?,
            }
        }
        judge.end_rows(outer);
        Ok(())
    }

    fn resource(
        &mut self,
        within: &mut Reader<'_>,
        resource: &mut Resource,
        from: usize,
        judge: &mut Judge<'_>,
    ) -> Result<(), Broken> {
        let mut reader = within.message(&RESOURCE)?;
        while let Some(tag) = reader.tag()? {
            match (tag.field, tag.wire_type) {
                (1, LEN) => push(&mut reader, &mut self.attributes, from, judge)?,
                (2, VARINT) => resource.dropped_attributes = reader.count()?,
                _ => reader.other(tag)?,
            }
        }
        Ok(())
    }

    fn read_scope<R: ReadRow>(
        &mut self,
        message: Reader<'_>,
        resource: u32,
        rows: &mut R,
        judge: &mut Judge<'_>,
    ) -> Result<(), Broken> {
        judge.part(&message)?;
        let mut scope = Scope { resource, ..Scope::default() };
        let from = self.attributes.len();
        let mut reader = message;
        while let Some(tag) = reader.tag()? {
            match (tag.field, tag.wire_type) {
                (1, LEN) => self.scope(&mut reader, &mut scope, from, judge)?,
                (3, LEN) => scope.schema_url = judge.checked(&mut reader)?,
                _ => reader.other(tag)?,
            }
        }
        scope.attributes = Slice::to_end(from, &self.attributes);
        let number = short(self.scopes.len());
        self.scopes.push(scope);
        let outer = judge.begin_rows();
        let mut reader = message;
        while let Some(tag) = reader.tag()? {
            match (tag.field, tag.wire_type) {
                (2, LEN) => rows.read_row(&mut reader, number, judge)?,
                _ => reader.skip(tag)?,
            }
        }
        judge.end_rows(outer);
        Ok(())
    }

    fn scope(
        &mut self,
        within: &mut Reader<'_>,
        scope: &mut Scope,
        from: usize,
        judge: &mut Judge<'_>,
    ) -> Result<(), Broken> {
        let mut reader = within.message(&SCOPE)?;
        while let Some(tag) = reader.tag()? {
            match (tag.field, tag.wire_type) {
                (1, LEN) => scope.name = judge.checked(&mut reader)?,
                (2, LEN) => scope.version = judge.checked(&mut reader)?,
                (3, LEN) => push(&mut reader, &mut self.attributes, from, judge)?,
                (4, VARINT) => scope.dropped_attributes = reader.count()?,
                _ => reader.other(tag)?,
            }
        }
        Ok(())
    }
}

//! Decodes log records.

use crate::attributes::{Attribute, Value, any_value, push};
use crate::check::check;
use crate::envelope::{self, Envelope, ReadRow};
use crate::error::{Broken, Malformed, Refused};
use crate::judge::Judge;
use crate::limits::Limits;
use crate::schema::{LOG_RECORD, LOGS, Message};
use crate::slice::Slice;
use crate::spans::id;
use crate::wire::{FIXED32, FIXED64, LEN, Reader, VARINT};

/// The log records of one batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Logs {
    /// The records, in the order of the batch.
    pub records: Vec<LogRecord>,
    /// The attributes of records.
    pub attributes: Vec<Attribute>,
    /// The resources and scopes of the rows.
    pub envelope: Envelope,
}

/// A log record, or an event.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LogRecord {
    /// The time of the event, in nanoseconds since 1970, below 2^63; zero: unset.
    pub time_ns: u64,
    /// The time of the observation, in nanoseconds since 1970.
    pub observed_ns: u64,
    /// The ID of the trace; zero: none.
    pub trace_id: u128,
    /// The ID of the span; zero: none.
    pub span_id: u64,
    /// The body.
    pub body: Value,
    /// The severity in the words of the source.
    pub severity_text: Slice,
    /// The name of the kind of event.
    pub event_name: Slice,
    /// The attributes, in [`Logs::attributes`].
    pub attributes: Slice,
    /// The number of attributes that the sender dropped.
    pub dropped_attributes: u32,
    /// W3C trace flags.
    pub flags: u32,
    /// The index of the scope in [`Envelope::scopes`].
    pub scope: u32,
    /// 1 to 24, from trace to fatal; 0: unset.
    pub severity: i32,
}

impl Logs {
    /// Reads a batch: an `ExportLogsServiceRequest` or `LogsData`, which have the same encoding.
    ///
    /// # Errors
    /// When the batch is malformed, which rejects the whole batch. Records that cannot be stored are only counted.
    pub fn decode(batch: &[u8], limits: &Limits) -> Result<(Self, Refused), Malformed> {
        let (logs, envelope, refused) =
            envelope::decode::<Self>(batch, limits).map_err(|broken| *broken)?;
        Ok((Self { envelope, ..logs }, refused))
    }
}

impl ReadRow for Logs {
    const BATCH: &'static Message = &LOGS;

    fn read_row(
        &mut self,
        within: &mut Reader<'_>,
        scope: u32,
        judge: &mut Judge<'_>,
    ) -> Result<(), Broken> {
        let from = self.attributes.len();
        judge.part(within)?;
        let mut reader = within.message(&LOG_RECORD)?;
        let mut record = LogRecord { scope, ..LogRecord::default() };
        while let Some(tag) = reader.tag()? {
            match (tag.field, tag.wire_type) {
                (1, FIXED64) => record.time_ns = judge.time(&mut reader)?,
                (2, VARINT) => record.severity = reader.enumerated()?,
                (3, LEN) => record.severity_text = judge.checked(&mut reader)?,
                (5, LEN) => {
                    record.body = any_value(&mut reader, |parts| check(parts, judge, 1))?;
                    if let Value::Text(text) = record.body {
                        judge.text(&reader, text);
                    }
                }
                (6, LEN) => push(&mut reader, &mut self.attributes, from, judge)?,
                (7, VARINT) => record.dropped_attributes = reader.count()?,
                (8, FIXED32) => record.flags = reader.fixed32()?,
                // The specification takes an ID of another length for none.
                (9, LEN) => record.trace_id = u128::from_be_bytes(id(&mut reader)?),
                (10, LEN) => record.span_id = u64::from_be_bytes(id(&mut reader)?),
                (11, FIXED64) => record.observed_ns = judge.time(&mut reader)?,
                (12, LEN) => record.event_name = judge.checked(&mut reader)?,
                _ => reader.other(tag)?,
            }
        }
        if judge.keeps(record.trace_id, record.span_id) {
            record.attributes = Slice::to_end(from, &self.attributes);
            self.records.push(record);
        } else {
            self.attributes.truncate(from);
        }
        Ok(())
    }
}

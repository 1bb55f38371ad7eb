//! Decides which rows of a batch are stored.

use crate::error::{Broken, Fault, Refused, RefusedRow, RowFault};
use crate::limits::Limits;
use crate::slice::Slice;
use crate::wire::Reader;

/// The faults of a batch while it is read.
#[derive(Debug)]
pub(crate) struct Judge<'a> {
    pub(crate) limits: &'a Limits,
    /// The number of further parts that the limit allows.
    parts_left: u32,
    /// The fault of the current row.
    fault: Option<RowFault>,
    /// The fault of the resource, scope or metric of the current rows.
    envelope: Option<RowFault>,
    /// The number of rows so far.
    rows: u64,
    refused: Refused,
}

impl<'a> Judge<'a> {
    pub(crate) const fn new(limits: &'a Limits) -> Self {
        let refused = Refused { count: 0, first: None };
        Self { limits, parts_left: limits.parts, fault: None, envelope: None, rows: 0, refused }
    }

    /// Counts a part of the batch; fails beyond the limit.
    #[inline(always)]
    pub(crate) fn part(&mut self, within: &Reader<'_>) -> Result<(), Broken> {
        let Some(left) = self.parts_left.checked_sub(1) else {
            return Err(within.fault(Fault::Parts { max: self.limits.parts }));
        };
        self.parts_left = left;
        Ok(())
    }

    /// Rejects the current row; the first reason is kept.
    #[cold]
    pub(crate) fn refuse(&mut self, fault: RowFault) {
        self.fault.get_or_insert(fault);
    }

    /// Rejects the row if a text is not UTF-8.
    #[inline(always)]
    pub(crate) fn text(&mut self, within: &Reader<'_>, text: Slice) {
        let bytes = within.bytes(text);
        if !bytes.is_ascii() && std::str::from_utf8(bytes).is_err() {
            self.refuse(RowFault::NotUtf8);
        }
    }

    /// Reads a text, and rejects the row if the text is not UTF-8.
    #[inline(always)]
    pub(crate) fn checked(&mut self, reader: &mut Reader<'_>) -> Result<Slice, Broken> {
        let text = reader.slice()?;
        self.text(reader, text);
        Ok(text)
    }

    /// Reads a time in nanoseconds since 1970, and rejects the row if the time exceeds 63 bits.
    #[inline(always)]
    pub(crate) fn time(&mut self, reader: &mut Reader<'_>) -> Result<u64, Broken> {
        let ns = reader.fixed64()?;
        if ns > i64::MAX.cast_unsigned() {
            self.refuse(RowFault::Time);
        }
        Ok(ns)
    }

    /// Begins the rows of a resource, scope or metric; returns the argument of [`Self::end_rows`].
    pub(crate) fn begin_rows(&mut self) -> Option<RowFault> {
        let outer = self.envelope;
        self.envelope = outer.or(self.fault.take().map(|_| RowFault::Envelope));
        outer
    }

    pub(crate) const fn end_rows(&mut self, outer: Option<RowFault>) {
        self.envelope = outer;
    }

    /// Ends a row with these IDs; returns whether the row is stored.
    #[inline(always)]
    pub(crate) fn keeps(&mut self, trace_id: u128, span_id: u64) -> bool {
        self.rows += 1;
        let fault = self.fault.take().or(self.envelope);
        if let Some(fault) = fault {
            self.refused.add(RefusedRow { number: self.rows, trace_id, span_id, fault });
        }
        fault.is_none()
    }

    pub(crate) const fn refused(self) -> Refused {
        self.refused
    }
}

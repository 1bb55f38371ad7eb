//! Whether a row can be kept.

use crate::error::{Broken, Fault, Refused, RefusedRow, RowFault};
use crate::limits::Limits;
use crate::slice::Slice;
use crate::wire::Reader;

/// What is found wrong while a batch is read.
#[derive(Debug)]
pub(crate) struct Judge<'a> {
    pub(crate) limits: &'a Limits,
    /// The number that may still come.
    parts_left: u32,
    /// Of what is being read.
    fault: Option<RowFault>,
    /// Of what stands around the rows that are being read: all of them have it.
    around: Option<RowFault>,
    /// Rows that have been judged.
    rows: u64,
    refused: Refused,
}

impl<'a> Judge<'a> {
    pub(crate) const fn new(limits: &'a Limits) -> Self {
        let refused = Refused { count: 0, first: None };
        Self { limits, parts_left: limits.parts, fault: None, around: None, rows: 0, refused }
    }

    /// Another part of the batch comes, within this message.
    #[inline(always)]
    pub(crate) fn part(&mut self, within: &Reader<'_>) -> Result<(), Broken> {
        let Some(left) = self.parts_left.checked_sub(1) else {
            return Err(within.fault(Fault::Parts { max: self.limits.parts }));
        };
        self.parts_left = left;
        Ok(())
    }

    /// What is being read cannot be kept. The first reason counts.
    #[cold]
    pub(crate) fn refuse(&mut self, fault: RowFault) {
        self.fault.get_or_insert(fault);
    }

    /// Whether a text in `within` is one.
    #[inline(always)]
    pub(crate) fn text(&mut self, within: &Reader<'_>, text: Slice) {
        let bytes = within.bytes(text);
        if !bytes.is_ascii() && std::str::from_utf8(bytes).is_err() {
            self.refuse(RowFault::NotUtf8);
        }
    }

    /// Takes the text that comes next.
    #[inline(always)]
    pub(crate) fn checked(&mut self, reader: &mut Reader<'_>) -> Result<Slice, Broken> {
        let text = reader.slice()?;
        self.text(reader, text);
        Ok(text)
    }

    /// Takes the time that comes next: nanoseconds since 1970, of which 63 bits are kept.
    #[inline(always)]
    pub(crate) fn time(&mut self, reader: &mut Reader<'_>) -> Result<u64, Broken> {
        let ns = reader.fixed64()?;
        if ns > i64::MAX.cast_unsigned() {
            self.refuse(RowFault::Time);
        }
        Ok(ns)
    }

    /// What stands around rows has been read, and they follow. The caller gets what to end with.
    pub(crate) fn begin_rows(&mut self) -> Option<RowFault> {
        let outer = self.around;
        self.around = outer.or(self.fault.take().map(|_| RowFault::Around));
        outer
    }

    pub(crate) const fn end_rows(&mut self, outer: Option<RowFault>) {
        self.around = outer;
    }

    /// The judgement of a row that has been read, with the IDs that it names.
    #[inline(always)]
    pub(crate) fn keeps(&mut self, trace_id: u128, span_id: u64) -> bool {
        self.rows += 1;
        let fault = self.fault.take().or(self.around);
        if let Some(fault) = fault {
            self.refused.add(RefusedRow { number: self.rows, trace_id, span_id, fault });
        }
        fault.is_none()
    }

    pub(crate) const fn refused(self) -> Refused {
        self.refused
    }
}

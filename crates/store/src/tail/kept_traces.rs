//! Selects the traces of a day that are kept, and their rows in a run.

use super::KEPT_TRACES_MAX;
use super::bars::Bars;
use crate::columns::{Coded, Column, Columns, Plain, Values};
use crate::schema::envelope::TENANT;
use crate::schema::{spans, traces};
use crate::sort::RowPosition;
use std::num::NonZeroU32;

/// The kept traces of a day, in the order of their IDs.
#[derive(Debug)]
pub(crate) struct KeptTraces {
    bars: Bars,
    sample: NonZeroU32,
    ids: Vec<u128>,
    /// The tenant and the weight of each trace.
    whose: Vec<(u32, NonZeroU32)>,
    tenants: Vec<String>,
    /// The number of spans of all kept traces.
    spans: u64,
}

/// Too many traces would be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {KEPT_TRACES_MAX} traces would be kept")]
pub struct TooMany;

impl KeptTraces {
    /// No traces yet. One in `sample` of the traces that are neither slow nor failed will be kept.
    pub(crate) const fn new(bars: Bars, sample: NonZeroU32) -> Self {
        Self { bars, sample, ids: Vec::new(), whose: Vec::new(), tenants: Vec::new(), spans: 0 }
    }

    /// Selects from the next rows of the table of traces, which are in the order of their IDs.
    pub(crate) fn take(&mut self, rows: &Columns) -> Result<(), TooMany> {
        let slowest = self.bars.slowest(rows);
        let tenants = rows.coded(traces::TENANT);
        // The number in `self.tenants` by the code in the rows.
        let mut known = vec![None; tenants.dictionary.len() as usize + 1];
        for (row, is_slow) in slowest.into_iter().enumerate() {
            let id = rows.wide(traces::TRACE_ID)[row];
            let weight = if is_slow || rows.longs(traces::ERROR_COUNT)[row] > 0 {
                NonZeroU32::MIN
            } else if mixed(id).is_multiple_of(self.sample.get().into()) {
                self.sample
            } else {
                continue;
            };
            if self.ids.len() == KEPT_TRACES_MAX {
                return Err(TooMany);
            }
            let known = &mut known[tenants.code(row) as usize];
            let tenant = *known.get_or_insert_with(|| number(&mut self.tenants, tenants.text(row)));
            self.spans += rows.longs(traces::SPAN_COUNT)[row].unsigned_abs();
            self.ids.push(id);
            self.whose.push((tenant, weight));
        }
        Ok(())
    }

    /// The number of kept spans.
    pub(crate) const fn spans(&self) -> u64 {
        self.spans
    }

    /// The kept rows of a row group of spans, with their weights. The row groups of a run come in order. `at` is the
    /// run's position among the kept traces, zero at first.
    pub(crate) fn of(&self, group: &Columns, at: &mut usize) -> Columns {
        let mut positions = Vec::new();
        let mut weights = Coded::new(Plain::Eight);
        let tenants = group.coded(TENANT);
        for (row, id) in (0..).zip(group.wide(spans::TRACE_ID)) {
            while self.ids.get(*at).is_some_and(|each| each < id) {
                *at += 1;
            }
            // Several tenants may have traces with the same ID.
            let same = self.ids[*at..].iter().zip(&self.whose[*at..]);
            let mut same = same.take_while(|(each, _)| *each == id).map(|(_, whose)| whose);
            let tenant = || tenants.text(row as usize);
            let whose = same.find(|(number, _)| self.tenants[*number as usize] == tenant());
            if let Some((_, weight)) = whose {
                positions.push(RowPosition { batch: 0, row });
                let weight = i64::from(weight.get()).to_le_bytes();
                weights.codes.push(weights.dictionary.intern(&weight));
            }
        }
        let mut rest = Columns::gather(group.schema(), &[group], &positions);
        rest.put(spans::WEIGHT, Column::One(Values::Coded(weights)));
        rest
    }
}

/// The number of a name, which is added if it is new.
fn number(names: &mut Vec<String>, name: &str) -> u32 {
    let number = names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    });
    u32::try_from(number).expect("there are no more than traces")
}

/// Hashes an ID, which need not be random, by the finalizer of `SplitMix64` for each half. The hash must never change.
const fn mixed(id: u128) -> u64 {
    const fn mix(mut word: u64) -> u64 {
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    let (high, low) = ((id >> 64) as u64, id as u64);
    mix(mix(high.wrapping_add(0x9E37_79B9_7F4A_7C15)) ^ low)
}

#[cfg(test)]
mod tests;

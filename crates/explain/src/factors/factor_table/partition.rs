//! A partition of the table: the cells of some strata, which are filled and counted by one task.

use super::{Cell, FactorCells, as_usize};
use crate::factors::candidates::{BinRange, Candidates, NumericField};
use crate::traces::Traces;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// The strata of a partition, and the cells of their traces.
#[derive(Debug)]
pub(super) struct Partition {
    /// The places of each stratum in the order of the table.
    pub(super) strata: Vec<Range<usize>>,
    /// Its cells among those of the table.
    pub(super) cells: Range<u32>,
    /// The cells of each trace, counted from the first of the partition, at the indices that `ends` bounds.
    of_traces: Vec<u32>,
    ends: Vec<usize>,
    /// The cells of factors, in the order of the strata.
    of_factors: Vec<(u32, FactorCells)>,
}

/// The cells of the stratum whose traces are added.
#[derive(Debug)]
struct StratumCells {
    any_trace: u32,
    of_values: Vec<Option<u32>>,
    /// The cell of the texts of each field, and the last trace with the field.
    of_texts: Vec<Option<(u32, u32)>>,
    of_numbers: Vec<Option<u32>>,
}

impl Partition {
    /// `order` has the traces, stratum by stratum.
    pub(super) fn of(
        traces: &Traces,
        candidates: &Candidates,
        order: &[u32],
        strata: Vec<Range<usize>>,
    ) -> Self {
        let mut this = Self {
            strata,
            cells: 0..0,
            of_traces: Vec::new(),
            ends: Vec::new(),
            of_factors: Vec::new(),
        };
        let rows = || order[this.places()].iter().map(|nth| &traces.rows[*nth as usize]);
        let cells_max = |row| 1 + 2 * traces.values_of(row).len() + traces.numbers_of(row).len();
        this.of_traces = Vec::with_capacity(rows().map(cells_max).sum());
        this.ends = Vec::with_capacity(this.places().len());
        let mut in_use = StratumCells {
            any_trace: 0,
            of_values: vec![None; traces.values.len()],
            of_texts: vec![None; traces.fields.len()],
            of_numbers: vec![None; traces.fields.len()],
        };
        for of_stratum in this.strata.clone() {
            in_use.any_trace = this.add_cells(1).start;
            let of_stratum = &order[of_stratum];
            for nth in of_stratum {
                let row = &traces.rows[*nth as usize];
                this.of_traces.push(in_use.any_trace);
                this.add_values((traces, *nth), candidates, &mut in_use);
                this.add_numbers(traces.numbers_of(row), &candidates.of_fields, &mut in_use);
                this.ends.push(this.of_traces.len());
            }
            in_use.clear(traces, of_stratum);
        }
        this
    }

    /// Numbers the cells from `first`, and returns the cells of factors.
    pub(super) fn number_from(&mut self, first: u32) -> Vec<(u32, FactorCells)> {
        let number = |cells: &mut Range<u32>| {
            let end = first.checked_add(cells.end).expect("memory has room for fewer cells");
            *cells = first + cells.start..end;
        };
        number(&mut self.cells);
        let mut of_factors = core::mem::take(&mut self.of_factors);
        for (_, FactorCells { own, field }) in &mut of_factors {
            number(own);
            number(field);
        }
        of_factors
    }

    /// The places of all its traces in the order of the table.
    pub(super) fn places(&self) -> Range<usize> {
        let first = self.strata.first().map_or(0, |stratum| stratum.start);
        first..self.strata.last().map_or(first, |stratum| stratum.end)
    }

    /// The cells of the trace at a place, counted from the first of the partition.
    pub(super) fn cells_of(&self, place: usize) -> &[u32] {
        let nth = place - self.strata[0].start;
        let from = nth.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.of_traces[from..self.ends[nth]]
    }

    /// The part of a list with an entry for each cell of the table.
    pub(super) fn own<'c, T>(&self, of_cells: &'c [T]) -> &'c [T] {
        &of_cells[as_usize(&self.cells)]
    }

    /// Adds a trace to its cells, which are those of the partition.
    pub(super) fn count(&self, place: usize, is_slow: bool, cells: &mut [Cell]) {
        self.cells_of(place).iter().for_each(|cell| cells[*cell as usize].add(is_slow));
    }

    fn add_cells(&mut self, count: u32) -> Range<u32> {
        let from = self.cells.end;
        self.cells.end = from.checked_add(count).expect("memory has room for fewer cells");
        from..self.cells.end
    }

    fn add_values(
        &mut self,
        (traces, nth): (&Traces, u32),
        candidates: &Candidates,
        in_use: &mut StratumCells,
    ) {
        for value in traces.values_of(&traces.rows[nth as usize]) {
            let field = traces.values.get(*value).0 as usize;
            let (of_field, last) = match in_use.of_texts[field] {
                Some((cell, last)) => (cell, Some(last)),
                None => (self.add_cells(1).start, None),
            };
            // A field with several values counts once.
            if last != Some(nth) {
                in_use.of_texts[field] = Some((of_field, nth));
                self.of_traces.push(of_field);
            }
            if let Some(factor) = candidates.of_values[*value as usize] {
                let own = in_use.of_values[*value as usize].unwrap_or_else(|| {
                    let own = self.add_cells(1);
                    let cells = FactorCells { own: own.clone(), field: of_field..of_field + 1 };
                    self.of_factors.push((factor, cells));
                    own.start
                });
                in_use.of_values[*value as usize] = Some(own);
                self.of_traces.push(own);
            }
        }
    }

    fn add_numbers(
        &mut self,
        numbers: &[(u32, f64)],
        fields: &[NumericField],
        in_use: &mut StratumCells,
    ) {
        for (field, number) in numbers {
            let of_field = &fields[*field as usize];
            if of_field.factors.is_empty() && of_field.called.is_none() {
                continue;
            }
            let first = in_use.of_numbers[*field as usize]
                .unwrap_or_else(|| self.add_bins(of_field, in_use.any_trace));
            in_use.of_numbers[*field as usize] = Some(first);
            self.of_traces.push(first + of_field.bin(*number));
        }
    }

    /// Adds the bins of a field, and returns the first.
    fn add_bins(&mut self, of_field: &NumericField, any_trace: u32) -> u32 {
        let field = self.add_cells(of_field.bins());
        for (factor, bins) in &of_field.factors {
            let own = match bins {
                BinRange::Above(last) => field.start + last + 1..field.end,
                BinRange::UpTo(last) => field.start..field.start + last + 1,
            };
            self.of_factors.push((*factor, FactorCells { own, field: field.clone() }));
        }
        if let Some(factor) = of_field.called {
            let cells = FactorCells { own: field.clone(), field: any_trace..any_trace + 1 };
            self.of_factors.push((factor, cells));
        }
        field.start
    }
}

impl StratumCells {
    /// Forgets the cells of a stratum.
    fn clear(&mut self, traces: &Traces, of_stratum: &[u32]) {
        self.of_texts.fill(None);
        self.of_numbers.fill(None);
        let of_traces =
            || of_stratum.iter().map(|nth| traces.values_of(&traces.rows[*nth as usize]));
        if of_traces().map(<[u32]>::len).sum::<usize>() > self.of_values.len() {
            self.of_values.fill(None);
        } else {
            of_traces().flatten().for_each(|value| self.of_values[*value as usize] = None);
        }
    }
}

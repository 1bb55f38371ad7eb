//! Summarizes traces from spans in the order of a run.
//!
//! **Limits**: spans of a trace beyond 2^20 are only counted, and the trace is not [whole](crate::schema::traces).
//! Memory holds a row group of summaries and one trace.

use super::trace::{Fields, OneTrace, Row};
use crate::columns::{Columns, Dictionary, Plain, Renumbered};
use crate::run::GROUP_ROWS;
use crate::schema::envelope::{SERVICE, TENANT};
use crate::schema::spans::TRACE_ID;
use crate::schema::traces::TRACES;
use std::collections::BTreeSet;
use std::mem;

/// The maximum number of names. Beyond it, names that the current trace does not need are forgotten.
const NAMES_MAX: u32 = 10_000;

/// Summarizes the traces of one run.
#[derive(Debug)]
pub struct Summaries {
    fields: Fields,
    /// The names of services and tenants.
    names: Dictionary,
    /// Rows of the row group that is being made.
    made: Columns,
    /// Full row groups.
    full: Vec<Columns>,
    trace_id: u128,
    /// The parts of the current trace, one for each tenant: mostly one part.
    parts: Vec<OneTrace>,
    /// The number of `parts` that are in use.
    used: usize,
}

impl Default for Summaries {
    fn default() -> Self {
        Self {
            fields: Fields::default(),
            names: Dictionary::new(Plain::Text),
            made: Columns::new(TRACES.schema()),
            full: Vec::new(),
            trace_id: 0,
            parts: Vec::new(),
            used: 0,
        }
    }
}

impl Summaries {
    /// The columns of spans that summaries need.
    #[must_use]
    pub fn fields() -> BTreeSet<usize> {
        Fields::default().all()
    }

    /// Adds the next rows in the order of a run. Returns full row groups of summaries.
    pub fn take(&mut self, rows: &Columns) -> Vec<Columns> {
        if self.names.len() > NAMES_MAX {
            self.forget_names();
        }
        let mut services = Renumbered::new(rows.coded(SERVICE));
        let mut tenants = Renumbered::new(rows.coded(TENANT));
        let values = self.fields.of(rows);
        for (row, trace_id) in rows.wide(TRACE_ID).iter().enumerate() {
            if *trace_id != self.trace_id {
                self.end_trace();
                self.trace_id = *trace_id;
            }
            let tenant = tenants.code(row, &mut self.names);
            let service = services.code(row, &mut self.names);
            self.part(tenant).push(&values, Row { row, service });
        }
        mem::take(&mut self.full)
    }

    /// Ends the last trace; returns the remaining row groups.
    #[must_use]
    pub fn finish(mut self) -> Vec<Columns> {
        self.end_trace();
        if !self.made.is_empty() {
            self.full.push(self.made);
        }
        self.full
    }

    /// The part of the current trace that a tenant has.
    fn part(&mut self, tenant: u32) -> &mut OneTrace {
        let known = self.parts[..self.used].iter().position(|part| part.tenant == tenant);
        let nth = known.unwrap_or_else(|| {
            if self.used == self.parts.len() {
                self.parts.push(OneTrace::default());
            }
            self.parts[self.used].begin(tenant);
            self.used += 1;
            self.used - 1
        });
        &mut self.parts[nth]
    }

    fn end_trace(&mut self) {
        for part in &mut self.parts[..self.used] {
            part.summarize(self.trace_id, &self.names, &mut self.made);
            if self.made.len() == GROUP_ROWS {
                self.full.push(mem::replace(&mut self.made, Columns::new(TRACES.schema())));
            }
        }
        self.used = 0;
    }

    /// Forgets names that the current trace does not have.
    fn forget_names(&mut self) {
        let old = mem::replace(&mut self.names, Dictionary::new(Plain::Text));
        for part in &mut self.parts[..self.used] {
            part.rename(|number| match number {
                0 => 0,
                known => self.names.intern(old.get(known)),
            });
        }
    }
}

#[cfg(test)]
mod tests;

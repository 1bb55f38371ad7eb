//! Gathers rows of several sources in another order, for sorting and merging.

use super::dictionary::{Dictionary, short};
use super::{Coded, Column, Columns, Lists, Values};
use crate::schema::{Field, Schema};
use crate::sort::RowPosition;
use std::ops::Range;

/// The values of each source; every source has this variant.
macro_rules! each {
    ($sources:expr, $variant:path) => {
        $sources.iter().map(|source| match source {
            $variant(values) => values,
            _ => panic!("sources have the same schema"),
        })
    };
}

impl Columns {
    /// The rows at some positions, in the order of the positions, whose `batch` is an index of `sources`.
    ///
    /// # Panics
    /// When there is no such source, or the sources have another schema.
    #[must_use]
    pub fn gather(schema: &'static Schema, sources: &[&Self], positions: &[RowPosition]) -> Self {
        let columns = (0..schema.fields().len()).map(|field| {
            let of_field: Vec<_> = sources.iter().map(|source| &source.columns[field]).collect();
            gather_column(&schema.fields()[field], &of_field, positions)
        });
        Self { schema, len: positions.len(), columns: columns.collect() }
    }

    /// A copy of a range of the rows.
    pub(crate) fn part(&self, rows: Range<usize>) -> Self {
        let positions: Vec<_> = rows.map(|row| RowPosition { batch: 0, row: short(row) }).collect();
        Self::gather(self.schema, &[self], &positions)
    }
}

fn gather_column(field: &Field, sources: &[&Column], positions: &[RowPosition]) -> Column {
    let mut gathered = Column::new(field);
    match &mut gathered {
        Column::One(values) => {
            let sources: Vec<_> = each!(sources, Column::One).collect();
            values.gather(&sources, positions);
        }
        Column::Many(lists) => {
            let sources: Vec<_> = each!(sources, Column::Many).collect();
            lists.gather(&sources, positions);
        }
    }
    gathered
}

impl Values {
    fn gather(&mut self, sources: &[&Self], positions: &[RowPosition]) {
        match self {
            Self::Wide(into) => gather(into, each!(sources, Self::Wide), positions),
            Self::Narrow(into) => gather(into, each!(sources, Self::Narrow), positions),
            Self::Longs(into) => gather(into, each!(sources, Self::Longs), positions),
            Self::Coded(into) => {
                let sources: Vec<_> = each!(sources, Self::Coded).collect();
                into.gather(&sources, positions);
            }
        }
    }
}

fn gather<'a, T: Copy + Default + 'a>(
    into: &mut Vec<T>,
    sources: impl Iterator<Item = &'a Vec<T>>,
    positions: &[RowPosition],
) {
    let sources: Vec<_> = sources.collect();
    if sources.iter().any(|source| !source.is_empty()) {
        let value = |at: &RowPosition| sources[at.batch as usize].get(at.row as usize).copied();
        into.extend(positions.iter().map(|at| value(at).unwrap_or_default()));
    }
}

impl Coded {
    fn gather(&mut self, sources: &[&Self], positions: &[RowPosition]) {
        if sources.iter().all(|source| source.codes.is_empty()) {
            return;
        }
        if let [source] = sources {
            return self.gather_one(source, positions);
        }
        let mut renumbered: Vec<_> = sources.iter().map(|source| Renumbered::new(source)).collect();
        self.codes.reserve(positions.len());
        for at in positions {
            let code = renumbered[at.batch as usize].code(at.row as usize, &mut self.dictionary);
            self.codes.push(code);
        }
    }

    /// Gathers from one source. The values in its dictionary are distinct, so they need no lookup.
    fn gather_one(&mut self, source: &Self, positions: &[RowPosition]) {
        let mut renumbered = vec![0; source.dictionary.len() as usize + 1];
        let (before, mut new) = (self.dictionary.len(), Vec::new());
        self.codes.extend(positions.iter().map(|at| {
            let code = source.code(at.row as usize);
            let known = &mut renumbered[code as usize];
            if *known == 0 && code != 0 {
                new.push(code);
                *known = before + short(new.len());
            }
            *known
        }));
        self.dictionary.append_from(&source.dictionary, &new);
    }
}

/// The codes of a source in another dictionary.
pub(crate) struct Renumbered<'a> {
    source: &'a Coded,
    /// By the code in the source; zero: not known yet, or null.
    codes: Vec<u32>,
}

impl<'a> Renumbered<'a> {
    pub(crate) fn new(source: &'a Coded) -> Self {
        Self { source, codes: vec![0; source.dictionary.len() as usize + 1] }
    }

    /// The code in `dictionary` of the value of a row; zero is null. A new value is added.
    #[inline]
    pub(crate) fn code(&mut self, row: usize, dictionary: &mut Dictionary) -> u32 {
        let Some(&code) = self.source.codes.get(row) else { return 0 };
        let known = self.codes[code as usize];
        if known != 0 || code == 0 {
            return known;
        }
        let new = dictionary.intern(self.source.dictionary.get(code));
        self.codes[code as usize] = new;
        new
    }
}

impl Lists {
    fn gather(&mut self, sources: &[&Self], positions: &[RowPosition]) {
        if sources.iter().all(|source| source.is_empty()) {
            return;
        }
        let mut entries = Vec::new();
        self.ends.reserve(positions.len());
        for at in positions {
            let of_row = sources[at.batch as usize].entries(at.row as usize);
            let batch = at.batch;
            entries.extend(of_row.map(|entry| RowPosition { batch, row: short(entry) }));
            self.ends.push(short(entries.len()));
        }
        for (nth, part) in self.parts.iter_mut().enumerate() {
            let sources: Vec<_> = sources.iter().map(|source| &source.parts[nth]).collect();
            part.gather(&sources, &entries);
        }
    }
}

//! The rows of a table in memory, column by column.
//!
//! All rows have this form: in memtables, sorted for a run, read from a run, and merged. Most columns are codes of a
//! [`Dictionary`], so sorting and merging move numbers, and a text is looked at once for all its rows.
//!
//! A column may be shorter than the rows: the rest is null, or zero for numbers. A column that nobody sends or reads takes no
//! memory.

mod dictionary;
mod gather;
mod same;

pub use dictionary::{Dictionary, Plain};

use crate::schema::{Field, Form, Kind, Schema};
pub(crate) use dictionary::is_same;
use dictionary::short;
use std::collections::BTreeSet;
use std::ops::Range;

/// Rows of one table.
#[derive(Clone, Debug)]
pub struct Columns {
    schema: &'static Schema,
    len: usize,
    /// In the order of the schema's fields.
    columns: Vec<Column>,
}

/// The values of one field.
#[derive(Clone, Debug)]
pub enum Column {
    /// At most one value a row.
    One(Values),
    /// Any number of them.
    Many(Lists),
}

/// Values, row by row or entry by entry.
#[derive(Clone, Debug)]
pub enum Values {
    /// Sixteen bytes; zero is null in optional fields.
    Wide(Vec<u128>),
    /// Eight bytes; zero is null in optional fields.
    Narrow(Vec<u64>),
    /// Integers that mostly differ.
    Longs(Vec<i64>),
    /// Codes of a dictionary.
    Coded(Coded),
}

/// Codes of a dictionary.
#[derive(Clone, Debug)]
pub struct Coded {
    /// The values of the codes.
    pub dictionary: Dictionary,
    /// Zero, like a missing code at the end, is null.
    pub codes: Vec<u32>,
}

/// Lists; maps are lists of keys and values.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// The end of the entries of each row. Rows beyond the last one have none.
    ends: Vec<u32>,
    /// The parts of the entries.
    parts: Vec<Values>,
}

impl Columns {
    /// No rows.
    #[must_use]
    pub fn new(schema: &'static Schema) -> Self {
        Self { schema, len: 0, columns: schema.fields().iter().map(Column::new).collect() }
    }

    /// A copy of some fields.
    #[must_use]
    pub fn only(&self, fields: &BTreeSet<usize>) -> Self {
        let mut copy = Self::nothing(self.schema, self.len);
        for field in fields {
            copy.columns[*field] = match &self.columns[*field] {
                Column::One(values) => Column::One(values.copy()),
                Column::Many(Lists { ends, parts }) => {
                    let parts = parts.iter().map(Values::copy).collect();
                    Column::Many(Lists { ends: ends.clone(), parts })
                }
            };
        }
        copy
    }

    /// The schema.
    #[must_use]
    pub const fn schema(&self) -> &'static Schema {
        self.schema
    }

    /// The number of rows.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The size in memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.columns.iter().map(Column::bytes).sum()
    }

    /// The column of a field.
    #[must_use]
    pub fn column(&self, field: usize) -> &Column {
        &self.columns[field]
    }

    /// `len` rows without any values yet.
    pub(crate) fn nothing(schema: &'static Schema, len: usize) -> Self {
        Self { len, ..Self::new(schema) }
    }

    /// Replaces the column of a field.
    pub(crate) fn put(&mut self, field: usize, column: Column) {
        self.columns[field] = column;
    }

    /// The sixteen bytes of each row.
    ///
    /// # Panics
    /// When the field is of another kind.
    #[must_use]
    pub fn wide(&self, field: usize) -> &[u128] {
        let Column::One(Values::Wide(wide)) = &self.columns[field] else {
            wrong(self.schema, field)
        };
        wide
    }

    /// The eight bytes of each row.
    ///
    /// # Panics
    /// When the field is of another kind.
    #[must_use]
    pub fn narrow(&self, field: usize) -> &[u64] {
        let Column::One(Values::Narrow(narrow)) = &self.columns[field] else {
            wrong(self.schema, field)
        };
        narrow
    }

    /// The number of each row.
    ///
    /// # Panics
    /// When the field is of another kind.
    #[must_use]
    pub fn longs(&self, field: usize) -> &[i64] {
        let Column::One(Values::Longs(longs)) = &self.columns[field] else {
            wrong(self.schema, field)
        };
        longs
    }

    /// The values of a field that has a dictionary.
    ///
    /// # Panics
    /// When the field is of another kind.
    #[must_use]
    pub fn coded(&self, field: usize) -> &Coded {
        let Column::One(Values::Coded(coded)) = &self.columns[field] else {
            wrong(self.schema, field)
        };
        coded
    }

    /// The lists of a field.
    ///
    /// # Panics
    /// When the field is of another kind.
    #[must_use]
    pub fn lists(&self, field: usize) -> &Lists {
        match &self.columns[field] {
            Column::Many(lists) => lists,
            Column::One(_) => wrong(self.schema, field),
        }
    }
}

fn wrong(schema: &Schema, field: usize) -> ! {
    panic!("{} is of another kind", schema.fields()[field].name)
}

/// Rows are added at the end: first all values of one, then [`Columns::end_row`].
impl Columns {
    /// The sixteen bytes of the row that is being added.
    pub(crate) fn push_wide(&mut self, field: usize, value: u128) {
        let Column::One(Values::Wide(wide)) = &mut self.columns[field] else {
            wrong(self.schema, field)
        };
        wide.push(value);
    }

    /// The eight bytes of the row that is being added.
    pub(crate) fn push_narrow(&mut self, field: usize, value: u64) {
        let Column::One(Values::Narrow(narrow)) = &mut self.columns[field] else {
            wrong(self.schema, field)
        };
        narrow.push(value);
    }

    /// The number of the row that is being added.
    pub(crate) fn push_long(&mut self, field: usize, value: i64) {
        let Column::One(Values::Longs(longs)) = &mut self.columns[field] else {
            wrong(self.schema, field)
        };
        longs.push(value);
    }

    /// The code of a value in the dictionary of a field.
    pub(crate) fn intern(&mut self, field: usize, value: &[u8]) -> u32 {
        self.coded_mut(field).dictionary.intern(value)
    }

    /// Sets the value of the row that is being added, by its code; returns whether it was null before.
    pub(crate) fn set(&mut self, field: usize, code: u32) -> bool {
        let row = self.len;
        let codes = &mut self.coded_mut(field).codes;
        if codes.len() < row {
            codes.resize(row, 0);
        }
        let is_first = codes.len() == row;
        if is_first {
            codes.push(code);
        }
        is_first
    }

    /// Sets the value of the next `count` rows, by its code, unless they have one.
    pub(crate) fn set_many(&mut self, field: usize, code: u32, count: usize) {
        let row = self.len;
        let codes = &mut self.coded_mut(field).codes;
        if codes.len() <= row {
            codes.resize(row, 0);
            codes.resize(row + count, code);
        }
    }

    /// Sets the values of rows in order; `intern` returns the code of one.
    pub(crate) fn set_each<V>(
        &mut self,
        field: usize,
        rows: impl Iterator<Item = (usize, V)>,
        intern: impl Fn(&mut Dictionary, V) -> u32,
    ) {
        let Coded { dictionary, codes } = self.coded_mut(field);
        for (row, value) in rows {
            debug_assert!(codes.len() <= row, "each row has one value");
            codes.resize(row, 0);
            codes.push(intern(dictionary, value));
        }
    }

    /// Another entry in the list of the row that is being added.
    pub(crate) fn push_entry(&mut self, field: usize) -> Entry<'_> {
        let row = self.len;
        match &mut self.columns[field] {
            Column::Many(lists) => lists.begin(row),
            Column::One(_) => wrong(self.schema, field),
        }
    }

    /// Ends the row.
    pub(crate) fn end_row(&mut self) {
        self.len += 1;
    }

    fn coded_mut(&mut self, field: usize) -> &mut Coded {
        let Column::One(Values::Coded(coded)) = &mut self.columns[field] else {
            wrong(self.schema, field)
        };
        coded
    }
}

/// An entry that is being added to a list: its parts in their order.
#[derive(Debug)]
pub(crate) struct Entry<'a>(std::slice::IterMut<'a, Values>);

const ANOTHER: &str = "the part is of another kind";

impl Entry<'_> {
    /// A part with a dictionary.
    pub(crate) fn coded(&mut self, value: &[u8]) -> &mut Self {
        let Some(Values::Coded(coded)) = self.0.next() else { panic!("{ANOTHER}") };
        let code = coded.dictionary.intern(value);
        coded.codes.push(code);
        self
    }

    /// A part that is a number.
    pub(crate) fn long(&mut self, value: i64) -> &mut Self {
        let Some(Values::Longs(longs)) = self.0.next() else { panic!("{ANOTHER}") };
        longs.push(value);
        self
    }

    /// A part that is sixteen bytes.
    pub(crate) fn wide(&mut self, value: u128) -> &mut Self {
        let Some(Values::Wide(wide)) = self.0.next() else { panic!("{ANOTHER}") };
        wide.push(value);
        self
    }

    /// A part that is eight bytes.
    pub(crate) fn narrow(&mut self, value: u64) -> &mut Self {
        let Some(Values::Narrow(narrow)) = self.0.next() else { panic!("{ANOTHER}") };
        narrow.push(value);
        self
    }
}

impl Column {
    fn new(field: &Field) -> Self {
        match field.form {
            Form::One(kind, _) => Self::One(Values::new(kind)),
            Form::Map(_) | Form::Values(_) | Form::List(_) => {
                let parts = field.form.parts().into_iter().map(|(_, kind)| Values::new(kind));
                Self::Many(Lists { ends: Vec::new(), parts: parts.collect() })
            }
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::One(values) => values.bytes(),
            Self::Many(lists) => {
                lists.ends.capacity() * 4 + lists.parts.iter().map(Values::bytes).sum::<usize>()
            }
        }
    }
}

impl Values {
    pub(crate) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Wide => Self::Wide(Vec::new()),
            Kind::Narrow => Self::Narrow(Vec::new()),
            Kind::Long => Self::Longs(Vec::new()),
            Kind::Text => Self::Coded(Coded::new(Plain::Text)),
            Kind::Int | Kind::Double => Self::Coded(Coded::new(Plain::Eight)),
            Kind::Bool => Self::Coded(Coded::new(Plain::One)),
        }
    }

    /// The same values; dictionaries have no lookup table.
    fn copy(&self) -> Self {
        let Self::Coded(Coded { dictionary, codes }) = self else { return self.clone() };
        Self::Coded(Coded { dictionary: dictionary.copy(), codes: codes.clone() })
    }

    pub(crate) fn reserve(&mut self, len: usize) {
        match self {
            Self::Wide(wide) => wide.reserve(len),
            Self::Narrow(narrow) => narrow.reserve(len),
            Self::Longs(longs) => longs.reserve(len),
            Self::Coded(coded) => coded.codes.reserve(len),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Wide(wide) => wide.len(),
            Self::Narrow(narrow) => narrow.len(),
            Self::Longs(longs) => longs.len(),
            Self::Coded(coded) => coded.codes.len(),
        }
    }

    /// Spreads the values from `at` on over rows: one for each row that is present, null for the others.
    pub(crate) fn spread(&mut self, at: usize, present: &[u32]) {
        match self {
            Self::Wide(wide) => spread(wide, at, present),
            Self::Narrow(narrow) => spread(narrow, at, present),
            Self::Longs(longs) => spread(longs, at, present),
            Self::Coded(coded) => spread(&mut coded.codes, at, present),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Wide(wide) => wide.capacity() * 16,
            Self::Narrow(narrow) => narrow.capacity() * 8,
            Self::Longs(longs) => longs.capacity() * 8,
            Self::Coded(coded) => coded.codes.capacity() * 4 + coded.dictionary.bytes(),
        }
    }
}

/// From the end, so that no value is overwritten before it is moved.
fn spread<T: Copy + Default>(values: &mut Vec<T>, at: usize, present: &[u32]) {
    let mut from = values.len();
    values.resize(at + present.len(), T::default());
    for (nth, is_present) in present.iter().enumerate().rev() {
        values[at + nth] = if *is_present == 1 {
            from -= 1;
            values[from]
        } else {
            T::default()
        };
    }
}

impl Coded {
    pub(crate) fn new(form: Plain) -> Self {
        Self { dictionary: Dictionary::new(form), codes: Vec::new() }
    }

    /// The code of a row; zero is null.
    #[must_use]
    pub fn code(&self, row: usize) -> u32 {
        self.codes.get(row).copied().unwrap_or(0)
    }

    /// The value of a row.
    #[must_use]
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        match self.code(row) {
            0 => None,
            code => Some(self.dictionary.get(code)),
        }
    }

    /// The text of a row; empty when it has none.
    #[must_use]
    pub fn text(&self, row: usize) -> &str {
        self.get(row).map_or("", text)
    }

    /// The number of a row.
    #[must_use]
    pub fn int(&self, row: usize) -> Option<i64> {
        self.get(row).map(int)
    }
}

/// Texts were checked by the decoder.
pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Eight bytes; fewer are zero.
pub(crate) fn int(bytes: &[u8]) -> i64 {
    bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

impl Lists {
    /// Lists from their ends and parts.
    pub(crate) const fn from_parts(ends: Vec<u32>, parts: Vec<Values>) -> Self {
        Self { ends, parts }
    }

    /// The entries of a row.
    #[must_use]
    pub fn entries(&self, row: usize) -> Range<usize> {
        let last = self.ends.last().copied().unwrap_or(0);
        let end = |row: usize| self.ends.get(row).copied().unwrap_or(last) as usize;
        let from = row.checked_sub(1).map_or(0, end);
        from..end(row)
    }

    /// The number of entries of all rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or(0) as usize
    }

    /// Whether no row has any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The parts of the entries.
    #[must_use]
    pub fn parts(&self) -> &[Values] {
        &self.parts
    }

    fn begin(&mut self, row: usize) -> Entry<'_> {
        let entries = short(self.len());
        if self.ends.len() <= row {
            self.ends.resize(row + 1, entries);
        }
        self.ends[row] = entries + 1;
        Entry(self.parts.iter_mut())
    }
}

#[cfg(test)]
mod tests;

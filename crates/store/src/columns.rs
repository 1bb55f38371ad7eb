//! The rows of a table in memory, column by column.
//!
//! Rows have this form everywhere: in memtables, sorted for a run, read from a run, and merged. Most columns are codes
//! of a [`Dictionary`]. So sorting and merging move numbers, and a text is read once for all rows that have it.
//!
//! A column may have fewer values than there are rows: the missing values are null, or zero for numbers. So a column
//! that no sender sets, or that no query reads, takes no memory.

mod dictionary;
mod gather;

pub use dictionary::{Dictionary, Plain};

use crate::schema::{Field, Form, Kind, Schema};
pub(crate) use dictionary::{is_same, short};
pub(crate) use gather::Renumbered;
use std::collections::BTreeSet;
use std::ops::Range;

/// Rows of one table.
#[derive(Clone, Debug)]
pub struct Columns {
    schema: &'static Schema,
    len: usize,
    /// The columns in the order of the schema's fields.
    columns: Vec<Column>,
}

/// The values of one field.
#[derive(Clone, Debug)]
pub enum Column {
    /// At most one value a row.
    One(Values),
    /// Any number of values a row.
    Many(Lists),
}

/// The values of a column: one for each row, or one for each entry of a list.
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
    /// The code of each row or entry. Zero is null, and so is a missing code at the end.
    pub codes: Vec<u32>,
}

/// Lists. A map is a list of keys and values.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    /// The end of the entries of each row. Rows beyond the last end have no entries.
    ends: Vec<u32>,
    /// The parts of the entries.
    parts: Vec<Values>,
}

impl Columns {
    /// Columns without rows.
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

    /// Whether there are no rows.
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

    /// Whether a row equals a row of other columns with the same schema.
    pub(crate) fn is_same_row(&self, row: usize, other: &Self, other_row: usize) -> bool {
        self.columns.iter().zip(&other.columns).all(|columns| match columns {
            (Column::One(one), Column::One(other)) => one.is_same(row, other, other_row),
            (Column::Many(one), Column::Many(other)) => one.is_same(row, other, other_row),
            (Column::One(_), Column::Many(_)) | (Column::Many(_), Column::One(_)) => false,
        })
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

/// Rows are added at the end: all values of a row first, then [`Columns::end_row`].
impl Columns {
    /// The code of a value in the dictionary of a field.
    pub(crate) fn intern(&mut self, field: usize, value: &[u8]) -> u32 {
        self.coded_mut(field).dictionary.intern(value)
    }

    /// Sets the value of the row that is being added, unless it has one.
    pub(crate) fn set_value(&mut self, field: usize, value: &[u8]) {
        let row = self.len;
        let Coded { dictionary, codes } = self.coded_mut(field);
        let code = dictionary.intern(value);
        if codes.len() < row {
            codes.resize(row, 0);
        }
        if codes.len() == row {
            codes.push(code);
        }
    }

    /// Sets the code of the next `count` rows, unless they have a value.
    pub(crate) fn set_many(&mut self, field: usize, code: u32, count: usize) {
        let row = self.len;
        let codes = &mut self.coded_mut(field).codes;
        if codes.len() <= row {
            codes.resize(row, 0);
            codes.resize(row + count, code);
        }
    }

    /// Sets the values of some rows, which are in order. `intern` returns the code of a value.
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

    /// Begins another entry in the list of the row that is being added.
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

/// An entry that is being added to a list. Its parts are added in their order.
#[derive(Debug)]
pub(crate) struct Entry<'a>(std::slice::IterMut<'a, Values>);

const ANOTHER: &str = "the part is of another kind";

impl Entry<'_> {
    /// Adds a part that has a dictionary.
    pub(crate) fn coded(&mut self, value: &[u8]) -> &mut Self {
        let Some(Values::Coded(coded)) = self.0.next() else { panic!("{ANOTHER}") };
        let code = coded.dictionary.intern(value);
        coded.codes.push(code);
        self
    }
}

/// Defines functions for values of a fixed size: they return the column of a field, and add a value to the current row
/// or a part to the current entry.
macro_rules! fixed_size {
    ($($variant:ident $type:ty, $of_field:ident $push:ident $part:ident, $what:literal;)*) => {
        impl Columns {$(
            #[doc = concat!("The ", $what, " of each row.")]
            ///
            /// # Panics
            /// When the field is of another kind.
            #[must_use]
            pub fn $of_field(&self, field: usize) -> &[$type] {
                let Column::One(Values::$variant(values)) = &self.columns[field] else {
                    wrong(self.schema, field)
                };
                values
            }

            #[doc = concat!("Adds the ", $what, " of the row that is being added.")]
            pub(crate) fn $push(&mut self, field: usize, value: $type) {
                let Column::One(Values::$variant(values)) = &mut self.columns[field] else {
                    wrong(self.schema, field)
                };
                values.push(value);
            }
        )*}

        impl Entry<'_> {$(
            #[doc = concat!("Adds a part: the ", $what, ".")]
            pub(crate) fn $part(&mut self, value: $type) -> &mut Self {
                let Some(Values::$variant(values)) = self.0.next() else { panic!("{ANOTHER}") };
                values.push(value);
                self
            }
        )*}
    };
}

fixed_size! {
    Wide u128, wide push_wide wide, "ID of sixteen bytes";
    Narrow u64, narrow push_narrow narrow, "ID of eight bytes";
    Longs i64, longs push_long long, "number";
}

/// Runs the same code on the vector of any variant: the values, or their codes.
macro_rules! on_vector {
    ($values:expr, $vector:ident => $code:expr) => {
        match $values {
            Values::Wide($vector) => $code,
            Values::Narrow($vector) => $code,
            Values::Longs($vector) => $code,
            Values::Coded(Coded { codes: $vector, .. }) => $code,
        }
    };
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

    /// A copy whose dictionary has no lookup table.
    fn copy(&self) -> Self {
        let Self::Coded(Coded { dictionary, codes }) = self else { return self.clone() };
        Self::Coded(Coded { dictionary: dictionary.copy(), codes: codes.clone() })
    }

    pub(crate) fn reserve(&mut self, len: usize) {
        on_vector!(self, values => values.reserve(len));
    }

    pub(crate) fn len(&self) -> usize {
        on_vector!(self, values => values.len())
    }

    /// Spreads the values from `at` on over rows: a row with a one in `present` gets the next value, any other null.
    pub(crate) fn spread(&mut self, at: usize, present: &[u32]) {
        on_vector!(self, values => spread(values, at, present));
    }

    fn is_same(&self, at: usize, other: &Self, other_at: usize) -> bool {
        match (self, other) {
            (Self::Wide(one), Self::Wide(other)) => value(one, at) == value(other, other_at),
            (Self::Narrow(one), Self::Narrow(other)) => value(one, at) == value(other, other_at),
            (Self::Longs(one), Self::Longs(other)) => value(one, at) == value(other, other_at),
            (Self::Coded(one), Self::Coded(other)) => one.get(at) == other.get(other_at),
            (Self::Wide(_) | Self::Narrow(_) | Self::Longs(_) | Self::Coded(_), _) => false,
        }
    }

    fn bytes(&self) -> usize {
        let dictionary = if let Self::Coded(coded) = self { coded.dictionary.bytes() } else { 0 };
        dictionary + on_vector!(self, values => allocated(values))
    }
}

const fn allocated<T>(values: &Vec<T>) -> usize {
    values.capacity() * size_of::<T>()
}

/// The value of a row; zero beyond the end of the column.
fn value<T: Copy + Default>(values: &[T], at: usize) -> T {
    values.get(at).copied().unwrap_or_default()
}

/// Moves the last value first, so that no value is overwritten before it is moved.
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

    /// The text of a row; empty if the row has none.
    #[must_use]
    pub fn text(&self, row: usize) -> &str {
        self.get(row).map_or("", text)
    }

    /// The integer in a row, if there is one.
    #[must_use]
    pub fn int(&self, row: usize) -> Option<i64> {
        self.get(row).map(int)
    }
}

/// Converts a value to a text. The decoder has checked that texts are UTF-8.
pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Converts a value of eight bytes to an integer; a shorter value is zero.
pub(crate) fn int(bytes: &[u8]) -> i64 {
    bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}

impl Lists {
    /// Lists from their ends and parts.
    pub(crate) const fn from_parts(ends: Vec<u32>, parts: Vec<Values>) -> Self {
        Self { ends, parts }
    }

    /// The range of the entries of a row.
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

    /// Whether no row has an entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The parts of the entries.
    #[must_use]
    pub fn parts(&self) -> &[Values] {
        &self.parts
    }

    fn is_same(&self, row: usize, other: &Self, other_row: usize) -> bool {
        let (entries, others) = (self.entries(row), other.entries(other_row));
        entries.len() == others.len()
            && entries.zip(others).all(|(at, other_at)| {
                let mut parts = self.parts.iter().zip(&other.parts);
                parts.all(|(part, other)| part.is_same(at, other, other_at))
            })
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

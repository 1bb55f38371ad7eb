//! The tables: their fields in memory, in Parquet and in Delta.
//!
//! | [`Kind`] | in memory | in Parquet | in Delta |
//! |---|---|---|---|
//! | `Wide`, `Narrow` | `u128`, `u64` | `BYTE_ARRAY` of 16 or 8 bytes, big-endian | `binary` |
//! | `Long` | `i64` | `INT64`, by differences | `long` |
//! | `Text` | in a dictionary | `BYTE_ARRAY`, UTF-8 | `string` |
//! | `Int` | in a dictionary | `INT64` | `long` |
//! | `Double` | in a dictionary, as bits | `DOUBLE` | `double` |
//! | `Bool` | in a dictionary, as 0 or 1 | `BOOLEAN` | `boolean` |

mod delta;
pub mod envelope;
pub mod logs;
mod parquet;
pub mod points;
pub mod spans;
pub mod traces;

use curtail_otlp::Signal;
use std::collections::HashMap;

/// Attributes with a column of their own, and the kind of its values.
pub type OwnColumns = HashMap<&'static str, (usize, Kind)>;

/// Declares fields, and their numbers after those of others.
macro_rules! fields {
    (after $others:expr; $($number:ident $name:literal $form:expr;)*) => {
        #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "each is a constant below")]
        enum Number { $($number),* }
        $(
            #[doc = concat!("The column `", $name, "`.")]
            pub const $number: usize = $others + Number::$number as usize;
        )*
        const FIELDS: &[Field] = &[$(Field { name: $name, form: $form }),*];
    };
}
use fields;

const fn required(kind: Kind) -> Form {
    Form::One(kind, Presence::Required)
}

const fn optional(kind: Kind) -> Form {
    Form::One(kind, Presence::Optional)
}

/// The descriptor of a table. Flush, compaction, retention, upkeep and queries by ID know no more of a table.
#[derive(Debug)]
pub struct Table {
    /// The name, which is that of its folder.
    pub name: &'static str,
    schema: Schema,
    /// The fields by which runs are sorted: one of sixteen bytes, then a number.
    pub order: (usize, usize),
    /// A field of eight bytes that is unique among rows with the same order. Rows that are equal in all fields are then
    /// [copies](crate::copies). [`None`] if equal rows are legitimate.
    pub identity: Option<usize>,
    /// The zone columns: each page, each row group and each run has their minimum and maximum, so that a query skips it.
    /// They are the order, and other IDs or required numbers.
    pub zones: &'static [usize],
    /// The indexes in the metadata of a run.
    pub indexes: &'static [MaxIndex],
    /// Where the rows come from, and how long they live.
    pub origin: Origin,
}

/// Where the rows of a table come from. It decides how they become durable and when they expire.
///
/// A table to which the server itself appends would be a third origin: [logged](Table::is_logged), but of no signal.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// Batches of a signal, through the log and memtables. Whole days [expire](crate::Retention), by arrival.
    Ingested(Signal),
    /// Compaction makes them from the runs of another table, and can make them again. The rows of a run are a file with the
    /// same path, which lives as long as the run.
    Derived(&'static Table),
}

/// An [index](crate::run) of the maximum of a required number for each value of a text, in each page.
#[derive(Clone, Copy, Debug)]
pub struct MaxIndex {
    /// The key in the metadata of a run.
    pub key: &'static str,
    /// The field of the number.
    pub number: usize,
    /// The field of the text.
    pub text: usize,
}

impl Table {
    /// Whether rows are durable in the log before they are in runs. If not, they can be made again.
    #[must_use]
    pub const fn is_logged(&self) -> bool {
        matches!(self.origin, Origin::Ingested(_))
    }

    /// The fields.
    #[must_use]
    pub const fn schema(&self) -> &Schema {
        &self.schema
    }
}

/// All tables.
#[must_use]
pub fn tables() -> [&'static Table; 4] {
    [&spans::SPANS, &logs::LOGS, &points::POINTS, &traces::TRACES]
}

/// The fields of a table.
#[derive(Debug)]
pub struct Schema {
    fields: Vec<Field>,
    shared: usize,
    parquet: ::parquet::schema::types::SchemaDescPtr,
    /// The attributes with a column of their own, by their keys.
    pub own: OwnColumns,
    /// The attributes with a column of their own, by their columns.
    pub keys: Vec<(usize, &'static str, Kind)>,
}

/// A field, which is a column, or several for a map or a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name.
    pub name: &'static str,
    /// The form of its values.
    pub form: Form,
}

/// The form of a field in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One value.
    One(Kind, Presence),
    /// A map from texts to values.
    Map(Kind),
    /// A list of values.
    Values(Kind),
    /// A list of structs, with the names and kinds of their parts.
    List(&'static [(&'static str, Kind)]),
}

/// Whether every row has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Every row has one.
    Required,
    /// A row may have none.
    Optional,
}

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sixteen bytes: the ID of a trace.
    Wide,
    /// Eight bytes: the ID of a span.
    Narrow,
    /// A number, mostly another one in each row.
    Long,
    /// A text.
    Text,
    /// A number.
    Int,
    /// A number with a fraction.
    Double,
    /// Yes or no.
    Bool,
}

impl Schema {
    /// The fields that all tables of ingested rows have, then `fields`, then attributes with a column of their own:
    /// their keys, the names and the kinds of their columns.
    fn ingested(fields: &[Field], attributes: &[(&'static str, &'static str, Kind)]) -> Self {
        let mut all = envelope::fields();
        all.extend(fields);
        let first = all.len();
        all.extend(attributes.iter().map(|(_, name, kind)| Field { name, form: optional(*kind) }));
        let keys = (first..).zip(attributes).map(|(field, (key, _, kind))| (field, *key, *kind));
        let keys: Vec<_> = keys.collect();
        let own = keys.iter().map(|(field, key, kind)| (*key, (*field, *kind))).collect();
        Self { shared: envelope::LEN, own, keys, ..Self::of(all) }
    }

    /// Only these fields.
    fn of(fields: Vec<Field>) -> Self {
        let (parquet, own) = (parquet::schema(&fields), OwnColumns::new());
        Self { fields, shared: 0, parquet, own, keys: Vec::new() }
    }

    /// The fields, in the order of the columns.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The number of the first fields, which all tables of ingested rows have.
    #[must_use]
    pub const fn shared(&self) -> usize {
        self.shared
    }

    /// The number of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }

    /// The schema in Parquet: a column for each part of each field.
    #[must_use]
    pub const fn parquet(&self) -> &::parquet::schema::types::SchemaDescPtr {
        &self.parquet
    }

    /// As Delta has it: a struct in JSON, with the columns that divide the table before all others. Those that
    /// every table has come last: they say least.
    #[must_use]
    pub fn delta(&self, partitions: &[(&str, &str)]) -> String {
        let (envelope, own) = self.fields.split_at(self.shared);
        delta::schema(own.iter().chain(envelope), partitions)
    }
}

impl Form {
    /// Names and kinds of what an entry consists of; of one value, itself.
    pub(crate) fn parts(self) -> Vec<(&'static str, Kind)> {
        match self {
            Self::One(kind, _) => vec![("value", kind)],
            Self::Map(kind) => vec![("key", Kind::Text), ("value", kind)],
            Self::Values(kind) => vec![("element", kind)],
            Self::List(parts) => parts.to_vec(),
        }
    }
}

/// Gives the name of a number; of one that has none, its digits.
pub(crate) fn with_name<T>(names: &[&str], number: i32, then: impl FnOnce(&str) -> T) -> T {
    match usize::try_from(number).ok().and_then(|nth| names.get(nth)) {
        Some(name) => then(name),
        None => then(&number.to_string()),
    }
}

/// The number that a name stands for.
pub(crate) fn number(names: &[&str], name: &str) -> i32 {
    let known = (0..).zip(names).find(|(_, known)| **known == name).map(|(number, _)| number);
    known.or_else(|| name.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_a_zone_and_zones_and_indexes_have_a_form_with_a_minimum() {
        let number = required(Kind::Long);
        let ids = [required(Kind::Wide), optional(Kind::Wide)];
        for table in tables() {
            let form = |field: usize| table.schema().fields()[field].form;
            assert!(table.zones.contains(&table.order.0) && table.zones.contains(&table.order.1));
            let is_comparable =
                |field: &usize| form(*field) == number || ids.contains(&form(*field));
            assert!(table.zones.iter().all(is_comparable), "{}", table.name);
            for MaxIndex { number: of, text, .. } in table.indexes {
                assert_eq!((form(*of), form(*text)), (number, optional(Kind::Text)));
            }
        }
    }
}

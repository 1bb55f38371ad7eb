//! The fields of the tables, and their types in memory, in Parquet and in Delta.
//!
//! | [`Kind`] | in memory | in Parquet | in Delta |
//! |---|---|---|---|
//! | `Wide`, `Narrow` | `u128`, `u64` | `BYTE_ARRAY` of 16 or 8 bytes, big-endian | `binary` |
//! | `Long` | `i64` | `INT64`, delta-encoded | `long` |
//! | `Text` | in a dictionary | `BYTE_ARRAY`, UTF-8 | `string` |
//! | `Int` | in a dictionary | `INT64` | `long` |
//! | `Double` | in a dictionary, as its 64 bits | `DOUBLE` | `double` |
//! | `Bool` | in a dictionary, as 0 or 1 | `BOOLEAN` | `boolean` |

mod delta;
pub mod envelope;
pub mod logs;
mod parquet;
pub mod points;
pub mod spans;
pub mod traces;

use crate::columns::Columns;
use curtail_otlp::Signal;
use std::collections::HashMap;

/// The attributes with a column of their own, by key: the number of the column, and the kind of its values.
pub type OwnColumns = HashMap<&'static str, (usize, Kind)>;

/// Declares fields, and a constant for the number of each. The numbers begin after those of `$others` other fields.
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

/// The descriptor of a table: all that flush, compaction, retention, upkeep and queries by ID know about a table.
#[derive(Debug)]
pub struct Table {
    /// The name of the table, and of its folder.
    pub name: &'static str,
    schema: Schema,
    /// The fields by which runs are sorted: an ID of sixteen bytes, then a number.
    pub order: (usize, usize),
    /// A field of eight bytes that distinguishes rows with equal fields of [`order`](Self::order). If a table has one,
    /// rows that are equal in all fields are [copies](crate::copies). [`None`] if equal rows are legitimate.
    pub identity: Option<usize>,
    /// The zone columns: queries skip pages, row groups and runs by the minima and maxima of these columns. They include
    /// both fields of [`order`](Self::order). The others are IDs of sixteen bytes or required numbers too.
    pub zones: &'static [usize],
    /// The indexes in the metadata of each run.
    pub indexes: &'static [MaxIndex],
    /// The origin of the rows.
    pub origin: Origin,
}

/// The origin of the rows of a table. It decides how the rows become durable and when they expire.
///
/// A table to which the server itself appends would need a third origin: [logged](Table::is_logged), without a signal.
#[derive(Clone, Copy, Debug)]
pub enum Origin {
    /// Batches of a signal, through the log and memtables. Rows [expire](crate::Retention) by their day of arrival.
    Ingested(Signal),
    /// The runs of another table, from which compaction derives the rows, and can derive them again. The rows of a run
    /// are a file with the same path, which lives as long as the run.
    Derived(&'static Table),
}

/// An [index](crate::run) that has, for each page, the maximum of a required number for each value of a text field.
#[derive(Clone, Copy, Debug)]
pub struct MaxIndex {
    /// The key of the index in the metadata of a run.
    pub key: &'static str,
    /// The field of the number.
    pub number: usize,
    /// The field of the text.
    pub text: usize,
}

impl Table {
    /// Whether the log makes the rows durable before they are in runs. Rows of other tables can be derived again.
    #[must_use]
    pub const fn is_logged(&self) -> bool {
        matches!(self.origin, Origin::Ingested(_))
    }

    /// The values by which a row is sorted. If no row has an ID, the column of IDs is empty.
    pub(crate) fn sort_key(&self, rows: &Columns, row: usize) -> (u128, i64) {
        let (id, number) = self.order;
        (rows.wide(id).get(row).copied().unwrap_or(0), rows.longs(number)[row])
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
    /// The attributes with a column of their own, by key.
    pub own: OwnColumns,
    /// The same attributes in the order of their columns: the number of the column, the key, the kind of the values.
    pub keys: Vec<(usize, &'static str, Kind)>,
}

/// A field: one column, or several columns for a map or a list.
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
    /// One value, which may be optional.
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
    /// Sixteen bytes: the ID of a trace or of a series.
    Wide,
    /// Eight bytes: the ID of a span.
    Narrow,
    /// An integer that differs in most rows.
    Long,
    /// A text.
    Text,
    /// An integer that many rows share.
    Int,
    /// A floating-point number.
    Double,
    /// True or false.
    Bool,
}

impl Schema {
    /// The fields that all tables of ingested rows have, then `fields`, then a column for each of `attributes`: its
    /// key, and the name and the kind of the column.
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

    /// A schema with only these fields.
    fn of(fields: Vec<Field>) -> Self {
        let (parquet, own) = (parquet::schema(&fields), OwnColumns::new());
        Self { fields, shared: 0, parquet, own, keys: Vec::new() }
    }

    /// The fields, in the order of the columns.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The number of leading fields that all tables of ingested rows share; zero in other tables.
    #[must_use]
    pub const fn shared(&self) -> usize {
        self.shared
    }

    /// The number of the field with a name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }

    /// The schema in Parquet: a column for each part of each field.
    #[must_use]
    pub const fn parquet(&self) -> &::parquet::schema::types::SchemaDescPtr {
        &self.parquet
    }

    /// The schema in Delta: a struct in JSON. The partition columns come first. The fields that all tables of ingested
    /// rows share come last, because they say least.
    #[must_use]
    pub fn delta(&self, partitions: &[(&str, &str)]) -> String {
        let (envelope, own) = self.fields.split_at(self.shared);
        delta::schema(own.iter().chain(envelope), partitions)
    }
}

impl Form {
    /// The names and kinds of the parts of an entry. A single value is its only part.
    pub(crate) fn parts(self) -> Vec<(&'static str, Kind)> {
        match self {
            Self::One(kind, _) => vec![("value", kind)],
            Self::Map(kind) => vec![("key", Kind::Text), ("value", kind)],
            Self::Values(kind) => vec![("element", kind)],
            Self::List(parts) => parts.to_vec(),
        }
    }
}

/// Calls `then` with the name of a number, or with its digits if it has no name.
pub(crate) fn with_name<T>(names: &[&str], number: i32, then: impl FnOnce(&str) -> T) -> T {
    match usize::try_from(number).ok().and_then(|nth| names.get(nth)) {
        Some(name) => then(name),
        None => then(&number.to_string()),
    }
}

/// The number that a name, or its digits, stand for.
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

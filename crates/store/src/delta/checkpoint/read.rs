//! Reads a checkpoint: converts Parquet columns to actions.

use super::super::action::Action;
use super::CheckpointError;
use bytes::Bytes;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::record::{Field, Row};
use parquet::schema::types::{Type, TypePtr};
use serde_json::Value;
use std::panic::catch_unwind;
use std::sync::Arc;

/// Columns that only checkpoints of version 2 have.
const LATER: [&str; 2] = ["sidecar", "checkpointMetadata"];

/// The actions of one file of a checkpoint. Parquet's reader may panic at a damaged file; that is an error here, because
/// the caller may not need the file.
pub(crate) fn decode(bytes: Bytes) -> Result<Vec<Action>, CheckpointError> {
    catch_unwind(|| rows(bytes)).unwrap_or(Err(CheckpointError::Damaged))
}

fn rows(bytes: Bytes) -> Result<Vec<Action>, CheckpointError> {
    let reader = SerializedFileReader::new(bytes.clone())?;
    let entries = reader.metadata().file_metadata().key_value_metadata().into_iter().flatten();
    let sum =
        entries.filter(|entry| entry.key == super::CHECKSUM).find_map(|entry| entry.value.as_ref());
    if sum.is_some_and(|sum| *sum != super::checksum(pages(&bytes))) {
        return Err(CheckpointError::Damaged);
    }
    let there = reader.metadata().file_metadata().schema();
    let columns = known(there, &super::schema())?;
    let mut actions = Vec::new();
    for row in reader.get_row_iter(Some(columns))? {
        let row = json(row?);
        if LATER.iter().any(|name| row.get(name).is_some()) {
            return Err(CheckpointError::Later);
        }
        actions.extend(Action::of(serde_json::from_value(row)?));
    }
    Ok(actions)
}

/// The bytes before the footer, whose length is in the last eight bytes.
pub(super) fn pages(file: &[u8]) -> &[u8] {
    let (rest, _) = file.split_last_chunk::<4>().unwrap_or((file, b"PAR1"));
    let (rest, length) = rest.split_last_chunk().unwrap_or((rest, &[0; 4]));
    &rest[..rest.len().saturating_sub(u32::from_le_bytes(*length) as usize)]
}

/// The schema of a file, without the columns that our schema lacks.
fn known(there: &Type, ours: &Type) -> Result<Type, CheckpointError> {
    let mut groups = Vec::new();
    for group in there.get_fields().iter().filter(|group| group.is_group()) {
        if LATER.contains(&group.name()) {
            groups.push(group.clone());
        } else if let Some(ours) = field(ours, group.name()) {
            let is_known = |there: &&TypePtr| field(ours, there.name()).is_some();
            let fields: Vec<_> = group.get_fields().iter().filter(is_known).cloned().collect();
            if !fields.is_empty() {
                let part = Type::group_type_builder(group.name())
                    .with_repetition(group.get_basic_info().repetition())
                    .with_fields(fields);
                groups.push(Arc::new(part.build()?));
            }
        }
    }
    Ok(Type::group_type_builder(there.name()).with_fields(groups).build()?)
}

fn field<'a>(of: &'a Type, name: &str) -> Option<&'a Type> {
    of.get_fields().iter().map(AsRef::as_ref).find(|field| field.name() == name)
}

/// A record as JSON without nulls.
fn json(row: Row) -> Value {
    let fields = row.into_columns().into_iter();
    let there = fields.filter(|(_, field)| !matches!(field, Field::Null));
    there.map(|(name, field)| (name, value(field))).collect()
}

#[expect(clippy::wildcard_enum_match_arm, reason = "no column that is known has another type")]
fn value(field: Field) -> Value {
    match field {
        Field::Bool(is) => is.into(),
        Field::Int(number) => number.into(),
        Field::Long(number) => number.into(),
        Field::Str(text) => text.into(),
        Field::Group(row) => json(row),
        Field::ListInternal(list) => list.elements().iter().cloned().map(value).collect(),
        Field::MapInternal(map) => {
            let entry = |(key, of): &(Field, Field)| match key {
                Field::Str(key) => Some((key.clone(), value(of.clone()))),
                _ => None,
            };
            map.entries().iter().filter_map(entry).collect()
        }
        _ => Value::Null,
    }
}

//! Writes a checkpoint: converts actions to Parquet columns.

use super::super::action::Action;
use bytes::Bytes;
use parquet::basic::{Compression, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnDescPtr, SchemaDescriptor, Type};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Maximum number of rows of a row group, which is in memory.
const ROWS_MAX: usize = 65_536;

/// The value of a missing field.
static NULL: Value = Value::Null;

/// The file of a checkpoint.
pub(crate) fn encode(rows: &[Action]) -> Result<Bytes, ParquetError> {
    encode_as(super::schema(), rows)
}

/// A Parquet file of rows with a schema.
pub(super) fn encode_as<T: Serialize>(schema: Type, rows: &[T]) -> Result<Bytes, ParquetError> {
    let schema = Arc::new(schema);
    let leaves = SchemaDescriptor::new(schema.clone());
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_created_by(super::super::table::ENGINE.to_owned())
        .build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema.clone(), properties.into())?;
    for rows in rows.chunks(ROWS_MAX) {
        let mut columns = Columns(leaves.columns().iter().cloned().map(Column::new).collect());
        for row in rows {
            let row = serde_json::to_value(row).expect("it is plain data");
            columns.shred_fields(&schema, &row, Levels::default(), &mut 0);
        }
        let mut group = writer.next_row_group()?;
        for column in columns.0 {
            column.write(&mut group)?;
        }
        group.close()?;
    }
    writer.flush()?;
    let checksum = super::checksum(writer.inner());
    writer.append_key_value_metadata(KeyValue::new(super::CHECKSUM.to_owned(), checksum));
    Ok(writer.into_inner()?.into())
}

/// The definition and the repetition level of a value.
#[derive(Clone, Copy, Default)]
struct Levels {
    definition: i16,
    repetition: i16,
}

/// The leaves of the schema, in its order.
struct Columns(Vec<Column>);

struct Column {
    leaf: ColumnDescPtr,
    values: Vec<Value>,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
}

impl Columns {
    /// Puts a value into the leaves below a node. `leaf` is the first of these leaves, and afterwards the next leaf.
    fn shred(&mut self, node: &Type, value: &Value, levels: Levels, leaf: &mut usize) {
        let is_optional = node.get_basic_info().repetition() == Repetition::OPTIONAL;
        let is_defined = is_optional && !value.is_null();
        let levels = Levels { definition: levels.definition + i16::from(is_defined), ..levels };
        if node.is_primitive() {
            self.0[*leaf].push(value, levels);
            *leaf += 1;
        } else {
            self.shred_fields(node, value, levels, leaf);
        }
    }

    fn shred_fields(&mut self, node: &Type, value: &Value, levels: Levels, leaf: &mut usize) {
        for field in node.get_fields() {
            if field.get_basic_info().repetition() == Repetition::REPEATED {
                self.shred_items(field, value, levels, leaf);
            } else {
                let value = value.get(field.name()).unwrap_or(&NULL);
                self.shred(field, value, levels, leaf);
            }
        }
    }

    /// Puts the items of a map or a list. An empty map or list has one missing item.
    fn shred_items(&mut self, node: &Type, value: &Value, levels: Levels, leaf: &mut usize) {
        let items: Vec<Value> = match value {
            Value::Object(map) => {
                map.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect()
            }
            Value::Array(list) => {
                list.iter().map(|element| json!({ "element": element })).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        };
        if items.is_empty() {
            return self.shred_fields(node, &NULL, levels, leaf);
        }
        let first = *leaf;
        for (nth, item) in items.iter().enumerate() {
            *leaf = first;
            let (definition, repetition) = (levels.definition + 1, i16::from(nth > 0));
            self.shred_fields(node, item, Levels { definition, repetition }, leaf);
        }
    }
}

impl Column {
    const fn new(leaf: ColumnDescPtr) -> Self {
        Self { leaf, values: Vec::new(), definitions: Vec::new(), repetitions: Vec::new() }
    }

    fn push(&mut self, value: &Value, levels: Levels) {
        self.definitions.push(levels.definition);
        self.repetitions.push(levels.repetition);
        if levels.definition == self.leaf.max_def_level() {
            self.values.push(value.clone());
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "what else the schema has is text")]
    fn write(self, group: &mut SerializedRowGroupWriter<'_, Vec<u8>>) -> Result<(), ParquetError> {
        let mut writer = group.next_column()?.expect("there are as many as leaves");
        let (path, physical) = (self.leaf.path(), self.leaf.physical_type());
        let wrong = |value: &Value| {
            ParquetError::General(format!("{path} is {value}, expected {physical}"))
        };
        macro_rules! write {
            ($type:ty, $read:expr) => {{
                let values =
                    self.values.iter().map(|value| $read(value).ok_or_else(|| wrong(value)));
                let values = values.collect::<Result<Vec<_>, _>>()?;
                let (definitions, repetitions) = (&*self.definitions, &*self.repetitions);
                let writer = writer.typed::<$type>();
                writer.write_batch(&values, Some(definitions), Some(repetitions))?
            }};
        }
        match physical {
            Physical::BOOLEAN => write!(BoolType, Value::as_bool),
            Physical::INT32 => write!(Int32Type, |value: &Value| value.as_i64()?.try_into().ok()),
            Physical::INT64 => write!(Int64Type, Value::as_i64),
            _ => write!(ByteArrayType, |value: &Value| value.as_str().map(ByteArray::from)),
        };
        writer.close()
    }
}

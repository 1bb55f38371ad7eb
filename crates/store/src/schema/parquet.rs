//! The schema of a table in Parquet.

use super::{Field, Form, Kind, Presence};
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type, TypePtr};
use std::sync::Arc;

pub(super) fn schema(fields: &[Field]) -> SchemaDescPtr {
    let fields = fields.iter().map(field).collect();
    Arc::new(SchemaDescriptor::new(group("row", Repetition::REQUIRED, None, fields)))
}

fn field(field: &Field) -> TypePtr {
    let (required, repeated) = (Repetition::REQUIRED, Repetition::REPEATED);
    match field.form {
        Form::One(kind, Presence::Required) => value(field.name, kind, required),
        Form::One(kind, Presence::Optional) => value(field.name, kind, Repetition::OPTIONAL),
        Form::Map(_) => {
            let entry = group("key_value", repeated, None, parts(field));
            group(field.name, required, Some(LogicalType::Map), vec![entry])
        }
        Form::Values(_) => {
            let entry = group("list", repeated, None, parts(field));
            group(field.name, required, Some(LogicalType::List), vec![entry])
        }
        Form::List(_) => {
            let element = group("element", required, None, parts(field));
            let entry = group("list", repeated, None, vec![element]);
            group(field.name, required, Some(LogicalType::List), vec![entry])
        }
    }
}

fn parts(field: &Field) -> Vec<TypePtr> {
    let part = |(name, kind)| value(name, kind, Repetition::REQUIRED);
    field.form.parts().into_iter().map(part).collect()
}

fn value(name: &str, kind: Kind, repetition: Repetition) -> TypePtr {
    let physical = match kind {
        Kind::Wide | Kind::Narrow | Kind::Text => Physical::BYTE_ARRAY,
        Kind::Long | Kind::Int => Physical::INT64,
        Kind::Double => Physical::DOUBLE,
        Kind::Bool => Physical::BOOLEAN,
    };
    let builder = Type::primitive_type_builder(name, physical).with_repetition(repetition);
    let builder = if kind == Kind::Text {
        builder
            .with_converted_type(ConvertedType::UTF8)
            .with_logical_type(Some(LogicalType::String))
    } else {
        builder
    };
    Arc::new(builder.build().expect("its types go together"))
}

fn group(
    name: &str,
    repetition: Repetition,
    logical: Option<LogicalType>,
    fields: Vec<TypePtr>,
) -> TypePtr {
    let converted = match logical {
        Some(LogicalType::Map) => ConvertedType::MAP,
        Some(LogicalType::List) => ConvertedType::LIST,
        _ => ConvertedType::NONE,
    };
    let builder = Type::group_type_builder(name)
        .with_repetition(repetition)
        .with_converted_type(converted)
        .with_logical_type(logical)
        .with_fields(fields);
    Arc::new(builder.build().expect("its types go together"))
}

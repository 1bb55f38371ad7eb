//! The schema of a table in Delta.

use super::{Field, Form, Kind};
use serde_json::{Value, json};

pub(super) fn schema<'a>(
    fields: impl Iterator<Item = &'a Field>,
    partitions: &[(&str, &str)],
) -> String {
    let partitions = partitions.iter().map(|(name, of)| column(name, json!(of)));
    let fields = fields.map(|field| column(field.name, form(field.form)));
    let fields: Vec<_> = partitions.chain(fields).collect();
    json!({"type": "struct", "fields": fields}).to_string()
}

/// Every column is nullable, because files that were written before it was added do not have it.
fn column(name: &str, of: Value) -> Value {
    json!({"name": name, "type": of, "nullable": true, "metadata": {}})
}

fn form(form: Form) -> Value {
    match form {
        Form::One(kind, _) => json!(value(kind)),
        Form::Map(kind) => json!({
            "type": "map", "keyType": "string", "valueType": value(kind), "valueContainsNull": false
        }),
        Form::Values(kind) => {
            json!({"type": "array", "elementType": value(kind), "containsNull": false})
        }
        Form::List(parts) => {
            let parts: Vec<_> =
                parts.iter().map(|(name, kind)| column(name, json!(value(*kind)))).collect();
            let element = json!({"type": "struct", "fields": parts});
            json!({"type": "array", "elementType": element, "containsNull": false})
        }
    }
}

const fn value(kind: Kind) -> &'static str {
    match kind {
        Kind::Wide | Kind::Narrow => "binary",
        Kind::Long | Kind::Int => "long",
        Kind::Text => "string",
        Kind::Double => "double",
        Kind::Bool => "boolean",
    }
}

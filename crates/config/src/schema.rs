//! The JSON Schema (draft 2020-12) of a configuration, for editors that complete and check while typing.
//!
//! The schema accepts everything that the reader accepts, and more. It does not check the limits of quantities with a
//! unit, whether a key belongs to the selected case (such as `policy: prequal`), or whether keys contradict each other.

use crate::key::{Key, Presence};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// The schema as JSON text.
#[must_use]
pub fn json_schema(keys: &[Key]) -> String {
    let mut root = Shape::default();
    for key in keys {
        root.add(key);
    }
    let mut schema = root.object();
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    format!("{schema:#}\n")
}

#[derive(Debug, Default)]
struct Shape {
    /// The keys here; more than one if several cases have a key of this name.
    keys: Vec<Key>,
    /// The nodes below, by key, `<name>` or `[]`.
    inner: BTreeMap<String, Self>,
}

impl Shape {
    fn add(&mut self, key: &Key) {
        let mut shape = self;
        for part in key.path.split('.') {
            let (name, item) = part.strip_suffix("[]").map_or((part, false), |name| (name, true));
            shape = shape.inner.entry(name.to_owned()).or_default();
            if item {
                shape = shape.inner.entry("[]".to_owned()).or_default();
            }
        }
        shape.keys.push(key.clone());
    }

    fn schema(&self) -> Json {
        let mut schema = if let Some(items) = self.inner.get("[]") {
            json!({ "type": "array", "items": items.schema() })
        } else if let Some(named) = self.inner.get("<name>") {
            json!({ "type": "object", "additionalProperties": named.schema() })
        } else if self.inner.is_empty() {
            self.leaf()
        } else {
            self.section()
        };
        if let Some(key) = self.keys.first() {
            schema["description"] = Json::from(key.doc);
        }
        schema
    }

    fn leaf(&self) -> Json {
        let mut schemas: Vec<Json> = self.keys.iter().map(|key| key.schema.clone()).collect();
        schemas.dedup();
        match schemas.as_slice() {
            [one] => one.clone(),
            several => json!({ "anyOf": several }),
        }
    }

    /// The schema of a section, or of the one value that may replace it.
    fn section(&self) -> Json {
        let alone = self.inner.values().find(|shape| shape.keys.iter().any(|key| key.alone));
        match alone {
            Some(shape) => json!({ "anyOf": [self.object(), shape.schema()] }),
            None => self.object(),
        }
    }

    fn object(&self) -> Json {
        let properties: serde_json::Map<String, Json> =
            self.inner.iter().map(|(name, shape)| (name.clone(), shape.schema())).collect();
        let mut schema = json!({
            "type": "object", "properties": properties, "additionalProperties": false,
        });
        let is_required = |shape: &Self| {
            shape.keys.iter().any(|key| key.presence == Presence::Required && key.case.is_none())
        };
        let required: Vec<&String> = self
            .inner
            .iter()
            .filter(|(_, shape)| is_required(shape))
            .map(|(name, _)| name)
            .collect();
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        schema
    }
}

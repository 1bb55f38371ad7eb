//! The list of keys that a reader asks for: the input of the reference page and the JSON Schema.

use serde_json::Value as Json;

/// One key of a configuration.
#[derive(Clone, Debug)]
pub struct Key {
    /// The full key; `<name>` stands for a name that users choose, and `[]` for every item of a list.
    pub path: String,
    /// The expected value: "a duration such as 10ms or 1.5s".
    pub expected: String,
    /// The meaning of the key's absence.
    pub presence: Presence,
    /// The meaning of the key.
    pub doc: &'static str,
    /// The case of the key, as `key: word`.
    pub case: Option<String>,
    /// Whether the value of this key may replace the whole section.
    pub alone: bool,
    /// The words with their meanings, if the key selects other keys.
    pub words: Vec<(&'static str, &'static str)>,
    pub(crate) schema: Json,
}

/// The meaning of an absent key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The absence is an error.
    Required,
    /// The key has this default, as YAML.
    Default(String),
    /// The absence has its own meaning.
    Optional,
}

impl Key {
    /// A key that has no path yet.
    pub(crate) fn new(expected: String, presence: Presence, schema: Json) -> Self {
        Self {
            path: String::new(),
            expected,
            presence,
            doc: "",
            case: None,
            alone: false,
            words: Vec::new(),
            schema,
        }
    }
}

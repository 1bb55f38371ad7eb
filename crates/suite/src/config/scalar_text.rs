//! A value that only suites have: text, also where it looks like a number.

use curtail_config::{Scalar, Value, Wrong};
use serde_json::{Value as Json, json};

/// A text; numbers and truth values are taken as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScalarText(pub(super) String);

impl Value for ScalarText {
    const NOUN: &'static str = "text or a number";
    const DETAIL: &'static str = "";

    fn read(scalar: &Scalar) -> Result<Self, Wrong> {
        Ok(Self(scalar.word().to_owned()))
    }

    fn write(&self) -> String {
        self.0.write()
    }

    fn placeholder() -> Self {
        Self(String::new())
    }

    fn schema() -> Json {
        json!({ "type": ["string", "number", "boolean"] })
    }
}

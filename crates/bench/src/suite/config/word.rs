//! Values of keys that only suites have.

use super::WARM_UP_MAX;
use crate::session::WarmUp;
use curtail_config::{Scalar, Value, Wrong};
use curtail_units::Duration;
use serde_json::{Value as Json, json};

/// A text; numbers and truth values are taken as they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) String);

impl Value for Word {
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

impl Value for WarmUp {
    const NOUN: &'static str = "none, auto";
    const DETAIL: &'static str = "or a time such as 30s";

    fn read(scalar: &Scalar) -> Result<Self, Wrong> {
        match scalar.text() {
            Some("none") => Ok(Self::None),
            Some("auto") => Ok(Self::Steady { at_most: WARM_UP_MAX }),
            _ => <Duration as Value>::read(scalar).map(Self::Lasts),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::None => "none".to_owned(),
            Self::Steady { .. } => "auto".to_owned(),
            Self::Lasts(lasts) => lasts.write(),
        }
    }

    fn placeholder() -> Self {
        Self::None
    }

    fn schema() -> Json {
        json!({ "type": "string" })
    }
}

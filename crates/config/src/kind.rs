//! The kind of a key: a [`Value`] type or a few words, with optional limits.

use crate::scalar::{Meaning, Scalar};
use crate::value::{ScalarError, Value};
use serde_json::{Value as Json, json};

type Read<'w, T> = dyn Fn(&Scalar) -> Result<T, ScalarError> + 'w;

pub(crate) struct Kind<'w, T> {
    noun: &'static str,
    detail: String,
    read: Box<Read<'w, T>>,
    defect: fn(&str) -> Option<String>,
    write: Box<dyn Fn(&T) -> String + 'w>,
    placeholder: Box<dyn Fn() -> T + 'w>,
    /// Returns whether a value lies within the limits that the reader has set.
    holds: Box<dyn Fn(&T) -> bool + 'w>,
    schema: Json,
}

impl<'w, T: 'w> Kind<'w, T> {
    pub(crate) fn of_value() -> Self
    where
        T: Value,
    {
        Self {
            noun: T::NOUN,
            detail: T::DETAIL.to_owned(),
            read: Box::new(T::read),
            defect: T::defect,
            write: Box::new(T::write),
            placeholder: Box::new(T::placeholder),
            holds: Box::new(|_| true),
            schema: T::schema(),
        }
    }

    pub(crate) fn of_words(words: &'w [(&'static str, T)]) -> Self
    where
        T: Copy + PartialEq,
    {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        Self {
            noun: "one of",
            detail: names.join(", "),
            read: Box::new(move |scalar| {
                let text = scalar.text().ok_or(ScalarError::Kind)?;
                let found = words.iter().find(|(word, _)| *word == text);
                found.map(|(_, value)| *value).ok_or(ScalarError::Word)
            }),
            defect: |_| None,
            write: Box::new(move |value| {
                let found = words.iter().find(|(_, other)| other == value);
                found.map_or("?", |(word, _)| *word).to_owned()
            }),
            placeholder: Box::new(move || words[0].1),
            holds: Box::new(|_| true),
            schema: json!({ "enum": names }),
        }
    }

    /// Restricts the kind to values from `low` to `high`.
    pub(crate) fn within(mut self, low: Option<T>, high: Option<T>) -> Self
    where
        T: PartialOrd + Clone,
    {
        self.detail = match (&low, &high) {
            (Some(low), Some(high)) => {
                format!("from {} to {}", (self.write)(low), (self.write)(high))
            }
            (Some(low), None) => format!("of at least {}", (self.write)(low)),
            (None, Some(high)) => format!("of at most {}", (self.write)(high)),
            (None, None) => self.detail,
        };
        for (name, limit) in [("minimum", &low), ("maximum", &high)] {
            // A JSON Schema has no limits for quantities with a unit.
            let limit = limit.as_ref().map(&self.write).and_then(|text| text.parse().ok());
            if let Some(Json::Number(limit)) = limit {
                self.schema[name] = Json::Number(limit);
            }
        }
        self.holds = Box::new(move |value| {
            low.as_ref().is_none_or(|low| value >= low)
                && high.as_ref().is_none_or(|high| value <= high)
        });
        self
    }

    pub(crate) fn expected(&self) -> String {
        format!("{} {}", self.noun, self.detail).trim_end().to_owned()
    }

    pub(crate) fn read(&self, scalar: &Scalar) -> Result<T, ScalarError> {
        let value = (self.read)(scalar)?;
        if self.holds(&value) { Ok(value) } else { Err(ScalarError::Range) }
    }

    /// The error of a scalar that `read` rejects, with what was expected.
    pub(crate) fn describe(&self, error: ScalarError, scalar: &Scalar) -> String {
        let is_empty = *scalar.meaning() == Meaning::Nothing;
        let defect = Some(scalar.word()).filter(|_| !is_empty).and_then(self.defect);
        format!("{}: expected {}", error.describe(scalar, defect), self.expected())
    }

    pub(crate) fn holds(&self, value: &T) -> bool {
        (self.holds)(value)
    }

    pub(crate) fn write(&self, value: &T) -> String {
        (self.write)(value)
    }

    pub(crate) fn placeholder(&self) -> T {
        (self.placeholder)()
    }

    pub(crate) fn schema(&self) -> Json {
        self.schema.clone()
    }
}

impl<T> std::fmt::Debug for Kind<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kind").field("noun", &self.noun).field("detail", &self.detail).finish()
    }
}

//! A key with one value: its type, its limits and its default.

use crate::key::{Key, Presence};
use crate::kind::Kind;
use crate::section::{Found, Section, Source};
use std::ops::RangeInclusive;

/// A key that is read by `required`, `default` or `optional`.
#[derive(Debug)]
#[must_use = "a key is read by `required`, `default` or `optional`"]
pub struct Field<'s, 'a, T> {
    section: &'s mut Section<'a>,
    key: &'static str,
    doc: &'static str,
    kind: Kind<'s, T>,
    alone: bool,
}

enum Outcome<T> {
    Value(T),
    Absent,
    /// There is no input, or an earlier error.
    Placeholder,
}

impl<'s, 'a, T: 's> Field<'s, 'a, T> {
    pub(crate) fn new(
        section: &'s mut Section<'a>,
        key: &'static str,
        doc: &'static str,
        kind: Kind<'s, T>,
    ) -> Self {
        Self { section, key, doc, kind, alone: false }
    }

    /// Accepts only values in `range`, both ends included.
    pub fn range(self, range: RangeInclusive<T>) -> Self
    where
        T: PartialOrd + Clone,
    {
        let (low, high) = range.into_inner();
        Self { kind: self.kind.within(Some(low), Some(high)), ..self }
    }

    /// Accepts only values of at least `low`.
    pub fn at_least(self, low: T) -> Self
    where
        T: PartialOrd + Clone,
    {
        Self { kind: self.kind.within(Some(low), None), ..self }
    }

    /// Accepts only values of at most `high`.
    pub fn at_most(self, high: T) -> Self
    where
        T: PartialOrd + Clone,
    {
        Self { kind: self.kind.within(None, Some(high)), ..self }
    }

    /// Allows this value in place of the whole section: `- 127.0.0.1:80` for `- address: 127.0.0.1:80`. The key must be
    /// the first that is read in the section.
    pub fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// Returns the value; its absence is an error.
    #[must_use]
    pub fn required(mut self) -> T {
        match self.read(Presence::Required) {
            Outcome::Value(value) => return value,
            Outcome::Absent => self.section.missing(self.key, &self.kind.expected()),
            Outcome::Placeholder => {}
        }
        self.kind.placeholder()
    }

    /// Returns the value, or `default` if the key is absent.
    ///
    /// # Panics
    /// In builds with debug assertions, when `default` lies outside the limits of this key.
    #[must_use]
    pub fn default(mut self, default: T) -> T {
        debug_assert!(self.kind.holds(&default), "{}: the default is out of range", self.key);
        match self.read(Presence::Default(self.kind.write(&default))) {
            Outcome::Value(value) => value,
            Outcome::Absent | Outcome::Placeholder => default,
        }
    }

    /// Returns the value, or [`None`] if the key is absent.
    #[must_use]
    pub fn optional(mut self) -> Option<T> {
        match self.read(Presence::Optional) {
            Outcome::Value(value) => Some(value),
            Outcome::Absent => None,
            Outcome::Placeholder => Some(self.kind.placeholder()),
        }
    }

    fn read(&mut self, presence: Presence) -> Outcome<T> {
        if let Source::Listing = self.section.source {
            let key = Key::new(self.kind.expected(), presence, self.kind.schema());
            self.section.push_key(self.key, self.doc, Key { alone: self.alone, ..key });
        }
        let path = self.section.path_of(self.key, self.alone);
        match self.section.take(self.key, self.alone) {
            Found::Value(_, node) => {
                let value = self.section.value(&self.kind, &path, node);
                value.map_or(Outcome::Placeholder, Outcome::Value)
            }
            Found::Nothing => Outcome::Absent,
            Found::Placeholder => Outcome::Placeholder,
        }
    }
}

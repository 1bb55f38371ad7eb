//! A section of the configuration, for the code that reads it.
//!
//! A section gives values by key. The reader states type, meaning and default of each key. The same reader runs for
//! three purposes: with a file, it reads the values; after an error, it continues with placeholders and without
//! messages; without a file, it lists the keys for the reference page. A reader must have no effects and must not panic on placeholders. After an error, the
//! result of the reader is dropped.
//!
//! A key that the reader does not ask for is an error, which is detected at the end of the section.

use crate::cases::CasesField;
use crate::config_error::{ConfigErrors, SourcePosition};
use crate::field::Field;
use crate::key::{Key, Presence};
use crate::kind::Kind;
use crate::scalar::Meaning;
use crate::set::place_of;
use crate::tree::{Content, Entry, Node, join};
use crate::value::Value;
use crate::value_file::ValueFiles;
use curtail_text::{expectation, nearest};
use serde_json::json;
use std::cell::RefCell;
use std::fmt::Display;

const SECTION: &str = "a section of keys";
const SWITCH: &str = "true, false or a section of keys";
const LIST: &str = "a list of sections";
const MAP: &str = "a section for each name";

/// The errors and keys of one reading, over all its sections.
#[derive(Debug)]
pub(crate) struct ReadLog {
    pub(crate) errors: ConfigErrors,
    pub(crate) keys: Vec<Key>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// The keys of a section.
    Entries(&'a [Entry]),
    /// One value in place of the section, which may stand for one of the section's keys.
    Alone(&'a Node),
    /// No input, and no messages, because of an earlier error.
    Placeholders,
    /// No input: the keys are listed.
    Listing,
}

/// A section that is being read.
#[derive(Debug)]
pub struct Section<'a> {
    log: &'a RefCell<ReadLog>,
    path: String,
    pub(crate) place: SourcePosition,
    pub(crate) source: Source<'a>,
    /// The keys that were read.
    known: Vec<&'static str>,
    /// Whether a key directly in this section could not be read.
    pub(crate) broken: bool,
    /// The files of values that keys may name; absent: there are none.
    pub(crate) files: Option<&'a dyn ValueFiles>,
    /// The case that is being read, as `key: word`.
    pub(crate) case: Option<String>,
}

#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// The value, and the position of the key.
    Value(SourcePosition, &'a Node),
    /// The key is absent.
    Nothing,
    /// There is no input, or an error.
    Placeholder,
}

impl<'a> Section<'a> {
    /// A key with one value, whose type follows from the use of the value.
    pub fn field<'s, T: Value + 's>(
        &'s mut self,
        key: &'static str,
        doc: &'static str,
    ) -> Field<'s, 'a, T> {
        Field::new(self, key, doc, Kind::of_value())
    }

    /// A key whose value is one of a few fixed words (at least one).
    pub fn choice<'s, T: Copy + PartialEq>(
        &'s mut self,
        key: &'static str,
        doc: &'static str,
        words: &'s [(&'static str, T)],
    ) -> Field<'s, 'a, T> {
        Field::new(self, key, doc, Kind::of_words(words))
    }

    /// A key whose word decides which other keys this section has.
    pub fn cases<'s>(&'s mut self, key: &'static str, doc: &'static str) -> CasesField<'s, 'a> {
        CasesField::new(self, key, doc)
    }

    /// An inner section; if it is absent, its keys have their defaults.
    pub fn section<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> T {
        self.list_key(key, doc, SECTION, Presence::Default("{}".to_owned()));
        let absent = Self { source: Source::Entries(&[]), ..self.empty(self.inner(key)) };
        self.inner_section(key).unwrap_or(absent).read(read)
    }

    /// An inner section that is [`None`] if it is absent.
    pub fn optional_section<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> Option<T> {
        self.list_key(key, doc, SECTION, Presence::Optional);
        Some(self.inner_section(key)?.read(read))
    }

    /// An inner section that can be switched off. [`None`] for `key: false`, and with `enabled: false` in the section;
    /// otherwise the result of `read`. If the section is absent, the result is `default`.
    pub fn switch<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        default: Option<T>,
        read: impl FnOnce(&mut Section<'_>) -> T,
    ) -> Option<T> {
        let presence = Presence::Default(default.is_some().to_string());
        self.list_key(key, doc, SWITCH, presence);
        let Some(section) = self.inner_section(key) else { return default };
        section.read(|s| {
            let enabled =
                s.field("enabled", "Whether this section is in effect.").alone().default(true);
            if !enabled && matches!(s.source, Source::Entries([])) {
                // `key: false` misses no key of the section.
                s.silent();
            }
            let value = read(s);
            enabled.then_some(value)
        })
    }

    /// A list of sections, in the order of the file; empty when absent.
    pub fn list<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        mut read: impl FnMut(&mut Section<'_>) -> T,
    ) -> Vec<T> {
        self.list_key(key, doc, LIST, Presence::Default("[]".to_owned()));
        let Some(items) = self.items(key, LIST) else {
            return vec![self.empty(format!("{}[]", self.inner(key))).read(read)];
        };
        let path = self.inner(key);
        let open = |(index, node): (usize, &'a Node)| {
            self.open(format!("{path}[{index}]"), node.place, node).read(&mut read)
        };
        items.iter().enumerate().map(open).collect()
    }

    /// A list of plain values, in the order of the file; empty when absent.
    pub fn values<T: Value>(&mut self, key: &'static str, doc: &'static str) -> Vec<T> {
        self.read_values(key, doc, Presence::Default("[]".to_owned()))
    }

    /// A list of plain values, in the order of the file; [`None`] when absent.
    pub fn optional_values<T: Value>(
        &mut self,
        key: &'static str,
        doc: &'static str,
    ) -> Option<Vec<T>> {
        let is_absent = matches!(self.source, Source::Entries(entries) if entries.iter().all(|entry| entry.key != key));
        let values = self.read_values(key, doc, Presence::Optional);
        (!is_absent).then_some(values)
    }

    fn read_values<T: Value>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        presence: Presence,
    ) -> Vec<T> {
        let kind = Kind::<T>::of_value();
        let expected = format!("a list, each {}", kind.expected());
        if let Source::Listing = self.source {
            let schema = json!({ "type": "array", "items": kind.schema() });
            self.push_key(key, doc, Key::new(expected.clone(), presence, schema));
        }
        let Some(items) = self.items(key, &expected) else { return vec![kind.placeholder()] };
        let path = self.inner(key);
        // A placeholder keeps the places of the later items.
        let mut read = |(index, node): (usize, &Node)| {
            let value = self.value(&kind, &format!("{path}[{index}]"), node);
            value.unwrap_or_else(|| kind.placeholder())
        };
        items.iter().enumerate().map(&mut read).collect()
    }

    /// Plain values with names that users choose, in the order of the file; empty when absent.
    pub fn named_values<T: Value>(
        &mut self,
        key: &'static str,
        doc: &'static str,
    ) -> Vec<(String, T)> {
        let kind = Kind::<T>::of_value();
        let expected = format!("a section of names, each with {}", kind.expected());
        if let Source::Listing = self.source {
            let schema = json!({ "type": "object", "additionalProperties": kind.schema() });
            let presence = Presence::Default("{}".to_owned());
            self.push_key(key, doc, Key::new(expected.clone(), presence, schema));
        }
        let path = self.inner(key);
        let entries = match self.take(key, false) {
            Found::Value(_, Node { content: Content::Mapping(entries), .. }) => entries.as_slice(),
            Found::Value(_, node) => {
                self.reject(&path, node, &expected);
                &[]
            }
            Found::Nothing | Found::Placeholder => &[],
        };
        let mut read = |entry: &Entry| {
            let value = self.value(&kind, &join(&path, &entry.key), &entry.value)?;
            Some((entry.key.clone(), value))
        };
        entries.iter().filter_map(&mut read).collect()
    }

    /// Sections with names that users choose, in the order of the file; empty when absent.
    pub fn map<T>(
        &mut self,
        key: &'static str,
        doc: &'static str,
        mut read: impl FnMut(&str, &mut Section<'_>) -> T,
    ) -> Vec<T> {
        self.list_key(key, doc, MAP, Presence::Default("{}".to_owned()));
        let path = self.inner(key);
        let entries = match self.take(key, false) {
            Found::Value(_, Node { content: Content::Mapping(entries), .. }) => entries.as_slice(),
            Found::Value(_, node) => {
                self.reject(&path, node, MAP);
                &[]
            }
            Found::Nothing => &[],
            Found::Placeholder => {
                let section = self.empty(format!("{path}.<name>"));
                return vec![section.read(|section| read("<name>", section))];
            }
        };
        let mut open = |entry: &'a Entry| {
            let (key, inner) = (&entry.key, join(&path, &entry.key));
            let before = self.log.borrow().errors.count();
            let section = self.open(inner.clone(), entry.key_place, &entry.value);
            let value = section.read(|section| read(key, section));
            // A `--set` of one of its keys was meant for an existing section.
            if entry.is_implied && self.log.borrow_mut().errors.forget_after(before) {
                let written = entries.iter().filter(|entry| !entry.is_implied);
                let names: Vec<&str> = written.map(|entry| entry.key.as_str()).collect();
                let expected = expectation(key, &names, "there is no such section to change");
                self.push(entry.key_place, &inner, format!("not defined: {expected}"));
            }
            value
        };
        entries.iter().map(&mut open).collect()
    }

    /// Reports an error if the value of the key `low` is above that of `high`.
    pub fn check_order<T: Copy + PartialOrd + Display>(&mut self, low: (&str, T), high: (&str, T)) {
        if low.1 > high.1 {
            let text = format!("{} is above {} ({}): expected at most that", low.1, high.0, high.1);
            self.conflict(low.0, &[high.0], text);
        }
    }

    /// Reports an error if the list `key` has more than `max` entries.
    pub fn check_len(&mut self, key: &str, len: usize, max: usize) {
        if len > max {
            self.value_error(key, format!("{len} of them: expected at most {max}"));
        }
    }

    /// Reports an error about `key` if `name` is not a known name of a `noun`.
    pub fn check_known<'n>(
        &mut self,
        (key, noun): (&str, &str),
        name: &str,
        known: impl IntoIterator<Item = &'n str>,
    ) {
        let known: Vec<&str> = known.into_iter().collect();
        if !known.contains(&name) {
            let expected = expectation(name, &known, "there is none");
            self.value_error(key, format!("{name:?} is no {noun}: {expected}"));
        }
    }

    /// Adds an error at `path` that only the reader can detect, such as two contradicting keys. `path` is a key of this
    /// section, or a path below it (`routes[1].upstream`).
    ///
    /// The error is dropped if a key of this section or the value at `path` could not be read, because the reader then
    /// compared placeholders. [`Self::value_error`] and [`Self::conflict`] are dropped less often.
    pub fn error(&mut self, path: &str, text: impl Into<String>) {
        let is_below = path.contains(['.', '[']);
        let is_unread = is_below && self.is_unread(path);
        if !(self.broken || is_unread) {
            self.push_invalid((path, &[]), text.into());
        }
    }

    /// Adds an error about the value at `path` alone. It is dropped only if this value could not be read.
    pub fn value_error(&mut self, path: &str, text: impl Into<String>) {
        self.conflict(path, &[], text);
    }

    /// Adds an error about the values at `path` and at `others`. It is dropped only if one of these could not be read.
    pub fn conflict(&mut self, path: &str, others: &[&str], text: impl Into<String>) {
        if !self.is_unread(path) && !others.iter().any(|other| self.is_unread(other)) {
            self.push_invalid((path, others), text.into());
        }
    }

    /// Whether the value at `path`, a value below it or a section around it could not be read.
    fn is_unread(&self, path: &str) -> bool {
        self.log.borrow().errors.is_unread(&join(&self.path, path))
    }

    fn push_invalid(&self, (path, others): (&str, &[&str]), text: String) {
        let Source::Entries(entries) = self.source else { return };
        let place = place_of(entries, path).unwrap_or(self.place);
        let others = others.iter().map(|other| self.inner(other)).collect();
        self.log.borrow_mut().errors.push_invalid(place, (&self.inner(path), others), text);
    }
}

impl<'a> Section<'a> {
    pub(crate) fn root(
        log: &'a RefCell<ReadLog>,
        node: &'a Node,
        files: Option<&'a dyn ValueFiles>,
    ) -> Self {
        let listing = Self::listing(log);
        Self { source: Source::Placeholders, files, ..listing }.open(
            String::new(),
            SourcePosition::START,
            node,
        )
    }

    pub(crate) fn listing(log: &'a RefCell<ReadLog>) -> Self {
        Self {
            log,
            path: String::new(),
            place: SourcePosition::START,
            source: Source::Listing,
            known: Vec::new(),
            broken: false,
            files: None,
            case: None,
        }
    }

    /// Runs `read` over this section, then reports the keys that `read` did not ask for.
    pub(crate) fn read<T>(mut self, read: impl FnOnce(&mut Section<'_>) -> T) -> T {
        let value = read(&mut self);
        match self.source {
            Source::Entries(entries) => {
                for entry in entries.iter().filter(|e| !self.known.contains(&e.key.as_str())) {
                    self.forget_absent(entries, &entry.key);
                    self.push(entry.key_place, &self.inner(&entry.key), self.unknown(&entry.key));
                }
            }
            Source::Alone(node) => self.reject(&self.path.clone(), node, SECTION),
            Source::Placeholders | Source::Listing => {}
        }
        value
    }

    /// Drops the errors about the key that `mistyped` was meant for.
    fn forget_absent(&self, entries: &[Entry], mistyped: &str) {
        let meant = nearest(mistyped, &self.known);
        if let Some(absent) = meant.filter(|key| entries.iter().all(|entry| entry.key != *key)) {
            self.log.borrow_mut().errors.forget_absent(self.inner(absent));
        }
    }

    fn unknown(&self, key: &str) -> String {
        let with = self.case.as_ref().map_or(String::new(), |case| format!(" with {case}"));
        let mut known = self.known.clone();
        known.sort_unstable();
        let expected = expectation(key, &known, "expected no keys here");
        format!("unknown key{with}: {expected}")
    }

    /// The path of the value of `key`: that of the section if a value stands in place of it.
    pub(crate) fn path_of(&self, key: &str, alone: bool) -> String {
        let is_alone = alone && matches!(self.source, Source::Alone(_));
        if is_alone { self.path.clone() } else { self.inner(key) }
    }

    /// Finds `key`. With `alone`, a value in place of the section stands for this key.
    pub(crate) fn take(&mut self, key: &'static str, alone: bool) -> Found<'a> {
        self.known.push(key);
        let (place, node) = match self.source {
            Source::Entries(entries) => match entries.iter().find(|entry| entry.key == key) {
                Some(entry) => (entry.key_place, &entry.value),
                None => return Found::Nothing,
            },
            Source::Alone(node) if alone => {
                self.source = Source::Entries(&[]);
                (node.place, node)
            }
            Source::Alone(node) => {
                self.reject(&self.path.clone(), node, SECTION);
                self.source = Source::Placeholders;
                return Found::Placeholder;
            }
            Source::Placeholders | Source::Listing => return Found::Placeholder,
        };
        if let Content::Rejected = node.content {
            self.broken = true;
            return Found::Placeholder;
        }
        Found::Value(place, node)
    }

    /// Reads a value of type `kind` from `node`; [`None`] after an error.
    pub(crate) fn value<T>(&mut self, kind: &Kind<'_, T>, path: &str, node: &Node) -> Option<T> {
        let Content::Scalar(scalar) = &node.content else {
            self.reject(path, node, &kind.expected());
            return None;
        };
        match kind.read(scalar) {
            Ok(value) => Some(value),
            Err(wrong) => {
                self.broken = true;
                let text = kind.describe(wrong, scalar);
                self.push(node.place, path, text);
                None
            }
        }
    }

    pub(crate) fn missing(&mut self, key: &str, expected: &str) {
        self.broken = true;
        self.push(self.place, &join(&self.path, key), format!("missing: expected {expected}"));
    }

    /// Returns this section, from now on without input and without messages.
    pub(crate) fn silent(&mut self) -> &mut Self {
        if let Source::Entries(_) | Source::Alone(_) = self.source {
            self.source = Source::Placeholders;
        }
        self
    }

    pub(crate) fn inner(&self, key: &str) -> String {
        join(&self.path, key)
    }

    pub(crate) fn push_key(&self, key: &'static str, doc: &'static str, found: Key) {
        let found = Key { path: self.inner(key), doc, case: self.case.clone(), ..found };
        self.log.borrow_mut().keys.push(found);
    }

    fn list_key(&self, key: &'static str, doc: &'static str, expected: &str, presence: Presence) {
        if let Source::Listing = self.source {
            let shape = if expected == LIST { "array" } else { "object" };
            let schema = json!({ "type": shape });
            self.push_key(key, doc, Key::new(expected.to_owned(), presence, schema));
        }
    }

    /// Opens the section at `key`; [`None`] when it is absent.
    fn inner_section(&mut self, key: &'static str) -> Option<Self> {
        match self.take(key, false) {
            Found::Value(place, node) => Some(self.open(self.inner(key), place, node)),
            Found::Nothing => None,
            Found::Placeholder => Some(self.empty(self.inner(key))),
        }
    }

    /// Returns the items of the list `key`; [`None`] for placeholders.
    fn items(&mut self, key: &'static str, expected: &str) -> Option<&'a [Node]> {
        match self.take(key, false) {
            Found::Value(_, Node { content: Content::List(items), .. }) => Some(items),
            Found::Value(_, node) => {
                self.reject(&self.inner(key), node, expected);
                Some(&[])
            }
            Found::Nothing => Some(&[]),
            Found::Placeholder => None,
        }
    }

    /// Opens the section in `node`; a section of placeholders if `node` is no section.
    fn open(&self, path: String, place: SourcePosition, node: &'a Node) -> Self {
        let source = match &node.content {
            Content::Mapping(entries) => Source::Entries(entries),
            Content::Scalar(scalar) if *scalar.meaning() != Meaning::Nothing => Source::Alone(node),
            Content::Scalar(_) => {
                let what = if path.is_empty() { "the file is empty" } else { "nothing is here" };
                let text = format!("{what}: expected {SECTION} ({{}} for all defaults)");
                self.push(place, &path, text);
                Source::Placeholders
            }
            Content::List(_) => {
                self.push(node.place, &path, format!("this is a list: expected {SECTION}"));
                Source::Placeholders
            }
            Content::Rejected => Source::Placeholders,
        };
        Self { place, source, ..self.empty(path) }
    }

    /// Creates a section of placeholders, or of keys to list.
    fn empty(&self, path: String) -> Self {
        let source = match self.source {
            Source::Listing => Source::Listing,
            Source::Entries(_) | Source::Alone(_) | Source::Placeholders => Source::Placeholders,
        };
        Self { path, place: self.place, source, files: self.files, ..Self::listing(self.log) }
    }

    /// Reports that `node` is not the expected value.
    fn reject(&mut self, path: &str, node: &Node, expected: &str) {
        self.broken = true;
        let found = match &node.content {
            Content::Scalar(scalar) => format!("{} is {}", scalar.shown(), scalar.kind()),
            Content::List(_) => "this is a list".to_owned(),
            Content::Mapping(_) => "this is a section".to_owned(),
            Content::Rejected => return,
        };
        self.push(node.place, path, format!("{found}: expected {expected}"));
    }

    pub(crate) fn push(&self, place: SourcePosition, path: &str, text: String) {
        self.log.borrow_mut().errors.push(place, path, text);
    }
}

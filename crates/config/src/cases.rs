//! A key whose value selects the other keys of its section: `policy: prequal` and the keys of prequal.
//!
//! A case is one such value with its keys. The value alone may replace the section if every other key of the case has a
//! default: `balance: random`.

use crate::key::{Key, Presence};
use crate::kind::Kind;
use crate::section::{Found, Section, Source};

/// The key that selects a case; must be the first key that is read in its section.
#[derive(Debug)]
#[must_use = "a key is read by `required` or `default`"]
pub struct CasesField<'s, 'a> {
    section: &'s mut Section<'a>,
    key: &'static str,
    doc: &'static str,
}

/// The cases of a key: one call of [`case`](Self::case) for each.
#[derive(Debug)]
pub struct Cases<'c, 'a, T> {
    words: Vec<(&'static str, &'static str)>,
    /// The selected case and its section; absent while the words of all cases are collected.
    entered: Option<(&'static str, &'c mut Section<'a>)>,
    value: Option<T>,
}

impl<'a, T> Cases<'_, 'a, T> {
    /// Declares the case `word`: its meaning, and the reader of its keys.
    pub fn case(
        &mut self,
        word: &'static str,
        doc: &'static str,
        read: impl FnOnce(&mut Section<'a>) -> T,
    ) {
        match &mut self.entered {
            None => self.words.push((word, doc)),
            Some((entered, section)) if *entered == word => self.value = Some(read(section)),
            Some(_) => {}
        }
    }
}

impl<'a> CasesField<'_, 'a> {
    pub(crate) fn new<'s>(
        section: &'s mut Section<'a>,
        key: &'static str,
        doc: &'static str,
    ) -> CasesField<'s, 'a> {
        CasesField { section, key, doc }
    }

    /// Returns the value of the selected case; a missing key is an error. `cases` declares at least one case.
    pub fn required<T>(self, cases: impl Fn(&mut Cases<'_, 'a, T>)) -> T {
        self.read(None, cases)
    }

    /// Returns the value of the selected case, or of the case `word` if the key is absent.
    pub fn default<T>(self, word: &'static str, cases: impl Fn(&mut Cases<'_, 'a, T>)) -> T {
        self.read(Some(word), cases)
    }

    fn read<T>(self, default: Option<&'static str>, cases: impl Fn(&mut Cases<'_, 'a, T>)) -> T {
        let Self { section, key, doc } = self;
        let mut collected = Cases { words: Vec::new(), entered: None, value: None };
        cases(&mut collected);
        let words = collected.words;
        let enter = |word, section: &mut Section<'a>| {
            let outer = section.case.replace(format!("{key}: {word}"));
            let mut entered =
                Cases { words: Vec::new(), entered: Some((word, &mut *section)), value: None };
            cases(&mut entered);
            let value = entered.value.expect("the same closure has named every word");
            // While keys are listed, the case ends with its closure. While they are read, later messages about unknown
            // keys name the case.
            if let Source::Listing = section.source {
                section.case = outer;
            }
            value
        };
        let fallback = default.unwrap_or(words[0].0);
        let names: Vec<(&str, &str)> = words.iter().map(|(word, _)| (*word, *word)).collect();
        let kind = Kind::of_words(&names);
        if let Source::Listing = section.source {
            let presence = default.map_or(Presence::Required, |w| Presence::Default(w.to_owned()));
            let listed = Key::new(kind.expected(), presence, kind.schema());
            section.push_key(key, doc, Key { alone: true, words: words.clone(), ..listed });
            let values = words.iter().map(|(word, _)| enter(word, section));
            return values.last().expect("there is at least one case");
        }
        let path = section.path_of(key, true);
        let word = match section.take(key, true) {
            Found::Value(_, node) => section.value(&kind, &path, node),
            Found::Nothing if default.is_some() => default,
            Found::Nothing => {
                section.missing(key, &kind.expected());
                None
            }
            Found::Placeholder => None,
        };
        match word {
            Some(word) => enter(word, section),
            // Without the word, the keys of the section are unknown.
            None => enter(fallback, section.silent()),
        }
    }
}

//! Interning: each text or key is stored once, and has a number.

use alloc::string::String;
use alloc::vec::Vec;
use core::hash::Hash;
use hashbrown::HashMap;

/// Gives equal values the same number, counted from zero.
#[derive(Clone, Debug)]
pub(crate) struct Interner<T> {
    numbers: HashMap<T, u32>,
    values: Vec<T>,
}

/// The texts of all traces: services, operations, attribute keys and values.
pub(crate) type Names = Interner<String>;

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), values: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Interner<T> {
    /// The number of `value`, which is stored if it is new.
    pub(crate) fn intern(&mut self, value: T) -> u32 {
        let next = u32::try_from(self.values.len()).expect("the number of spans is limited");
        *self.numbers.entry(value).or_insert_with_key(|value| {
            self.values.push(value.clone());
            next
        })
    }

    pub(crate) fn contains(&self, value: &T) -> bool {
        self.numbers.contains_key(value)
    }

    pub(crate) fn get(&self, number: u32) -> &T {
        &self.values[number as usize]
    }

    pub(crate) const fn len(&self) -> usize {
        self.values.len()
    }

    /// The values, in the order of their numbers.
    pub(crate) fn values(&self) -> &[T] {
        &self.values
    }
}

impl Names {
    /// The number of a text, without an allocation if it is known.
    pub(crate) fn intern_text(&mut self, text: &str) -> u32 {
        match self.numbers.get(text) {
            Some(number) => *number,
            None => self.intern(String::from(text)),
        }
    }
}

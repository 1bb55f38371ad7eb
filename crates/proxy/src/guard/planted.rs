//! Panics that tests plant in machines.

use super::Step;
use std::sync::{Mutex, PoisonError};

/// The steps at which machines panic; each entry is used once.
static PLANTED: Mutex<Vec<(String, Step)>> = Mutex::new(Vec::new());

/// Makes the machine panic at the end of its next such step, when it has changed and its effects are lost.
pub(super) fn plant(machine: &str, step: Step) {
    let mut planted = PLANTED.lock().unwrap_or_else(PoisonError::into_inner);
    planted.push((machine.to_owned(), step));
}

/// Panics if a test has planted a panic at this step.
pub(super) fn strike(machine: &str, step: Step) {
    let mut planted = PLANTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = planted.iter().position(|(m, s)| m == machine && *s == step) {
        planted.remove(place);
        drop(planted);
        panic!("planted");
    }
}

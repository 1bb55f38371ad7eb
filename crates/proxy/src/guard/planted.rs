//! Panics that tests plant in machines.

use super::Step;
use std::sync::{Mutex, PoisonError};

/// Which step of which machine panics next; each panics once.
static PLANTED: Mutex<Vec<(String, Step)>> = Mutex::new(Vec::new());

/// Has the machine panic at the end of its next such step: it has changed by then, and its effects are lost.
pub(super) fn plant(machine: &str, step: Step) {
    let mut planted = PLANTED.lock().unwrap_or_else(PoisonError::into_inner);
    planted.push((machine.to_owned(), step));
}

/// The machine is at the end of a step.
pub(super) fn strike(machine: &str, step: Step) {
    let mut planted = PLANTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = planted.iter().position(|(m, s)| m == machine && *s == step) {
        planted.remove(place);
        drop(planted);
        panic!("planted");
    }
}

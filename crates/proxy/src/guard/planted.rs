//! Panics and impossible effects that tests plant in machines, and panics in encoders.

use super::Step;
use curtail_http::head::RequestHead;
use std::sync::{Mutex, PoisonError};

/// The path of requests whose records cannot be encoded.
pub(crate) const ENCODER_PANICS: &str = "/encoder-panics";

type IsAt = fn(&Step) -> bool;

/// The steps at which machines panic; each entry is used once.
static PLANTED: Mutex<Vec<(String, IsAt)>> = Mutex::new(Vec::new());

/// Makes the machine panic at the end of its next such step, when it has changed and its effects are lost.
pub(super) fn plant(machine: &str, is_at: IsAt) {
    let mut planted = PLANTED.lock().unwrap_or_else(PoisonError::into_inner);
    planted.push((machine.to_owned(), is_at));
}

/// Panics if a test has planted a panic at this step.
pub(super) fn strike(machine: &str, step: &Step) {
    if take(machine, step) {
        panic!("planted");
    }
}

/// Panics if a test asked for this path, after its record was encoded.
pub(crate) fn strike_encoder(head: &RequestHead) {
    assert_ne!(head.target.path(), ENCODER_PANICS, "planted");
}

/// Whether a test has made the machine's next effect impossible.
pub(crate) fn is_impossible(machine: &str) -> bool {
    take(machine, &Step::Effects)
}

fn take(machine: &str, step: &Step) -> bool {
    let mut planted = PLANTED.lock().unwrap_or_else(PoisonError::into_inner);
    let position = planted.iter().position(|(name, is_at)| name == machine && is_at(step));
    position.map(|position| planted.remove(position)).is_some()
}

//! The network: the delay of messages between roots and leaves, and between two leaves.

use curtail_model::Distribution;
use curtail_units::{Duration, Rng};

/// Draws the delay of each message.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    delay: Distribution,
    /// The delay of every message, if it is constant; messages then arrive in the order in which they were sent.
    pub(crate) constant: Option<Duration>,
    rng: Rng,
}

impl Network {
    pub(crate) fn new(delay: &Distribution, rng: Rng) -> Self {
        let constant =
            if let Distribution::Constant { value } = delay { Some(*value) } else { None };
        Self { delay: delay.clone(), constant, rng }
    }

    /// The delay of the next message.
    pub(crate) fn delay(&mut self) -> Duration {
        self.constant.unwrap_or_else(|| self.delay.draw(&mut self.rng))
    }

    /// Whether a message and its response may together take longer than `limit`.
    pub(crate) fn may_exceed(&self, limit: Duration) -> bool {
        self.constant.is_none_or(|delay| delay + delay > limit)
    }
}

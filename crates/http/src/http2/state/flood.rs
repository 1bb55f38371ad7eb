//! The limit of frames that cost work and carry nothing: PING, SETTINGS, PRIORITY, empty DATA, resets and others.
//!
//! A peer has an allowance of such frames, which grows with time and with the requests and data that it exchanges.
//! **Limits**: [`FRAMES_MAX`] frames in a burst, and [`FRAMES_PER_SECOND`]. A stream that is reset before its response
//! (Rapid Reset, CVE-2023-44487) costs as much as [`FRAMES_MAX`] divided by the allowed resets. Each complete response
//! gives that much back, so a client may reset half of its requests. A refused stream costs the same, but only one frame
//! before the client has acknowledged the limit of streams.

use std::time::Duration;
use tokio::time::Instant;

const FRAMES_MAX: u32 = 10_000;

const FRAMES_PER_SECOND: u32 = 1_000;

#[derive(Debug)]
pub(super) struct Flood {
    left: u32,
    refilled: Instant,
    reset_cost: u32,
}

/// The allowance is spent.
#[derive(Debug)]
pub(super) struct Flooded;

impl Flood {
    pub(super) fn new(resets_max: u32) -> Self {
        let reset_cost = (FRAMES_MAX / resets_max.max(1)).max(1);
        Self { left: FRAMES_MAX, refilled: Instant::now(), reset_cost }
    }

    /// Adds what has accrued since the last call.
    pub(super) fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.refilled);
        if passed >= Duration::from_millis(10) {
            let frames = passed.as_millis() * u128::from(FRAMES_PER_SECOND) / 1_000;
            self.give(u32::try_from(frames).unwrap_or(FRAMES_MAX).min(FRAMES_MAX));
            self.refilled = now;
        }
    }

    #[inline]
    pub(super) fn give(&mut self, frames: u32) {
        self.left = (self.left + frames).min(FRAMES_MAX);
    }

    #[inline]
    pub(super) fn give_for_response(&mut self) {
        self.give(self.reset_cost);
    }

    #[inline]
    pub(super) fn spend(&mut self, frames: u32) -> Result<(), Flooded> {
        self.left = self.left.checked_sub(frames).ok_or(Flooded)?;
        Ok(())
    }

    pub(super) fn spend_for_reset(&mut self) -> Result<(), Flooded> {
        self.spend(self.reset_cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allowance_grows_with_time_and_responses() {
        let mut flood = Flood::new(200);
        let start = flood.refilled;
        for _ in 0..200 {
            flood.spend_for_reset().expect("allowed");
        }
        flood.spend_for_reset().expect_err("one too many");
        flood.give_for_response();
        flood.spend_for_reset().expect("allowed again");
        flood.refill(start + Duration::from_millis(100));
        flood.spend(100).expect("a tenth of a second");
        flood.spend(1).expect_err("spent");
        flood.refill(start + Duration::from_secs(3_600));
        flood.spend(FRAMES_MAX).expect("an hour");
        flood.spend(1).expect_err("the allowance has a maximum");
    }
}

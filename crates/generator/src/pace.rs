//! Waits for an instant, exact to some tens of microseconds.
//!
//! A sleeping processor takes time to wake. The wait therefore sleeps until shortly before the instant, and then polls
//! connections.
//! **Hurts when** many threads wait on few processors: each wait ends with polling for [`AWAKE`].

use curtail_http::clock::Clock;
use curtail_http::precise_timer::PreciseTimer;
use curtail_units::{Duration, Instant};
use std::io;

/// The polling time before the instant: the p99 of the time that a processor takes to wake.
const AWAKE: Duration = Duration::from_us(100);

/// Returns at `at`, or at once when `at` has passed.
pub(super) async fn until(at: Instant, timer: &mut PreciseTimer, clock: Clock) -> io::Result<()> {
    timer.wait(at.since(clock.now() + AWAKE)).await?;
    while clock.now() < at {
        tokio::task::yield_now().await;
    }
    Ok(())
}

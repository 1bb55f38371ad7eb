//! Somebody else who works on the same core.
//!
//! **Decides** when a role's thread serves: between two slices of [`SLICE`] that compute and do nothing
//! useful. That is how a small machine, or a container with one core, looks to an app that shares it with a
//! job that never waits: each time that the app has something to do, it waits for the job's slice to end.
//! **Why on the same thread**: beside other threads the kernel would give it another core as long as there is
//! one, and how slow the app gets would say more of the machine than of the cause.
//! **Hurts** the more, the more often a request waits for something: the client waits four times.

use curtail_units::Duration;
use std::time::Instant;

/// How long the job computes before others get their turn.
const SLICE: Duration = Duration::from_ms(10);

/// Computes, in slices, as long as it is polled. The runtime looks for I/O between two slices.
pub(super) async fn compute() {
    let mut sum = 0_u64;
    loop {
        let began = Instant::now();
        while began.elapsed() < SLICE.into() {
            for n in 0..1_000_u64 {
                sum = std::hint::black_box(sum.rotate_left(5) ^ n);
            }
        }
        tokio::task::yield_now().await;
    }
}

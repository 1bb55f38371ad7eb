//! CPU time by stack: samples of the stacks of running threads.
//!
//! A timer of the process sends SIGPROF to a running thread for each hundredth of a second of CPU time, and the signal
//! handler (crate `pprof`) walks the stack of that thread.
//!
//! **Limits**: the handler must not interrupt the C library, whose locks it needs. Samples of the C library, and of the
//! system calls that it makes, are dropped. The profile has their CPU time as one entry, [`OUTSIDE`]. `pprof` has room
//! for 16,384 different stacks, and keeps this memory after the first profile.

use crate::format::{self, CpuProfile};
use crate::{Client, ProfileError};
use curtail_metrics::process::Usage;
use pprof::ProfilerGuardBuilder;
use std::time::Duration;

/// Samples for each second of CPU time; no divisor of a second, to not keep step with timers of the program.
const FREQUENCY: i32 = 99;

/// The libraries that the handler must not interrupt, as parts of their paths.
const UNSAFE_LIBRARIES: [&str; 5] = ["/libc.", "/libc-", "/libgcc", "/libpthread", "vdso"];

/// The name of the CPU time without samples.
pub(crate) const OUTSIDE: &str = "[system calls and C library]";

pub(crate) fn record(lasts: Duration, client: &Client) -> Result<Vec<u8>, ProfileError> {
    let failed = |error: pprof::Error| ProfileError::System(error.to_string());
    let builder = ProfilerGuardBuilder::default().frequency(FREQUENCY).blocklist(&UNSAFE_LIBRARIES);
    let guard = builder.build().map_err(failed)?;
    let cpu_before = Usage::now().cpu;
    client.wait(lasts)?;
    let cpu = Usage::now().cpu.zip(cpu_before).map(|(now, before)| now - before);
    let report = guard.report().build().map_err(failed)?;
    drop(guard);
    Ok(format::encode(&CpuProfile {
        stacks: &report.data,
        began: report.timing.start_time,
        lasted: lasts,
        period: Duration::from_secs(1) / FREQUENCY.unsigned_abs(),
        cpu: cpu.map(Duration::from),
    }))
}

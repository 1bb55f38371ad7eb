//! The load of the demo: the requests of reads, at random times (Poisson). Arms that are measured together have
//! independent times.

use curtail_generator::Load;
use curtail_generator::target::{Protocol, Target};
use curtail_generator::workload::{RequestConfig, Workload, WorkloadConfig};
use curtail_load::schedule::Spacing;
use curtail_load::{Schedule, Share};
use curtail_units::{Duration, Rng};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Keys that a read gets from each shard.
pub(crate) const KEYS_PER_SHARD: usize = 20;

/// A read without a response after this time has failed.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Minimum of `connections_max` of an arm, for low rates.
const CONNECTIONS_MIN: u32 = 32;

/// Maximum number of reads of one arm in flight, at `rate` a second: those of 0.75 s, which is longer than a stall. Further
/// reads wait, which counts as latency. The number is small because each read has a connection to each of 50 servers.
pub(crate) const fn connections_max(rate: u16) -> u32 {
    let held_back = rate as u32 * 3 / 4;
    if held_back > CONNECTIONS_MIN { held_back } else { CONNECTIONS_MIN }
}

/// The schedule of `rate` reads a second for `length`.
pub(crate) fn schedule(rate: f64, length: Duration) -> Schedule {
    Schedule::constant(rate, length, Spacing::Poisson)
}

/// Prepares reads of `tenant` by `schedule`, through the proxy at `address` over at most `connections_max` connections.
pub(crate) fn reads(
    address: SocketAddr,
    tenant: &str,
    (schedule, connections_max): (Schedule, u32),
    rng: Rng,
) -> anyhow::Result<Load> {
    let target = Target::look_up(&format!("http://{address}/"))?;
    let connector = target.connector(Protocol::Http1, None, false)?;
    let keys: Vec<String> = (0..KEYS_PER_SHARD).map(|key| format!("k={{nth}}-{key}")).collect();
    let config = WorkloadConfig::of_one(RequestConfig {
        path: Some(format!("/keys?{}", keys.join("&"))),
        headers: vec![("x-tenant".to_owned(), tenant.to_owned())],
        ..RequestConfig::get("read")
    });
    let workload = Workload::prepare(&config, &target, Path::new(""), &rng)?;
    Ok(Load {
        target,
        connector,
        protocol: Protocol::Http1,
        keep_alive: true,
        connections_max: connections_max as usize,
        timeout: TIMEOUT,
        workload,
        schedule: Arc::new(schedule),
        rng,
        share: Share::ALL,
        threads: 1,
    })
}

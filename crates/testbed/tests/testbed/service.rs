//! Service times as a client sees them, against the distribution that was configured.

use crate::client::{Client, Version, start};
use curtail_units::Duration;
use tokio::task::JoinSet;

const CLIENTS: usize = 40;

/// Requests measured, over all clients.
const REQUESTS: usize = 4_000;

/// No set of 4,000 draws strays this far from its distribution function, but for one in a million:
/// √(ln(2 / 10⁻⁶) / (2 · 4000)) (Massart, "The tight constant in the Dvoretzky–Kiefer–Wolfowitz
/// inequality", 1990).
const BAND: f64 = 0.043;

#[tokio::test]
async fn latencies_follow_the_configured_distribution() {
    let yaml = "
name: slow reads
replicas: 1
server: {concurrency: 40, service: {shape: lognormal, median: 20ms, sigma: 0.98}}
";
    let seed = 31;
    let testbed = start(yaml, seed);
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let testbed = testbed.clone();
        clients.spawn(async move {
            let mut client = Client::connect(testbed.address(0, 0), Version::Http1).await;
            let mut reads = Vec::with_capacity(REQUESTS / CLIENTS);
            for _ in 0..REQUESTS / CLIENTS {
                let (stay, response) = client.read(&testbed).await;
                reads.push((stay.responded.since(stay.sent), response.spent[1]));
            }
            reads
        });
    }
    let reads = clients.join_all().await.concat();
    assert_eq!(reads.len(), REQUESTS);
    // (time in ms, share of service times at or below it): z = ln(time / 20) / 0.98.
    for (ms, expected) in [(10, 0.240), (20, 0.500), (40, 0.760), (100, 0.950), (200, 0.991)] {
        let limit = Duration::from_ms(ms);
        let count = reads.iter().filter(|(_, service)| *service <= limit).count();
        let share = count as f64 / REQUESTS as f64;
        assert!((share - expected).abs() < BAND, "{share} within {limit}, seed {seed}");
    }
    for (latency, service) in reads {
        // The reported service time is rounded to the microsecond.
        assert!(latency + Duration::from_us(1) > service, "{latency} for {service} of work");
    }
}

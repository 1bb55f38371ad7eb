use super::{DiscoveryMetrics, DiscoverySnapshot, LookupResult, Validity};
use curtail_units::Duration;

/// A discovery with an endpoint, another one whose response has expired, and a failure.
pub(crate) fn sample() -> DiscoverySnapshot {
    let metrics = DiscoveryMetrics::default();
    metrics.lookups.add(&LookupResult::Found, 2);
    metrics.lookups.add(&LookupResult::Failed, 1);
    let at = |text: &str| text.parse().expect("an address");
    DiscoverySnapshot {
        source: "A and AAAA records of http://api.test:80".to_owned(),
        lookups: metrics.read().lookups,
        last_success_age: Some(Duration::from_ms(1_500)),
        is_connected: None,
        summary: None,
        has_failed: true,
        next_lookup_in: Duration::from_secs(5),
        last_error: Some("request timed out".to_owned()),
        endpoints: vec![
            (at("10.0.0.7:80"), Validity::For(Duration::from_secs(5))),
            (at("[::1]:80"), Validity::Expired),
        ],
    }
}

//! The keys of `routes[].limits`: what a route accepts in all, and from each client and tenant.

use super::Config;
use curtail_config::Section;
use curtail_policy::{RateLimit, RequestLimit};

/// The range of `rate`, in requests per second.
const RATES: std::ops::RangeInclusive<f64> = 0.001..=1_000_000.0;

const BURST_MAX: u32 = 1_000_000;

/// Limits on the requests of a route.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteLimitsConfig {
    /// The limits of all requests together.
    pub route: RequestLimit,
    /// The limits of each client; absent: none.
    pub per_client: Option<ClientLimit>,
    /// The limits of each tenant, by the header `tenants.header`; absent: none.
    pub per_tenant: Option<TenantLimit>,
}

/// Limits on the requests of each client.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientLimit {
    /// The header that names the client, in lower case; absent: its address does.
    pub header: Option<String>,
    /// The limits.
    pub limit: RequestLimit,
    /// The number of clients that the proxy can count at once.
    pub max: usize,
}

/// Limits on the requests of each tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantLimit {
    /// The limits.
    pub limit: RequestLimit,
    /// The number of tenants that the proxy can count at once.
    pub max: usize,
}

pub(super) fn read(s: &mut Section<'_>) -> RouteLimitsConfig {
    let limits = RouteLimitsConfig {
        route: limit(s),
        per_client: s.optional_section(
            "per_client",
            "Limits for each client of the route. A client is its address, without that of a trusted proxy; an IPv6 client is its /64 network.",
            per_client,
        ),
        per_tenant: s.optional_section(
            "per_tenant",
            "Limits for each tenant of the route, by the header `tenants.header`. All requests without the header are one tenant.",
            |s| {
                let limit = limit(s);
                check_any(s, &limit);
                TenantLimit { limit, max: max(s) }
            },
        ),
    };
    if limits.per_client.is_none() && limits.per_tenant.is_none() {
        check_any(s, &limits.route);
    }
    limits
}

fn per_client(s: &mut Section<'_>) -> ClientLimit {
    let header: Option<String> = s
        .field(
            "header",
            "Request header that names the client, such as x-api-key; absent, also in a request: the address does. Use it only if a server before the proxy checks the header.",
        )
        .optional();
    if header.as_ref().is_some_and(|header| http::HeaderName::try_from(header).is_err()) {
        s.value_error("header", "expected the name of a header, such as x-api-key");
    }
    let limit = limit(s);
    check_any(s, &limit);
    ClientLimit { header: header.map(|header| header.to_ascii_lowercase()), limit, max: max(s) }
}

fn limit(s: &mut Section<'_>) -> RequestLimit {
    let in_flight_max = s
        .field("in_flight_max", "Maximum number of requests in flight, streams and upgraded connections included; absent: no limit.")
        .at_least(1)
        .optional();
    let rate = s
        .field(
            "rate",
            "Maximum number of requests per second, such as 100 or 0.5; absent: no limit.",
        )
        .range(RATES)
        .optional();
    let burst = s
        .field("burst", "Maximum number of requests at once after a pause; absent: the requests of one second, at least 1.")
        .range(1..=BURST_MAX)
        .optional();
    if burst.is_some() && rate.is_none() {
        s.conflict("burst", &["rate"], "has no effect without rate: expected rate, too");
    }
    let rate =
        rate.map(|rate: f64| RateLimit::new(rate, burst.unwrap_or_else(|| one_second(rate))));
    RequestLimit { in_flight_max, rate }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in the range of rate")]
fn one_second(rate: f64) -> u32 {
    rate.ceil() as u32
}

fn max(s: &mut Section<'_>) -> usize {
    s.field("max", "Number of clients or tenants with recent requests that the proxy can count at once, 64 bytes for each. Beyond it, it does not limit others, and curtail_limits_table_full_total counts their requests.")
        .range(16..=1_000_000)
        .default(10_000)
}

fn check_any(s: &mut Section<'_>, limit: &RequestLimit) {
    if limit.is_unlimited() {
        let text = "there is no limit: expected in_flight_max or rate";
        s.conflict("rate", &["in_flight_max"], text);
    }
}

/// Checks the headers by which each route limits requests; the configuration was read from `s`.
pub(super) fn check(config: &Config, s: &mut Section<'_>) {
    for (index, route) in config.routes.iter().enumerate() {
        let Some(limits) = &route.limits else { continue };
        let tenants = config.tenants.as_ref().map(|tenants| &*tenants.header);
        if limits.per_tenant.is_some() && tenants.is_none() {
            let text = "no header names the tenant: expected the section tenants, with its header";
            s.conflict(&format!("routes[{index}].limits.per_tenant"), &["tenants"], text);
        }
        let client = limits.per_client.as_ref().and_then(|each| each.header.as_deref());
        let tenant = tenants.filter(|_| limits.per_tenant.is_some());
        for (key, header) in [("per_client.header", client), ("per_tenant", tenant)] {
            if let Some(header) = header
                && route.changes.request_headers.changes(header)
            {
                let text = format!(
                    "limits requests by {header} as clients send it, but request_headers changes it for the replicas: expected a header that stays"
                );
                let changes = format!("routes[{index}].request_headers");
                let others = [&*changes, "tenants"];
                s.conflict(&format!("routes[{index}].limits.{key}"), &others, text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ClientLimit, RouteLimitsConfig, TenantLimit};
    use crate::Config;
    use curtail_policy::{RateLimit, RequestLimit};

    fn read(limits: &str, top: &str) -> Result<Option<RouteLimitsConfig>, String> {
        let yaml = format!(
            "listeners: [{{address: \"127.0.0.1:0\"}}]\nroutes: [{{upstream: a{limits}}}]\n\
             upstreams: {{a: {{replicas: [\"http://127.0.0.1:1\"]}}}}\n{top}\n"
        );
        let config = Config::from_yaml("f", &yaml).map_err(|errors| errors.to_string())?;
        Ok(config.routes[0].limits.clone())
    }

    #[test]
    fn the_burst_is_the_requests_of_a_second_unless_it_is_set() {
        let rate = |rate, burst| RequestLimit {
            rate: Some(RateLimit::new(rate, burst)),
            in_flight_max: None,
        };
        let route = |route| Ok(Some(RouteLimitsConfig { route, ..RouteLimitsConfig::default() }));
        assert_eq!(read("", ""), Ok(None));
        assert_eq!(read(", limits: {rate: 100}", ""), route(rate(100.0, 100)));
        assert_eq!(read(", limits: {rate: 2.5}", ""), route(rate(2.5, 3)));
        assert_eq!(read(", limits: {rate: 0.1}", ""), route(rate(0.1, 1)));
        assert_eq!(read(", limits: {rate: 100, burst: 7}", ""), route(rate(100.0, 7)));
        let in_flight = RequestLimit { in_flight_max: Some(9), rate: None };
        assert_eq!(read(", limits: {in_flight_max: 9}", ""), route(in_flight));
        let all = RouteLimitsConfig {
            route: RequestLimit::default(),
            per_client: Some(ClientLimit {
                header: Some("x-api-key".to_owned()),
                limit: rate(5.0, 5),
                max: 10_000,
            }),
            per_tenant: Some(TenantLimit { limit: in_flight, max: 16 }),
        };
        let keys = ", limits: {per_client: {header: X-Api-Key, rate: 5}, per_tenant: {in_flight_max: 9, max: 16}}";
        assert_eq!(read(keys, "tenants: {header: x-tenant}"), Ok(Some(all)));
    }

    #[test]
    fn a_limit_that_limits_nothing_is_an_error() {
        for (keys, expected) in [
            ("limits: {}", "routes[0].limits.rate: there is no limit"),
            ("limits: {per_client: {}}", "routes[0].limits.per_client.rate: there is no limit"),
            ("limits: {rate: 0}", "routes[0].limits.rate: 0 is out of range"),
            ("limits: {rate: 1, burst: 0}", "routes[0].limits.burst: 0 is out of range"),
            ("limits: {in_flight_max: 1, burst: 5}", "routes[0].limits.burst: has no effect"),
            ("limits: {in_flight_max: 0}", "routes[0].limits.in_flight_max: 0 is out of range"),
            (
                "limits: {per_client: {rate: 1, header: \"a b\"}}",
                "routes[0].limits.per_client.header: expected the name of a header",
            ),
            (
                "limits: {per_tenant: {rate: 1}}",
                "routes[0].limits.per_tenant: no header names the tenant",
            ),
            (
                "request_headers: {remove: [X-Key]}, limits: {per_client: {rate: 1, header: x-key}}",
                "routes[0].limits.per_client.header: limits requests by x-key as clients send it",
            ),
        ] {
            let errors = read(&format!(", {keys}"), "").expect_err(keys);
            assert!(errors.contains(expected) && errors.lines().count() == 1, "{keys}: {errors}");
        }
    }
}

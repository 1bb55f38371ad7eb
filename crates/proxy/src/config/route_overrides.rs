//! The keys of a route that override its upstream and `limits`: retries, the idle timeout of streams, gRPC deadlines.

use crate::config::RouteConfig;
use curtail_config::Section;
use curtail_config::policy::EXTRA_ATTEMPTS_MAX;
use curtail_units::Duration;
use http::StatusCode;

/// The settings of a route that override its upstream and `limits`, except its timeout.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouteOverrides {
    /// The maximum number of retries, if it is less than that of the upstream.
    pub retries_max: Option<u8>,
    /// The statuses that count as failed attempts; absent: 502, 503 and 504.
    pub failed_statuses: Option<Vec<StatusCode>>,
    /// The maximum time without a byte in either direction on a stream; absent: that in `limits`.
    pub stream_idle_timeout: Option<Duration>,
    /// Whether the `grpc-timeout` of a request is its deadline.
    pub grpc_timeout: bool,
}

/// The statuses that count as failed attempts without a key: another replica may be able to serve the request.
pub(crate) const FAILED_STATUSES: [StatusCode; 3] =
    [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT];

/// Reads the keys of the section of a route.
pub(super) fn read(s: &mut Section<'_>) -> RouteOverrides {
    let retry = s.optional_section(
        "retry",
        "Overrides of the `retry` of the upstream, for these requests.",
        retry,
    );
    let (retries_max, failed_statuses) = retry.unwrap_or_default();
    RouteOverrides {
        retries_max,
        failed_statuses,
        stream_idle_timeout: s
            .field("stream_idle_timeout", "Maximum time without a byte in either direction on a response or an upgraded connection; absent: `limits.stream_idle_timeout`.")
            .at_least(Duration::from_ms(1))
            .optional(),
        grpc_timeout: s
            .field("grpc_timeout", "Whether the `grpc-timeout` of a gRPC request is its deadline until its response begins, if it is less than `timeout`. The client then gets the status DEADLINE_EXCEEDED.")
            .default(false),
    }
}

/// Checks the overrides of a route, which was read from `s`.
pub(super) fn check(route: &RouteConfig, s: &mut Section<'_>) {
    if route.fan_out.is_none() {
        return;
    }
    if route.overrides.grpc_timeout {
        let text = "gRPC calls do not fan out: expected a route without `fan_out`";
        s.conflict("grpc_timeout", &["fan_out"], text);
    }
    if route.overrides.stream_idle_timeout.is_some() {
        let text = "responses of a fan-out are not streamed: expected a route without `fan_out`";
        s.conflict("stream_idle_timeout", &["fan_out"], text);
    }
}

fn retry(s: &mut Section<'_>) -> (Option<u8>, Option<Vec<StatusCode>>) {
    let retries_max = s
        .field("retries_max", "Maximum number of retries of one request; 0: none, also none after a refused connection and none beside an overdue attempt. It can only lower the maximum of the upstream, which applies if this key is absent.")
        .range(0..=EXTRA_ATTEMPTS_MAX)
        .optional();
    let statuses: Option<Vec<u16>> = s.optional_values(
        "statuses",
        "Statuses of responses that count as failed attempts: the proxy retries them, and they count for the ejection of the replica. Absent: 502, 503 and 504.",
    );
    let statuses = statuses.map(|statuses| {
        let check = |(index, status): (usize, &u16)| {
            if !(400..=599).contains(status) {
                let text = format!("{status} is not an error status: expected 400 to 599");
                s.value_error(&format!("statuses[{index}]"), text);
            }
            StatusCode::from_u16(*status).ok()
        };
        statuses.iter().enumerate().filter_map(check).collect()
    });
    (retries_max, statuses)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn values_without_an_effect_are_errors() {
        let errors = |keys: &str| {
            let text = format!(
                "listeners: [{{address: \"127.0.0.1:0\"}}]\nupstreams: {{s: {{replicas: [\"http://a\"]}}}}\n\
                 routes: [{{upstream: s, {keys}}}]\n"
            );
            let errors = Config::from_yaml("f", &text).err().map(|errors| errors.to_string());
            errors.unwrap_or_default()
        };
        for (keys, expected) in [
            ("retry: {statuses: [500, 429], retries_max: 0}, grpc_timeout: true", ""),
            (
                "retry: {statuses: [503, 200]}",
                "retry.statuses[1]: 200 is not an error status: expected 400 to 599",
            ),
            (
                "retry: {statuses: [0]}",
                "retry.statuses[0]: 0 is not an error status: expected 400 to 599",
            ),
            (
                "retry: {statuses: 503}",
                "retry.statuses: 503 is a number: expected a list, each a whole number from 0 to 65535",
            ),
            (
                "stream_idle_timeout: 0ms",
                "stream_idle_timeout: 0ms is out of range: expected a duration of at least 1ms",
            ),
            (
                "retry: {retries_max: 8}",
                "retry.retries_max: 8 is out of range: expected a whole number from 0 to 7",
            ),
            (
                "stream_idle_timeout: 1s, fan_out: {}",
                "stream_idle_timeout: responses of a fan-out are not streamed: expected a route without `fan_out`",
            ),
            (
                "grpc_timeout: true, fan_out: {}",
                "grpc_timeout: gRPC calls do not fan out: expected a route without `fan_out`",
            ),
        ] {
            let all = errors(keys);
            let text = all.split_once("routes[0].").map_or("", |(_, text)| text);
            assert_eq!(text, expected, "{keys}: {all}");
            assert_eq!(all.lines().count(), usize::from(!expected.is_empty()), "{all}");
        }
    }
}

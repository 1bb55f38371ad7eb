//! The keys of `health_check`: how the proxy asks a replica whether it can serve requests.

use crate::config::{ConnectConfig, Protocol};
use curtail_config::Section;
use curtail_units::Duration;

/// The health checks of an upstream's replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheckConfig {
    /// The request of a check.
    pub kind: HealthCheckKind,
    /// Time between two checks of a replica.
    pub interval: Duration,
    /// Time after which a check without a response fails.
    pub timeout: Duration,
    /// Number of failed checks in a row after which a replica is unhealthy.
    pub unhealthy_after: u32,
    /// Number of passed checks in a row after which a replica is healthy again.
    pub healthy_after: u32,
}

/// The request of a health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HealthCheckKind {
    /// A GET of `path`; a status from 200 to 399 passes.
    Http {
        /// The path, with its query if it has one.
        path: String,
        /// The `Host` of the request; absent: that of the replica.
        host: Option<String>,
    },
    /// `grpc.health.v1.Health/Check`; `SERVING` passes.
    Grpc {
        /// The service; empty: the server as a whole.
        service: String,
    },
    /// A connection, including its TLS handshake.
    Tcp,
}

pub(super) fn read(s: &mut Section<'_>) -> HealthCheckConfig {
    let http: Option<String> = s
        .field("http", "Path for GET requests, such as /healthz. A check passes with a status from 200 to 399.")
        .optional();
    let host: Option<String> =
        s.field("host", "Host of these requests; absent: the address of the replica.").optional();
    let grpc: Option<String> = s
        .field("grpc", "Service for requests of the gRPC health protocol; \"\" is the server as a whole. A check passes with SERVING.")
        .optional();
    let tcp = s
        .field(
            "tcp",
            "Whether a check passes as soon as a connection is open, including its TLS handshake.",
        )
        .default(false);
    if host.is_some() && http.is_none() {
        s.conflict("host", &["http"], "needs the key http, whose requests have it");
    }
    if let Some(host) = host.as_deref().filter(|host| host.parse::<http::uri::Authority>().is_err())
    {
        let text = "expected a name or an address, such as search.example.org";
        s.value_error("host", format!("{host:?} is not a host: {text}"));
    }
    let is_path =
        |path: &str| path.starts_with('/') && path.parse::<http::uri::PathAndQuery>().is_ok();
    if let Some(path) = http.as_deref().filter(|path| !is_path(path)) {
        s.value_error("http", format!("{path:?} is not a path: expected a path such as /healthz"));
    }
    let kind = match (http, grpc, tcp) {
        (Some(path), None, false) => HealthCheckKind::Http { path, host },
        (None, Some(service), false) => HealthCheckKind::Grpc { service },
        (None, None, true) => HealthCheckKind::Tcp,
        (None, None, false) => {
            let text = "a check needs a request: expected http, grpc or tcp: true";
            s.conflict("http", &["grpc", "tcp"], text);
            HealthCheckKind::Tcp
        }
        _ => {
            let text = "a check has one request: expected only one of http, grpc and tcp: true";
            s.conflict("http", &["grpc", "tcp"], text);
            HealthCheckKind::Tcp
        }
    };
    HealthCheckConfig {
        kind,
        interval: s
            .field("interval", "Time between two checks of a replica. The proxy varies it by up to 10 %.")
            .range(Duration::from_ms(100)..=Duration::from_secs(3_600))
            .default(Duration::from_secs(5)),
        timeout: s
            .field("timeout", "Time after which a check without a response fails.")
            .range(Duration::from_ms(10)..=Duration::from_secs(60))
            .default(Duration::from_secs(2)),
        unhealthy_after: s
            .field("unhealthy_after", "Number of failed checks in a row after which a replica gets no more requests.")
            .range(1..=100)
            .default(3),
        healthy_after: s
            .field("healthy_after", "Number of passed checks in a row after which an unhealthy replica gets requests again.")
            .range(1..=100)
            .default(2),
    }
}

/// Reports a kind of checks that the protocol of the connections does not allow.
pub(super) fn check(
    s: &mut Section<'_>,
    config: &HealthCheckConfig,
    connect: &ConnectConfig,
    has_tls: bool,
) {
    let is_http2 = match connect.protocol {
        Protocol::Http2 => true,
        Protocol::Auto => has_tls,
        Protocol::Http1 => false,
    };
    if matches!(config.kind, HealthCheckKind::Grpc { .. }) && !is_http2 {
        let text = "gRPC needs HTTP/2: expected connect.protocol: http2";
        let others = ["replicas", "discovery", "connect.protocol"];
        s.conflict("health_check.grpc", &others, text);
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    /// The errors of an upstream with these keys.
    fn errors(replica: &str, keys: &str) -> String {
        let text = format!(
            "listeners: [{{address: \"127.0.0.1:0\"}}]\nroutes: [{{upstream: a}}]\n\
             upstreams: {{a: {{replicas: [\"{replica}\"], {keys}}}}}\n"
        );
        Config::from_yaml("f", &text).err().map(|errors| errors.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_check_has_one_request_that_its_connections_can_carry() {
        let (http, https) = ("http://127.0.0.1:80", "https://localhost");
        for (replica, keys) in [
            (http, "health_check: {http: \"/healthz?full\", host: search.test}"),
            (http, "health_check: {tcp: true}"),
            (http, "health_check: {grpc: \"\"}, connect: {protocol: http2}"),
            (https, "health_check: {grpc: shop.Search}"),
        ] {
            assert_eq!(errors(replica, keys), "", "{keys}");
        }
        for (replica, keys, says) in [
            (http, "health_check: {}", "a check needs a request"),
            (http, "health_check: {http: /a, tcp: true}", "only one of http, grpc and tcp: true"),
            (http, "health_check: {http: healthz}", "expected a path such as /healthz"),
            (http, "health_check: {http: \"/a b\"}", "expected a path such as /healthz"),
            (http, "health_check: {http: /a, host: \"a b\"}", "is not a host"),
            (http, "health_check: {tcp: true, host: a}", "needs the key http"),
            (http, "health_check: {grpc: a}", "expected connect.protocol: http2"),
            (https, "health_check: {grpc: a}, connect: {protocol: http1}", "gRPC needs HTTP/2"),
        ] {
            let errors = errors(replica, keys);
            assert!(errors.contains(says), "{keys}: {errors}");
        }
    }
}

//! A complete configuration file: each key with its meaning and its default.
//!
//! A line that begins with `# ` is prose; `#key: value` is a key that is absent by default. A key without a default has
//! an example ([`example`]), so the file is valid, and works if a user replaces the addresses.
//! **Limits**: the file has one listener, one route and one upstream. It has one leaf (the queue in front of a server),
//! which is commented out.

use super::ConfigKind;
use curtail_config::{Key, Presence};

#[cfg(test)]
mod tests;

/// Sections that are absent by default, but needed: a proxy does nothing without the first three sections, and has no
/// metrics without `admin`. Its route needs an upstream.
const NEEDED: [&str; 5] = ["listeners", "routes", "upstreams", "admin", "upstream"];

const NAME: &str = "service";

/// The lines of the head about these sections.
const HEAD_OF_NEEDED: &str = "\
# Keep the sections listeners, routes, upstreams and admin: without them, there is no port for clients, and no admin
# port with metrics and state.
";

fn head(kind: ConfigKind) -> String {
    let (of, check, but) = match kind {
        ConfigKind::Proxy => ("proxy", "check", HEAD_OF_NEEDED),
        ConfigKind::Server => ("server", "--kind server check", ""),
    };
    format!(
        "\
# The configuration of a Curtail {of}: every key, with its default.
#
# A line with '# ' explains the key below. '#key: value' is a key that is absent by default, with an example:
# take the # away and it is in effect. What you do not want to change can be left out.
{but}# Check the file with: curtail config {check} FILE
"
    )
}

/// Returns an example value of a key without a default.
fn example(path: &str) -> Option<&'static str> {
    Some(match path {
        "workers" | "api.query_threads" => "4",
        "listeners[].address" => "127.0.0.1:7300",
        "listeners[].mode" => "\"0660\"",
        "listeners[].proxy_protocol.from" => "[10.0.0.0/24]",
        path if path.ends_with(".in_flight_max") => "500",
        "zone" => "eu-1a",
        "upstreams.<name>.replicas" => "[\"http://127.0.0.1:8080\", \"http://127.0.0.1:8081\"]",
        "upstreams.<name>.discovery.dns" => "http://search.default.svc:8080",
        "upstreams.<name>.discovery.srv" => "http://_http._tcp.search.default.svc",
        "upstreams.<name>.discovery.kubernetes.service" => "search",
        "upstreams.<name>.discovery.kubernetes.namespace" => "shop",
        "upstreams.<name>.discovery.kubernetes.port" => "http",
        "upstreams.<name>.discovery.kubernetes.server" => "https://10.0.0.1:6443",
        "upstreams.<name>.discovery.eds.server" => "http://127.0.0.1:18000",
        "upstreams.<name>.discovery.eds.cluster" => "search",
        "upstreams.<name>.discovery.file.path" => "/etc/curtail/search.json",
        "upstreams.<name>.discovery.http.url" => "http://127.0.0.1:8500/targets",
        "upstreams.<name>.discovery.tls_server_name" => "search.example.org",
        "upstreams.<name>.discovery.stale_max" => "2h",
        "upstreams.<name>.discovery.empty_max" => "10s",
        "upstreams.<name>.health_check.http" => "/healthz",
        "upstreams.<name>.health_check.host" => "search.example.org",
        "upstreams.<name>.health_check.grpc" => "shop.Search",
        "upstreams.<name>.connect.proxy_protocol" => "v2",
        "upstreams.<name>.slow_start" => "30s",
        "upstreams.<name>.group" => "shards",
        "upstreams.<name>.tie.delay" => "1ms",
        "leaves[].address" => "127.0.0.1:7310",
        "leaves[].server" => "http://127.0.0.1:8080",
        "data" => "curtail-data",
        "tables" => "s3://bucket/prefix",
        "otlp.addresses" => "[\"127.0.0.1:4317\", \"127.0.0.1:4318\"]",
        "otlp.tokens_file" | "api.tokens_file" => "/etc/curtail/tokens",
        "retention.size" => "500GiB",
        "tail.after_days" => "7",
        "log" => "info,curtail_store=debug",
        "spans.endpoint" => "http://127.0.0.1:4318",
        "spans.ca_file" => "/etc/curtail/authority.pem",
        "spans.token_file" => "/etc/curtail/token",
        "spans.tenant" => "shop",
        "tenants.header" => "x-tenant",
        "access_log.file" => "/var/log/curtail/access.log",
        "access_log.sample" => "1",
        "access_log.slower_than" => "100ms",
        "limits.stream_idle_timeout" => "1h",
        "restart.socket" => "/run/curtail/restart.sock",
        path if path.ends_with(".certificate_file") => "/etc/curtail/certificate.pem",
        path if path.ends_with(".key_file") => "/etc/curtail/key.pem",
        path if path.ends_with(".tls.client_ca_file") => "/etc/curtail/authority.pem",
        path if path.ends_with(".holdout") => "0.01",
        path if path.ends_with(".switchback") => "0.1",
        path if path.ends_with(".connect.waiting_max") => "64",
        path if path.ends_with(".connect.ca_file") => "/etc/curtail/authority.pem",
        path if path.contains(".discovery.") && path.ends_with(".ca_file") => {
            "/etc/curtail/authority.pem"
        }
        path if path.contains(".discovery.") && path.ends_with(".token_file") => {
            "/etc/curtail/token"
        }
        path => return route_example(path),
    })
}

/// Returns an example value of a key of a route.
fn route_example(path: &str) -> Option<&'static str> {
    Some(match path {
        "routes[].host" => "www.example.org",
        "routes[].upstream" => NAME,
        "routes[].timeout" => "2s",
        "routes[].request_headers.set" => "{x-client: \"{client}\"}",
        "routes[].request_headers.add" => "{x-gateway: shop}",
        "routes[].request_headers.remove" => "[x-debug]",
        "routes[].response_headers.set" => "{strict-transport-security: max-age=31536000}",
        "routes[].response_headers.add" => "{vary: accept-encoding}",
        "routes[].response_headers.remove" => "[server]",
        "routes[].retry.retries_max" => "1",
        "routes[].retry.statuses" => "[502, 503, 504]",
        "routes[].stream_idle_timeout" => "10m",
        "routes[].rewrite_prefix" => "/v2",
        "routes[].redirect.scheme" => "https",
        "routes[].redirect.host" => "www.example.org",
        "routes[].redirect.prefix" => "/new",
        "routes[].limits.per_client.header" => "x-api-key",
        path if path.starts_with("routes[].limits.") && path.ends_with(".rate") => "100",
        path if path.starts_with("routes[].limits.") && path.ends_with(".burst") => "200",
        "routes[].fan_out.needed" => "1",
        "routes[].fan_out.deadline" => "500ms",
        _ => return None,
    })
}

pub(super) fn yaml(kind: ConfigKind, keys: &[Key]) -> String {
    let mut root = Node::default();
    for key in keys {
        root.add(key);
    }
    let mut text = head(kind);
    for node in &root.inner {
        text.push('\n');
        node.write(
            &mut text,
            KeyPosition { outer: None, indent: 0, is_item: false, is_absent: false },
        );
    }
    text
}

/// One name of a path and the nodes below: keys, `<name>`, or `[]`.
#[derive(Debug, Default)]
struct Node<'k> {
    name: &'k str,
    /// [`None`] for `<name>` and `[]`.
    key: Option<&'k Key>,
    inner: Vec<Self>,
}

/// The position of a node in the file.
#[derive(Clone, Copy, Debug)]
struct KeyPosition<'k> {
    /// The enclosing section.
    outer: Option<&'k Key>,
    indent: usize,
    /// Whether the node is the first key of a list item.
    is_item: bool,
    /// Whether the enclosing section is absent by default.
    is_absent: bool,
}

impl<'k> Node<'k> {
    fn add(&mut self, key: &'k Key) {
        let mut node = self;
        for part in key.path.split('.') {
            match part.strip_suffix("[]") {
                Some(list) => node = node.inner(list).inner("[]"),
                None => node = node.inner(part),
            }
        }
        node.key = Some(key);
    }

    fn inner(&mut self, name: &'k str) -> &mut Self {
        let place = self.inner.iter().position(|node| node.name == name).unwrap_or_else(|| {
            self.inner.push(Self { name, ..Self::default() });
            self.inner.len() - 1
        });
        &mut self.inner[place]
    }

    fn write(&self, text: &mut String, position: KeyPosition<'k>) {
        let Some(key) = self.key else { return };
        let margin = " ".repeat(position.indent);
        for prose in prose(key) {
            *text += &format!("{margin}# {prose}\n");
        }
        let is_absent = position.is_absent || self.is_absent_by_default(key);
        let mark = if is_absent { "#" } else { "" };
        let lead = match position.is_item {
            true => format!("{}{mark}- ", " ".repeat(position.indent - 2)),
            false => format!("{margin}{mark}"),
        };
        let inside = KeyPosition {
            outer: Some(key),
            indent: position.indent + 2,
            is_item: false,
            is_absent,
        };
        match self.inner.as_slice() {
            [] => *text += &format!("{lead}{}: {}\n", self.name, value(key, position.outer)),
            [item] if item.name == "[]" => {
                *text += &format!("{lead}{}:\n", self.name);
                item.write_inner(
                    text,
                    KeyPosition { indent: inside.indent + 2, is_item: true, ..inside },
                );
            }
            [named] if named.name == "<name>" => {
                *text += &format!("{lead}{}:\n{margin}  {mark}{NAME}:\n", self.name);
                named.write_inner(text, KeyPosition { indent: inside.indent + 2, ..inside });
            }
            _ => {
                *text += &format!("{lead}{}:\n", self.name);
                self.write_inner(text, inside);
            }
        }
    }

    fn write_inner(&self, text: &mut String, first: KeyPosition<'k>) {
        let mut nodes: Vec<&Self> = self.inner.iter().collect();
        if first.is_item {
            // An item begins with its dash, which must not be commented out.
            nodes.sort_by_key(|node| node.key.is_some_and(|key| node.is_absent_by_default(key)));
        }
        for (nth, node) in nodes.into_iter().enumerate() {
            node.write(text, KeyPosition { is_item: first.is_item && nth == 0, ..first });
        }
    }

    fn is_absent_by_default(&self, key: &Key) -> bool {
        let has_items = self.inner.iter().any(|node| node.key.is_none());
        // The keys of a case are shown for users who choose it; another key selects the case.
        let is_of_a_case = key.case.is_some();
        let is_optional = has_items || key.presence == Presence::Optional;
        is_of_a_case || is_optional && !NEEDED.contains(&self.name)
    }
}

/// The comment above a key.
fn prose(key: &Key) -> Vec<String> {
    let mut prose = vec![key.doc.to_owned()];
    prose.extend(key.words.iter().map(|(word, doc)| format!("  {word}: {doc}")));
    prose.extend(key.case.as_ref().map(|case| format!("Only with {case}.")));
    prose
}

/// Returns the default of a key, or an example if the key has no default.
fn value(key: &Key, outer: Option<&Key>) -> String {
    if let Some(example) = example(&key.path) {
        return example.to_owned();
    }
    // Whether a technique is on is the default of its whole section.
    let decides = if key.path.ends_with(".enabled") { outer.unwrap_or(key) } else { key };
    match &decides.presence {
        Presence::Default(value) => value.clone(),
        Presence::Required | Presence::Optional => format!("# {}", key.expected),
    }
}

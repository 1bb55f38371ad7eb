//! Replicas as values of the configuration: an address, a name that outlives the address, a weight and a
//! zone.

use curtail_config::{Scalar, ScalarError, Value, displayed_value, port_defect};
use curtail_http::origin::ServerOrigin;
use curtail_policy::Weight;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

/// The address of a replica, as a value of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplicaUrl(ServerOrigin);

impl ReplicaUrl {
    /// Parses `http://host[:port]`, `https://host[:port]` or `http://unix:/path`, with no path of HTTP.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        ServerOrigin::parse_with_unix(text).map(Self)
    }

    pub(crate) const fn of(origin: ServerOrigin) -> Self {
        Self(origin)
    }

    /// The same scheme and port at another host.
    pub(crate) fn with_host(&self, host: &str) -> Self {
        Self(ServerOrigin { host: host.to_owned(), ..self.0.clone() })
    }
}

impl Deref for ReplicaUrl {
    type Target = ServerOrigin;

    fn deref(&self) -> &ServerOrigin {
        &self.0
    }
}

impl std::fmt::Display for ReplicaUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::str::FromStr for ReplicaUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| {
            if let Some(ReplicaConfig { url, .. }) = ReplicaConfig::parse(text) {
                return format!("names, weights and zones need a file (--config): expected {url}");
            }
            let defect = url_defect(text).unwrap_or_else(|| "is not valid".to_owned());
            let (noun, detail) = (<Self as Value>::NOUN, <Self as Value>::DETAIL);
            format!("{text:?} {defect}: expected {noun} {detail}")
        })
    }
}

displayed_value!(
    ReplicaUrl,
    "the address of a server",
    "such as http://127.0.0.1:8080, without a path, or http://unix:/run/app.sock",
    |scalar: &Scalar| scalar.text().and_then(Self::parse).ok_or(ScalarError::Kind),
    Self(ServerOrigin { tls: false, host: "localhost".to_owned(), port: 80 }),
    { "type": "string", "pattern": "^(https?://[^/]+/?|http://unix:/.+)$" },
    url_defect
);

/// The defect of an address that [`ReplicaUrl::parse`] rejects.
fn url_defect(text: &str) -> Option<String> {
    let says = |defect: &str| Some(defect.to_owned());
    if ReplicaUrl::parse(text).is_some() {
        return None;
    }
    if text.contains(|char: char| char.is_whitespace() || char.is_control()) {
        return says("has a space");
    }
    let Some((scheme, rest)) = text.split_once("://") else { return says("has no scheme") };
    if !matches!(scheme, "http" | "https") {
        return Some(format!("has the scheme {scheme:?}, not http or https"));
    }
    if rest.starts_with("unix:") {
        let is_tls = scheme == "https";
        let defect = if is_tls {
            "has TLS over a Unix socket"
        } else if rest.starts_with("unix:/") && ServerOrigin::has_uri_behind_unix(rest) {
            "has a colon at the end of the path of the socket, behind which nginx expects a path of HTTP"
        } else {
            "has no absolute path"
        };
        return says(defect);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if !matches!(path, "" | "/") {
        return Some(format!("has a path, {path}"));
    }
    if authority.contains('@') {
        return says("has a user name");
    }
    // A colon after the brackets of an IPv6 address.
    let host_end = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let port = authority[host_end..].split_once(':');
    match port {
        Some((_, port)) if port.contains(':') => says("has an IPv6 address without brackets"),
        Some((host, _)) if host.is_empty() && host_end == 0 => says("has no host"),
        Some((_, port)) => port_defect(port),
        None if authority.is_empty() => says("has no host"),
        None => None,
    }
}

/// How many requests a replica gets, and from where. A change of it keeps the replica's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Placement {
    /// The requests of the replica, relative to the others.
    pub weight: Weight,
    /// Its zone, or the zones whose requests it is meant for; empty: unknown.
    pub zones: Arc<[String]>,
}

/// The zone of a replica, as the proxy sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZoneSide {
    Same,
    Other,
}

curtail_units::labels!(ZoneSide {
    Same => "same",
    Other => "other",
});

/// A replica of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaConfig {
    /// Its name, which identifies it across reloads; absent: its URL does.
    pub name: Option<String>,
    /// Its address. That of a discovered replica has the name that certificates are checked for.
    pub url: ReplicaUrl,
    /// The address of a discovered replica, which is its identity; absent: the host of the URL is looked up.
    pub address: Option<SocketAddr>,
    /// The requests that it gets.
    pub placement: Placement,
}

/// A longer name is an error: the journal writes it once for each start and each reload.
const NAME_LEN_MAX: usize = 64;

/// An error that says what is expected, unless this can be the name of a zone.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let expected = "expected 1 to 64 letters, digits, and -, _ and .";
    if is_name(name) { Ok(()) } else { Err(format!("{name:?} is not a name: {expected}")) }
}

/// Whether this can be the name of a replica or of a zone.
fn is_name(name: &str) -> bool {
    let is_in_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=NAME_LEN_MAX).contains(&name.len()) && name.bytes().all(is_in_name)
}

impl ReplicaConfig {
    /// The replica at `url`, without a name.
    #[must_use]
    pub fn unnamed(url: ReplicaUrl) -> Self {
        Self { name: None, url, address: None, placement: Placement::default() }
    }

    /// The replica that was discovered at `address`, whose certificate is checked for the host of `url`.
    #[must_use]
    pub const fn discovered(url: ReplicaUrl, address: SocketAddr, placement: Placement) -> Self {
        Self { name: None, url, address: Some(address), placement }
    }

    /// The identity of the replica across reloads and lookups.
    #[must_use]
    pub fn identity(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.server().to_string())
    }

    /// The server by address, if the replica was discovered, else as the file names it.
    #[must_use]
    pub fn server(&self) -> ReplicaUrl {
        match self.address {
            Some(address) => {
                ReplicaUrl(ServerOrigin { tls: self.url.tls, ..ServerOrigin::from(address) })
            }
            None => self.url.clone(),
        }
    }

    /// Whether both are reached in the same way.
    pub(crate) fn is_reached_as(&self, other: &Self) -> bool {
        let Self { name, url, address, placement: _ } = self;
        (name, url, address) == (&other.name, &other.url, &other.address)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let mut replica = Self::parse_server(words.next()?)?;
        for word in words {
            replica.placement.parse_option(word)?;
        }
        repeated_option(text).is_none().then_some(replica)
    }

    fn parse_server(text: &str) -> Option<Self> {
        let Some((name, url)) = text.split_once('=') else {
            return ReplicaUrl::parse(text).map(Self::unnamed);
        };
        let url = ReplicaUrl::parse(url).filter(|_| is_name(name))?;
        Some(Self { name: Some(name.to_owned()), ..Self::unnamed(url) })
    }
}

impl Placement {
    /// Takes one `key=value` behind an address.
    fn parse_option(&mut self, text: &str) -> Option<()> {
        let (key, value) = text.split_once('=')?;
        match key {
            "weight" => self.weight = parse_weight(value)?,
            "zone" if is_name(value) => self.zones = [value.to_owned()].into(),
            _ => return None,
        }
        Some(())
    }

    /// Whether the replica is in the zone of a proxy; absent: one of both zones is unknown.
    pub(crate) fn side(&self, zone: Option<&str>) -> Option<ZoneSide> {
        let zone = zone.filter(|_| !self.zones.is_empty())?;
        let is_same = self.zones.iter().any(|one| one == zone);
        Some(if is_same { ZoneSide::Same } else { ZoneSide::Other })
    }
}

/// Parses digits with at most one point. Smaller numbers than the smallest weight are rejected instead of rounded.
pub(crate) fn parse_weight(text: &str) -> Option<Weight> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let value: f64 = text.parse().ok().filter(|_| is_decimal)?;
    Weight::new(value).filter(|weight| weight.is_zero() || value >= Weight::MIN.get())
}

/// The key of an option that stands behind an address twice.
fn repeated_option(text: &str) -> Option<&str> {
    let words = text.split_ascii_whitespace().skip(1);
    let keys: Vec<&str> =
        words.map(|word| word.split_once('=').map_or(word, |(key, _)| key)).collect();
    let is_repeated = |(index, key): &(usize, &&str)| keys[..*index].contains(key);
    keys.iter().enumerate().find(is_repeated).map(|(_, key)| *key)
}

impl std::fmt::Display for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.weight != Weight::ONE {
            write!(f, " weight={}", self.weight)?;
        }
        if !self.zones.is_empty() {
            write!(f, " zone={}", self.zones.join(","))?;
        }
        Ok(())
    }
}

impl std::fmt::Display for ReplicaConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(name) = &self.name {
            write!(f, "{name}=")?;
        }
        write!(f, "{}{}", self.server(), self.placement)
    }
}

displayed_value!(
    ReplicaConfig,
    "a replica",
    "such as http://127.0.0.1:8080, a=http://127.0.0.1:8080 or \"http://127.0.0.1:8080 weight=2 zone=a\", without a path, or http://unix:/run/app.sock",
    |scalar: &Scalar| scalar.text().and_then(Self::parse).ok_or(ScalarError::Kind),
    Self::unnamed(ReplicaUrl::placeholder()),
    { "type": "string", "pattern": "^([A-Za-z0-9_.-]+=)?(https?://[^/ ]+/?|http://unix:/[^ ]+)( +(weight=[0-9.]+|zone=[A-Za-z0-9_.-]+))*$" },
    replica_defect
);

/// The defect of a replica that [`ReplicaConfig::parse`] rejects.
fn replica_defect(text: &str) -> Option<String> {
    let mut words = text.split_ascii_whitespace();
    let Some(server) = words.next() else { return Some("is empty".to_owned()) };
    // The name has no colon, and the value of a query may have an equals sign.
    let (name, url) = match server.split_once('=').filter(|(name, _)| !name.contains(':')) {
        Some((name, url)) => (Some(name), url),
        None => (None, server),
    };
    if let Some(Err(error)) = name.map(check_name) {
        return Some(format!("has a wrong name: {error}"));
    }
    if let Some(defect) = url_defect(url) {
        return Some(defect);
    }
    let is_wrong = |word: &&str| Placement::default().parse_option(word).is_none();
    let Some(wrong) = words.find(is_wrong) else {
        return repeated_option(text).map(|key| format!("has {key}= twice"));
    };
    Some(match wrong.split_once('=') {
        Some(("weight", _)) => {
            let (min, max) = (Weight::MIN, Weight::MAX);
            format!("has {wrong}, not a weight: 0, or a number from {min} to {max}")
        }
        Some(("zone", _)) => format!("has {wrong}, not the name of a zone"),
        Some(_) | None => format!("has {wrong}, not an option weight=W or zone=Z"),
    })
}

#[cfg(test)]
mod tests {
    use super::{Placement, ReplicaConfig, ReplicaUrl, ZoneSide, replica_defect};

    #[test]
    fn options_follow_the_address() {
        for (text, shown) in [
            ("http://a:80", Some("http://a:80")),
            ("http://a:80 weight=1", Some("http://a:80")),
            ("b=http://a:80  weight=0", Some("b=http://a:80 weight=0")),
            ("http://a:80 weight=2.5", Some("http://a:80 weight=2.5")),
            ("http://a:80 weight=0.001", Some("http://a:80 weight=0.001")),
            ("http://a:80 weight=2 weight=3", None),
            ("http://a:80 zone=a weight=1 zone=a", None),
            ("http://a:80 weight=1e-320", None),
            ("http://a:80 weight=1e3", None),
            ("http://a:80 weight=0.0009", None),
            ("http://a:80 weight=.", None),
            ("http://unix:/a.sock:/x", None),
            ("http://a:80 zone=eu-1a weight=2", Some("http://a:80 weight=2 zone=eu-1a")),
            ("http://a:80 zone=", None),
            ("http://a:80 zone=a/b", None),
            ("http://a:80 weight=-1", None),
            ("http://a:80 weight=65536", None),
            ("http://a:80 weight=NaN", None),
            ("http://a:80 weight", None),
            ("http://a:80 height=2", None),
            ("weight=2 http://a:80", None),
            ("", None),
        ] {
            let parsed = ReplicaConfig::parse(text).map(|replica| replica.to_string());
            assert_eq!(parsed.as_deref(), shown, "{text}");
        }
    }

    #[test]
    fn an_error_says_what_is_wrong_with_the_address() {
        for (text, says) in [
            ("127.0.0.1:8081", "has no scheme"),
            ("localhost", "has no scheme"),
            ("a=127.0.0.1:8081", "has no scheme"),
            ("tcp://a:80", "has the scheme \"tcp\", not http or https"),
            ("http://a:80/v1", "has a path, /v1"),
            ("http://a:80?x=1", "has a path, ?x=1"),
            ("http://a:http", "has the port \"http\""),
            ("http://a:", "has the port \"\""),
            ("http://a:65536", "has the port 65536, which is above 65535"),
            ("http://::1:80", "has an IPv6 address without brackets"),
            ("http://:80", "has no host"),
            ("http://", "has no host"),
            ("http://me@a:80", "has a user name"),
            ("https://unix:/run/a.sock", "has TLS over a Unix socket"),
            ("http://unix:a.sock", "has no absolute path"),
            ("a/b=http://a:80", "has a wrong name: \"a/b\" is not a name"),
            (
                "http://a:80 weight=-1",
                "has weight=-1, not a weight: 0, or a number from 0.001 to 65535",
            ),
            ("http://a:80 weight=1e-320", "has weight=1e-320, not a weight: 0, or a number from"),
            ("http://a:80 weight=2 weight=3", "has weight= twice"),
            ("http://unix:/a.sock:/x", "has a colon at the end of the path of the socket"),
            ("http://unix:/a.sock:", "has a colon at the end of the path of the socket"),
            ("http://a:80 zone=", "has zone=, not the name of a zone"),
            ("http://a:80 wieght=2", "has wieght=2, not an option"),
            ("", "is empty"),
        ] {
            assert_eq!(ReplicaConfig::parse(text), None, "{text}");
            let defect = replica_defect(text).unwrap_or_default();
            assert!(defect.starts_with(says), "{text}: {defect}");
        }
        for text in ["http://a:80", "a=http://a zone=b", "http://unix:/run/a.sock", "https://[::1]"]
        {
            assert_eq!(replica_defect(text), None, "{text}");
        }
        let error = "http://a weight=2".parse::<ReplicaUrl>().expect_err("it has an option");
        assert_eq!(error, "names, weights and zones need a file (--config): expected http://a:80");
    }

    #[test]
    fn a_replica_is_near_if_one_of_its_zones_is_that_of_the_proxy() {
        let of = |zones: &[&str]| Placement {
            zones: zones.iter().map(ToString::to_string).collect(),
            ..Placement::default()
        };
        for (zones, own, side) in [
            (&["a"][..], Some("a"), Some(ZoneSide::Same)),
            (&["a"], Some("b"), Some(ZoneSide::Other)),
            (&["a", "b"], Some("b"), Some(ZoneSide::Same)),
            (&[], Some("b"), None),
            (&["a"], None, None),
        ] {
            assert_eq!(of(zones).side(own), side, "{zones:?} {own:?}");
        }
    }
}

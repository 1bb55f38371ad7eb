//! The keys of a listener.

use super::Network;
use curtail_config::{Section, ServerTls};
use std::net::{IpAddr, SocketAddr};

/// A port on which clients connect.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerConfig {
    /// Its name in metrics and messages.
    pub name: String,
    /// Its address.
    pub address: SocketAddr,
    /// The proxies whose connections begin with a PROXY header; absent: no connection does.
    pub proxy_protocol: Option<PrecedingProxies>,
    /// Certificate for TLS; absent: clear text.
    pub tls: Option<ServerTls>,
}

/// The proxies that may connect to a listener with the PROXY protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct PrecedingProxies(Vec<Network>);

impl PrecedingProxies {
    /// Whether a proxy at a canonical address may connect.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

pub(super) fn read(s: &mut Section<'_>) -> ListenerConfig {
    ListenerConfig {
        name: s.field("name", "Name in metrics and messages.").default("in".to_owned()),
        address: s.field("address", "Address to listen on.").required(),
        proxy_protocol: s.optional_section(
            "proxy_protocol",
            "PROXY protocol: each connection must begin with a header of version 1 or 2, which has the address of the client. Absent: no connection does.",
            proxy_protocol,
        ),
        tls: ServerTls::read(s),
    }
}

fn proxy_protocol(s: &mut Section<'_>) -> PrecedingProxies {
    let from: Vec<Network> = s.values(
        "from",
        "Addresses of the proxies that send the header. The listener closes connections from other addresses.",
    );
    if from.is_empty() {
        let text = "expected the addresses of the proxies that send the header, such as [10.0.0.0/8]: anybody else could claim any address";
        s.error("from", text);
    }
    PrecedingProxies(from)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn a_listener_with_the_proxy_protocol_names_the_proxies() {
        for (keys, says) in [
            ("proxy_protocol: {from: [10.0.0.0/8, \"::1\"]}", None),
            (
                "proxy_protocol: {}",
                Some("listeners[0].proxy_protocol.from: expected the addresses"),
            ),
            ("proxy_protocol: {from: []}", Some("anybody else could claim")),
            ("proxy_protocol: {from: [10.0.0.1/8]}", Some("a range of addresses")),
            ("proxy_protocol: true", Some("listeners[0].proxy_protocol")),
        ] {
            let text = format!(
                "listeners: [{{address: \"127.0.0.1:0\", {keys}}}]\nroutes: [{{upstream: a}}]\n\
                 upstreams: {{a: {{replicas: [\"http://127.0.0.1:80\"]}}}}\n"
            );
            let errors = Config::from_yaml("f", &text).err().map(|errors| errors.to_string());
            assert_eq!(errors.is_some(), says.is_some(), "{keys}: {errors:?}");
            let (errors, says) = (errors.unwrap_or_default(), says.unwrap_or_default());
            assert!(errors.contains(says), "{keys}: {errors}");
        }
    }
}

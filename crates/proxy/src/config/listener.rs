//! The keys of a listener.

use super::{ClientRange, ListenAddress};
use curtail_config::{Scalar, ScalarError, Section, ServerTls, displayed_value};
use std::net::IpAddr;

/// The name of a listener without one.
pub(super) const NAME_DEFAULT: &str = "in";

/// An address on which clients connect.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerConfig {
    /// Its name in metrics and messages.
    pub name: String,
    /// Its address.
    pub address: ListenAddress,
    /// The mode of the file of a Unix socket; absent: by the umask of the process.
    pub mode: Option<FileMode>,
    /// The proxies whose connections begin with a PROXY header; absent: no connection does.
    pub proxy_protocol: Option<PrecedingProxies>,
    /// Certificate for TLS; absent: clear text.
    pub tls: Option<ServerTls>,
}

/// The proxies that may connect to a listener with the PROXY protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct PrecedingProxies(Vec<ClientRange>);

impl PrecedingProxies {
    /// The clients that are such proxies.
    #[must_use]
    pub fn ranges(&self) -> &[ClientRange] {
        &self.0
    }

    /// Whether a proxy at a canonical address, or on a Unix socket, may connect.
    pub(crate) fn contain(&self, address: Option<IpAddr>) -> bool {
        self.0.iter().any(|range| range.contains(address))
    }
}

/// The mode of a file, in octal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(pub u32);

impl FileMode {
    fn read(scalar: &Scalar) -> Result<Self, ScalarError> {
        let digits = scalar.word();
        // A leading zero is the usual notation.
        let digits = if digits.len() == 4 { digits.strip_prefix('0') } else { Some(digits) };
        let is_octal = |digits: &&str| digits.len() == 3 && !digits.starts_with(['+', '-']);
        let mode = digits.filter(is_octal).and_then(|mode| u32::from_str_radix(mode, 8).ok());
        mode.map(Self).ok_or(ScalarError::Kind)
    }
}

impl std::fmt::Display for FileMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{:04o}\"", self.0)
    }
}

displayed_value!(
    FileMode,
    "the mode of a file",
    "such as \"0660\": three octal digits",
    Self::read,
    Self(0o600),
    { "type": "string", "pattern": "^0?[0-7]{3}$" }
);

pub(super) fn read(s: &mut Section<'_>) -> ListenerConfig {
    let listener = ListenerConfig {
        name: s.field("name", "Name in metrics and messages.").default(NAME_DEFAULT.to_owned()),
        address: s.field("address", "Address to listen on, or a Unix socket.").required(),
        mode: s
            .field("mode", "Mode of the file of a Unix socket: only users with permission to write can connect. Absent: by the umask of the process.")
            .optional(),
        proxy_protocol: s.optional_section(
            "proxy_protocol",
            "PROXY protocol: each connection must begin with a header of version 1 or 2, which has the address of the client. Absent: no connection does.",
            proxy_protocol,
        ),
        tls: ServerTls::read(s),
    };
    if listener.mode.is_some() && matches!(listener.address, ListenAddress::Tcp(_)) {
        let text =
            "only a Unix socket has a file: expected an address such as unix:/run/curtail.sock";
        s.conflict("mode", &["address"], text);
    }
    listener
}

fn proxy_protocol(s: &mut Section<'_>) -> PrecedingProxies {
    let from: Vec<ClientRange> = s.values(
        "from",
        "Addresses of the proxies that send the header, or `unix:`. The listener closes connections from other addresses.",
    );
    if from.is_empty() {
        let text = "expected the addresses of the proxies that send the header, such as [10.0.0.0/8]: anybody else could claim any address";
        s.value_error("from", text);
    }
    PrecedingProxies(from)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn the_keys_of_a_listener_fit_its_address() {
        for (keys, says) in [
            ("proxy_protocol: {from: [10.0.0.0/8, \"::1\"]}", None),
            (
                "proxy_protocol: {}",
                Some("listeners[0].proxy_protocol.from: expected the addresses"),
            ),
            ("proxy_protocol: {from: []}", Some("anybody else could claim")),
            ("proxy_protocol: {from: [10.0.0.1/8]}", Some("a range of addresses")),
            ("proxy_protocol: true", Some("listeners[0].proxy_protocol")),
            ("proxy_protocol: {from: [\"unix:\"]}", None),
            ("address: unix:/run/curtail.sock, mode: 0660", None),
            ("address: unix:/run/curtail.sock, mode: \"600\"", None),
            ("address: unix:/run/curtail.sock, mode: 888", Some("the mode of a file")),
            ("address: unix:/run/curtail.sock, mode: 4755", Some("the mode of a file")),
            ("mode: 0660", Some("listeners[0].mode: only a Unix socket has a file")),
            (
                "address: unix:curtail.sock",
                Some("unix:curtail.sock has no absolute path: expected"),
            ),
            ("address: /run/curtail.sock", Some("has no unix: before its path: expected")),
            ("address: \"127.0.0.1:65536\"", Some("has the port 65536, which is above 65535")),
        ] {
            let address = "address: \"127.0.0.1:0\", ";
            let address = if keys.starts_with("address") { "" } else { address };
            let text = format!(
                "listeners: [{{{address}{keys}}}]\nroutes: [{{upstream: a}}]\n\
                 upstreams: {{a: {{replicas: [\"http://127.0.0.1:80\"]}}}}\n"
            );
            let errors = Config::from_yaml("f", &text).err().map(|errors| errors.to_string());
            assert_eq!(errors.is_some(), says.is_some(), "{keys}: {errors:?}");
            let (errors, says) = (errors.unwrap_or_default(), says.unwrap_or_default());
            assert!(errors.contains(says), "{keys}: {errors}");
        }
    }
}

//! Ranges of IP addresses.

use curtail_config::{Scalar, ScalarError, Value};
use std::net::IpAddr;

/// A range of addresses in CIDR notation (RFC 4632), such as `10.0.0.0/8`; a single address is a range too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u32,
}

impl Network {
    /// Parses `address/bits` or `address`; the address bits after the prefix must be zero. A range of IPv4-mapped
    /// addresses (`::ffff:10.0.0.0/104`) becomes the range of these IPv4 addresses.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix_bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let is_number = |bits: &&str| bits.bytes().all(|byte| byte.is_ascii_digit());
        let prefix_bits = match prefix_bits {
            Some(bits) => Some(bits).filter(is_number)?.parse().ok()?,
            None => width(address),
        };
        let network = Self { address, prefix_bits };
        let is_whole = prefix_bits <= width(address) && network.prefix(address) == bits(address);
        is_whole.then(|| network.canonical())
    }

    fn canonical(self) -> Self {
        const MAPPED_BITS: u32 = 96;
        let address = self.address.to_canonical();
        let is_mapped = self.address.is_ipv6() && address.is_ipv4();
        if is_mapped && self.prefix_bits >= MAPPED_BITS {
            Self { address, prefix_bits: self.prefix_bits - MAPPED_BITS }
        } else {
            self
        }
    }

    /// Whether the range contains a canonical address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        width(address) == width(self.address) && self.prefix(address) == bits(self.address)
    }

    /// The bits of an address, with zeros after the prefix.
    fn prefix(&self, address: IpAddr) -> u128 {
        let rest = width(address) - self.prefix_bits;
        let kept = u128::MAX.checked_shl(rest).unwrap_or_default();
        bits(address) & kept
    }
}

const fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

impl Value for Network {
    const NOUN: &'static str = "a range of addresses";
    const DETAIL: &'static str = "such as 10.0.0.0/8, 192.0.2.7 or \"2001:db8::/32\" (quoted)";

    fn read(scalar: &Scalar) -> Result<Self, ScalarError> {
        scalar.text().and_then(Self::parse).ok_or(ScalarError::Kind)
    }

    fn write(&self) -> String {
        serde_json::Value::from(self.to_string()).to_string()
    }

    fn placeholder() -> Self {
        Self { address: [127, 0, 0, 1].into(), prefix_bits: 32 }
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": "string", "pattern": "^[0-9A-Fa-f.:]+(/[0-9]{1,3})?$" })
    }
}

/// Clients by their address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientRange {
    /// The clients of a range of addresses.
    Network(Network),
    /// The clients of Unix sockets, which have no address.
    Unix,
}

impl ClientRange {
    /// Whether the range has the clients of Unix sockets.
    #[must_use]
    pub const fn is_unix(&self) -> bool {
        matches!(self, Self::Unix)
    }

    /// Whether the range contains a client at a canonical address, or on a Unix socket.
    #[must_use]
    pub fn contains(&self, address: Option<IpAddr>) -> bool {
        match (self, address) {
            (Self::Network(network), Some(address)) => network.contains(address),
            (Self::Unix, None) => true,
            (Self::Network(_), None) | (Self::Unix, Some(_)) => false,
        }
    }
}

impl std::fmt::Display for ClientRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Unix => f.write_str("unix:"),
        }
    }
}

impl Value for ClientRange {
    const NOUN: &'static str = "a range of addresses";
    const DETAIL: &'static str = "such as 10.0.0.0/8, 192.0.2.7 or \"2001:db8::/32\" (quoted), or \"unix:\" for the clients of Unix sockets";

    fn read(scalar: &Scalar) -> Result<Self, ScalarError> {
        if scalar.text() == Some("unix:") {
            return Ok(Self::Unix);
        }
        Network::read(scalar).map(Self::Network)
    }

    fn write(&self) -> String {
        serde_json::Value::from(self.to_string()).to_string()
    }

    fn placeholder() -> Self {
        Self::Network(Network::placeholder())
    }

    fn schema() -> serde_json::Value {
        serde_json::json!({ "type": "string", "pattern": "^([0-9A-Fa-f.:]+(/[0-9]{1,3})?|unix:)$" })
    }
}

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn a_range_has_the_addresses_that_begin_like_it() {
        for (range, within, without) in [
            (
                "10.0.0.0/8",
                &["10.0.0.0", "10.255.255.255"][..],
                &["11.0.0.0", "9.255.255.255", "::"][..],
            ),
            ("192.0.2.7", &["192.0.2.7"], &["192.0.2.6", "::ffff:192.0.2.7"]),
            ("192.0.2.6/31", &["192.0.2.6", "192.0.2.7"], &["192.0.2.8"]),
            ("0.0.0.0/0", &["0.0.0.0", "255.255.255.255"], &["::"]),
            ("::/0", &["::", "ffff::"], &["0.0.0.0"]),
            ("2001:db8::/32", &["2001:db8:ffff::1"], &["2001:db9::"]),
            ("::1", &["::1"], &["::", "0.0.0.1"]),
            ("::ffff:10.0.0.0/104", &["10.0.0.0", "10.255.255.255"], &["11.0.0.0"]),
            ("::ffff:192.0.2.7", &["192.0.2.7"], &["192.0.2.6"]),
        ] {
            let network = Network::parse(range).expect(range);
            let contains = |address: &&str| network.contains(address.parse().expect("an address"));
            assert!(within.iter().all(contains), "{range}");
            assert!(!without.iter().any(contains), "{range}");
            assert_eq!(Network::parse(&network.to_string()), Some(network));
        }
    }

    #[test]
    fn an_invalid_range_is_rejected() {
        for text in [
            "",
            "/",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/+8",
            "10.0.0.0/08/8",
            "10.0.0.1/8",
            "10.0.0/8",
            "h",
            "::/129",
            "::1/64",
            "[::]/0",
            "10.0.0.0/4294967296",
        ] {
            assert_eq!(Network::parse(text), None, "{text:?}");
        }
    }
}

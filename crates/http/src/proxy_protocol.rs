//! The PROXY protocol, versions 1 and 2: a header before the first byte of a connection names the addresses of the client.
//!
//! **Source**: `doc/proxy-protocol.txt` in the repository of haproxy, sections 2.1 and 2.2.
//! **Limits**: a header has at most [`HEADER_BYTES_MAX`] bytes. TLVs are skipped, except a checksum, which is verified,
//! whatever the command and the family: it covers the whole header. After `LOCAL` and without a family, the rest of the header
//! is to be ignored, so incomplete TLVs there are no error.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

#[cfg(test)]
mod tests;

/// Maximum length of a header of version 2. Load balancers add TLVs; nginx has the same limit.
pub const HEADER_BYTES_MAX: usize = 4_096;

/// Maximum length of a header of version 1, with its CRLF.
const LINE_BYTES_MAX: usize = 107;
const LINE_BEGIN: &[u8] = b"PROXY ";
const UNKNOWN: &[u8] = b"UNKNOWN";

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// The length of the signature, version, command, family and length of version 2.
const FIXED_LEN: usize = 16;
/// The bytes of version and command.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
/// The bytes of family and transport.
const UNSPECIFIED: u8 = 0;
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;
/// The TLV of the checksum.
const CRC32C: u8 = 0x03;

/// The bytes that a read looks for at first: enough for both addresses, and usual TLVs.
const PEEKED: usize = 512;

/// The version of the headers that are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// The two ends of a connection from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionAddresses {
    /// The end of the client.
    pub client: SocketAddr,
    /// The end of the server, to which the client has connected.
    pub server: SocketAddr,
}

/// A complete header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Its length in bytes.
    pub len: usize,
    /// The connection of the client; absent: the sender speaks for itself, or the client has no address of TCP.
    pub addresses: Option<ConnectionAddresses>,
}

/// A connection that does not begin with a valid header.
#[derive(Debug, thiserror::Error)]
pub enum ProxyHeaderError {
    /// It begins with something else.
    #[error("no PROXY header: the first bytes are others")]
    Absent,
    /// The header breaks the specification.
    #[error("malformed PROXY header: {0}")]
    Malformed(&'static str),
    /// It ended before the header was complete.
    #[error("the connection ended within the PROXY header: {0}")]
    Incomplete(#[from] io::Error),
}

use ProxyHeaderError::Malformed;

/// Reads the header of a connection, and no byte after it.
///
/// # Errors
/// [`ProxyHeaderError`]; the connection is of no use then.
pub async fn read_header(
    stream: &mut TcpStream,
) -> Result<Option<ConnectionAddresses>, ProxyHeaderError> {
    let mut header = Vec::new();
    loop {
        // All earlier bytes were part of the header, and were read. A peek waits for others.
        let read = header.len();
        header.resize(read + PEEKED, 0);
        let peeked = stream.peek(&mut header[read..]).await?;
        if peeked == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        header.truncate(read + peeked);
        let parsed = parse(&header)?;
        let end = parsed.map_or(header.len(), |parsed| parsed.len);
        stream.read_exact(&mut header[read..end]).await?;
        if let Some(parsed) = parsed {
            return Ok(parsed.addresses);
        }
    }
}

/// Parses the first bytes of a connection; [`None`] if they may be the begin of a header.
///
/// # Errors
/// When no further bytes make these a valid header. An incomplete header has less than [`HEADER_BYTES_MAX`] bytes.
pub fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    let begins = |with: &[u8]| bytes.iter().zip(with).all(|(byte, wanted)| byte == wanted);
    if begins(LINE_BEGIN) {
        parse_line(bytes)
    } else if begins(SIGNATURE) {
        parse_block(bytes)
    } else {
        Err(ProxyHeaderError::Absent)
    }
}

/// Version 1.
fn parse_line(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    let line = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = line.windows(2).position(|two| two == b"\r\n") else {
        let is_too_long = bytes.len() >= LINE_BYTES_MAX;
        return if is_too_long { Err(Malformed("no CRLF within 107 bytes")) } else { Ok(None) };
    };
    let (rest, len) = (&line[LINE_BEGIN.len()..end], end + 2);
    if rest.strip_prefix(UNKNOWN).is_some_and(|rest| matches!(rest.first(), None | Some(b' '))) {
        return Ok(Some(ProxyHeader { len, addresses: None }));
    }
    let text = std::str::from_utf8(rest).unwrap_or_default();
    let words: Vec<&str> = text.split(' ').collect();
    let [family, client, server, client_port, server_port] = words[..] else {
        return Err(Malformed("expected a family, two addresses and two ports"));
    };
    let end = |address: &str, port| {
        let address: IpAddr = match family {
            "TCP4" => address.parse::<Ipv4Addr>().ok()?.into(),
            "TCP6" => address.parse::<Ipv6Addr>().ok()?.into(),
            _ => return None,
        };
        Some(SocketAddr::new(address.to_canonical(), parse_port(port)?))
    };
    let addresses = end(client, client_port).zip(end(server, server_port));
    let (client, server) = addresses.ok_or(Malformed("invalid family, address or port"))?;
    Ok(Some(ProxyHeader { len, addresses: Some(ConnectionAddresses { client, server }) }))
}

fn parse_port(text: &str) -> Option<u16> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    let has_leading_zero = text.len() > 1 && text.starts_with('0');
    text.parse().ok().filter(|_| is_decimal && !has_leading_zero)
}

/// Version 2.
fn parse_block(bytes: &[u8]) -> Result<Option<ProxyHeader>, ProxyHeaderError> {
    let Some(&[command, family, len_high, len_low]) = bytes.get(SIGNATURE.len()..FIXED_LEN) else {
        return Ok(None);
    };
    if !matches!(command, LOCAL | PROXY) {
        return Err(Malformed("unknown version or command"));
    }
    let len = FIXED_LEN + usize::from(u16::from_be_bytes([len_high, len_low]));
    if len > HEADER_BYTES_MAX {
        return Err(Malformed("longer than 4096 bytes"));
    }
    let Some(block) = bytes.get(..len) else { return Ok(None) };
    // The sender's own connection, such as a health check: its family and addresses are ignored.
    let is_local = command == LOCAL;
    if !is_local && (family >> 4 > 3 || family & 0xf > 2) {
        return Err(Malformed("unknown family or transport"));
    }
    let addresses_len = match family >> 4 {
        1 => 2 * (4 + 2),
        2 => 2 * (16 + 2),
        3 => 2 * 108,
        // No addresses, as HAProxy writes it.
        _ => 0,
    };
    let is_ignored = is_local || family >> 4 == 0;
    let (fields, tlvs) = match block[FIXED_LEN..].split_at_checked(addresses_len) {
        Some(rest) => rest,
        None if is_local => return Ok(Some(ProxyHeader { len, addresses: None })),
        None => return Err(Malformed("shorter than its addresses")),
    };
    let are_complete = check_checksum(block, tlvs)?;
    if !are_complete && !is_ignored {
        return Err(Malformed("an incomplete TLV"));
    }
    let addresses = match family {
        TCP4 if !is_local => addresses::<4>(fields),
        TCP6 if !is_local => addresses::<16>(fields),
        // Valid, but without an address of TCP.
        _ => None,
    };
    Ok(Some(ProxyHeader { len, addresses }))
}

/// Two addresses of `N` bytes, then two ports.
fn addresses<const N: usize>(fields: &[u8]) -> Option<ConnectionAddresses>
where
    IpAddr: From<[u8; N]>,
{
    let (client, rest) = fields.split_first_chunk::<N>()?;
    let (server, rest) = rest.split_first_chunk::<N>()?;
    let (client_port, server_port) = rest.split_first_chunk::<2>()?;
    let end = |address: [u8; N], port| {
        SocketAddr::new(IpAddr::from(address).to_canonical(), u16::from_be_bytes(port))
    };
    let server = end(*server, *server_port.first_chunk()?);
    Some(ConnectionAddresses { client: end(*client, *client_port), server })
}

/// Checks the checksum of a header if its TLVs have one; returns whether the last TLV is complete.
fn check_checksum(header: &[u8], mut tlvs: &[u8]) -> Result<bool, ProxyHeaderError> {
    let mut has_checksum = false;
    while let [kind, len_high, len_low, rest @ ..] = tlvs {
        let len = usize::from(u16::from_be_bytes([*len_high, *len_low]));
        let at = header.len() - rest.len();
        let Some((value, next)) = rest.split_at_checked(len) else { return Ok(false) };
        tlvs = next;
        if *kind != CRC32C {
            continue;
        }
        if std::mem::replace(&mut has_checksum, true) {
            return Err(Malformed("more than one checksum"));
        }
        // The checksum itself counts as zeros.
        let mut zeroed = header.to_vec();
        zeroed[at..at + len].fill(0);
        if value != crc32c(&zeroed).to_be_bytes() {
            return Err(Malformed("wrong checksum"));
        }
    }
    Ok(tlvs.is_empty())
}

/// The checksum of RFC 9260, appendix A.
fn crc32c(bytes: &[u8]) -> u32 {
    let shift = |crc: u32, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), shift))
}

impl ProxyProtocol {
    /// Returns the header of a connection for a client; its addresses are absent on a Unix socket.
    #[must_use]
    pub fn header(self, addresses: Option<ConnectionAddresses>) -> Vec<u8> {
        let Some(ConnectionAddresses { client, server }) = addresses else {
            return match self {
                Self::V1 => [LINE_BEGIN, UNKNOWN, b"\r\n"].concat(),
                // A receiver must accept LOCAL, but may reject PROXY without addresses, as HAProxy does.
                Self::V2 => block(LOCAL, UNSPECIFIED, &[]),
            };
        };
        let (from, to) = (client.ip().to_canonical(), server.ip().to_canonical());
        let ports = (client.port(), server.port());
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                self.write(("TCP4", TCP4), (from, to), ports, (&from.octets(), &to.octets()))
            }
            // Both ends have one family: one of IPv4 is written as one of IPv6.
            (from, to) => {
                let (from, to) = (to_ipv6(from), to_ipv6(to));
                self.write(("TCP6", TCP6), (from, to), ports, (&from.octets(), &to.octets()))
            }
        }
    }

    fn write(
        self,
        (name, family): (&str, u8),
        (from, to): (impl Display, impl Display),
        (from_port, to_port): (u16, u16),
        (from_octets, to_octets): (&[u8], &[u8]),
    ) -> Vec<u8> {
        match self {
            Self::V1 => format!("PROXY {name} {from} {to} {from_port} {to_port}\r\n").into_bytes(),
            Self::V2 => {
                let ports = [from_port.to_be_bytes(), to_port.to_be_bytes()].concat();
                block(PROXY, family, &[from_octets, to_octets, &ports].concat())
            }
        }
    }

    /// Returns the header of the proxy's own connection, such as a health check, with these ends; absent on a Unix socket.
    #[must_use]
    pub fn own_header(self, addresses: Option<ConnectionAddresses>) -> Vec<u8> {
        match self {
            // With the addresses if there are any: some servers reject UNKNOWN (section 2.1).
            Self::V1 => self.header(addresses),
            Self::V2 => block(LOCAL, UNSPECIFIED, &[]),
        }
    }
}

fn block(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
    let len = u16::try_from(addresses.len()).expect("two addresses are short");
    [&SIGNATURE[..], &[command, family], &len.to_be_bytes(), addresses].concat()
}

fn to_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

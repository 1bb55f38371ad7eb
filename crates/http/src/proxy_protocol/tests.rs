//! The examples of the specification, headers that break it, and headers in pieces.

use super::*;
use tokio::io::AsyncWriteExt;

fn addresses(client: &str, server: &str) -> ConnectionAddresses {
    let end = |text: &str| text.parse().expect(text);
    ConnectionAddresses { client: end(client), server: end(server) }
}

/// A header of version 2.
fn version2(command: u8, family: u8, rest: &[&[u8]]) -> Vec<u8> {
    block(command, family, &rest.concat())
}

const IPV4: &[u8] = &[192, 168, 0, 1, 192, 168, 0, 11, 0xdc, 0x04, 0x01, 0xbb];
const IPV6: &[u8] = b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\
    \x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x02\xdc\x04\x01\xbb";
/// A checksum that no header of these tests has.
const CHECKSUM: &[u8] = b"\x03\0\x04\xde\xad\xbe\xef";

/// A header with its checksum between the addresses and other TLVs.
fn checked(command: u8, family: u8, addresses: &[u8], tlvs: &[u8]) -> Vec<u8> {
    let mut header = version2(command, family, &[addresses, &[CRC32C, 0, 4, 0, 0, 0, 0], tlvs]);
    let checksum = crc32c(&header).to_be_bytes();
    header[FIXED_LEN + addresses.len() + 3..][..4].copy_from_slice(&checksum);
    header
}

fn valid() -> Vec<(Vec<u8>, Option<ConnectionAddresses>)> {
    let ipv4 = Some(addresses("192.168.0.1:56324", "192.168.0.11:443"));
    let ipv6 = Some(addresses("[2001:db8::1]:56324", "[2001:db8::2]:443"));
    let highest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    let highest_ipv6 = format!("TCP6 {highest} {highest} 65535 65535");
    let highest_end = format!("[{highest}]:65535");
    let line = |text: &str| format!("PROXY {text}\r\n").into_bytes();
    let rest = vec![0; HEADER_BYTES_MAX - FIXED_LEN];
    vec![
        (line("TCP4 192.168.0.1 192.168.0.11 56324 443"), ipv4),
        (
            line("TCP4 255.255.255.255 255.255.255.255 65535 65535"),
            Some(addresses("255.255.255.255:65535", "255.255.255.255:65535")),
        ),
        (line("TCP6 2001:db8::1 2001:0DB8:0::0002 56324 443"), ipv6),
        (line(&highest_ipv6), Some(addresses(&highest_end, &highest_end))),
        (
            line("TCP6 ::ffff:10.0.0.1 ::ffff:a00:2 0 1"),
            Some(addresses("10.0.0.1:0", "10.0.0.2:1")),
        ),
        (line("UNKNOWN"), None),
        (line(&highest_ipv6.replace("TCP6", "UNKNOWN")), None),
        (line("UNKNOWN \r \n \u{e9}"), None),
        (version2(PROXY, TCP4, &[IPV4]), ipv4),
        (version2(PROXY, TCP6, &[IPV6]), ipv6),
        (version2(PROXY, TCP4, &[IPV4, &[0xe0, 0, 2, 1, 2], &[4, 0, 0]]), ipv4),
        (checked(PROXY, TCP4, IPV4, &[4, 0, 1, 9]), ipv4),
        (checked(PROXY, 0, &[], &[4, 0, 1, 9]), None),
        (checked(LOCAL, 0, &[], &[]), None),
        (checked(LOCAL, TCP4, IPV4, &[4, 0, 9]), None),
        // Neither has an address of TCP.
        (version2(PROXY, 0x31, &[&[b'/'; 216]]), None),
        (version2(PROXY, 0x12, &[IPV4]), None),
        (version2(PROXY, 0, &[&[1, 2]]), None),
        (version2(LOCAL, 0, &[]), None),
        (version2(LOCAL, TCP4, &[IPV4]), None),
        (version2(LOCAL, 0xff, &[&[3, 0, 9]]), None),
        (version2(LOCAL, 0, &[&rest]), None),
        // Of LOCAL, an incomplete TLV or address is ignored.
        (version2(LOCAL, TCP4, &[IPV4, &[4, 0, 9, 1]]), None),
        (version2(LOCAL, TCP6, &[IPV4]), None),
    ]
}

#[test]
fn a_header_ends_where_its_length_says_and_names_the_client() {
    for (header, addresses) in valid() {
        let whole = ProxyHeader { len: header.len(), addresses };
        let followed = [&header[..], b"GET / HTTP/1.1\r\n"].concat();
        let parsed = parse(&followed).expect("it is valid");
        assert_eq!(parsed, Some(whole), "{}", header.escape_ascii());
        for end in 0..header.len() {
            let parsed = parse(&header[..end]).expect("it may become valid");
            assert_eq!(parsed, None, "{}", header[..end].escape_ascii());
        }
    }
}

#[test]
fn bytes_that_begin_no_header_are_rejected_at_once() {
    for bytes in [
        &b"GET / HTTP/1.1\r\n"[..],
        b"PRI * HTTP/2.0\r\n",
        b"PROXY\r\n",
        b"proxy TCP4",
        b"\x16\x03\x01",
        b"\r\n\r\n\0\r\nQUIT\r",
    ] {
        let parsed = parse(bytes);
        let is_absent = matches!(parsed, Err(ProxyHeaderError::Absent));
        assert!(is_absent, "{}: {parsed:?}", bytes.escape_ascii());
    }
}

#[test]
fn a_malformed_header_is_rejected() {
    let line = |text: &str| format!("PROXY {text}\r\n").into_bytes();
    let long = |bytes: usize| version2(LOCAL, 0, &[&vec![0; bytes]]);
    let mut version1 = version2(PROXY, TCP4, &[IPV4]);
    version1[12] = 0x11;
    for header in [
        line("TCP4 192.168.0.1 192.168.0.11 56324"),
        line("TCP4 192.168.0.1 192.168.0.11 56324 443 "),
        line("TCP4  192.168.0.1 192.168.0.11 56324 443"),
        line("TCP4 192.168.0.01 192.168.0.11 56324 443"),
        line("TCP4 192.168.0 192.168.0.11 56324 443"),
        line("TCP4 2001:db8::1 2001:db8::2 56324 443"),
        line("TCP6 192.168.0.1 192.168.0.11 56324 443"),
        line("TCP6 [2001:db8::1] [2001:db8::2] 56324 443"),
        line("TCP6 fe80::1%1 fe80::2%1 56324 443"),
        line("TCP4 192.168.0.1 192.168.0.11 65536 443"),
        line("TCP4 192.168.0.1 192.168.0.11 056324 443"),
        line("TCP4 192.168.0.1 192.168.0.11 +1 443"),
        line("TCP4 192.168.0.1 192.168.0.11  443"),
        line("UDP4 192.168.0.1 192.168.0.11 56324 443"),
        line("UNKNOWNS"),
        line(""),
        line("TCP4 192.168.0.1 192.168.0.11 56324 443\nGET / HTTP/1.1"),
        line(&format!("UNKNOWN {}", "x".repeat(LINE_BYTES_MAX))),
        [b"PROXY ", &[b'x'; 101][..]].concat(),
        version1,
        version2(0x22, TCP4, &[IPV4]),
        version2(PROXY, 0x41, &[IPV4]),
        version2(PROXY, 0x13, &[IPV4]),
        version2(PROXY, TCP4, &[&IPV4[1..]]),
        version2(PROXY, TCP6, &[IPV4]),
        version2(PROXY, 0x31, &[&[0; 215]]),
        version2(PROXY, TCP4, &[IPV4, &[4, 0]]),
        version2(PROXY, TCP4, &[IPV4, &[4, 0, 1]]),
        version2(PROXY, TCP4, &[IPV4, CHECKSUM]),
        version2(PROXY, TCP4, &[IPV4, &[CRC32C, 0, 0]]),
        // The checksum covers every header.
        version2(PROXY, 0, &[CHECKSUM]),
        version2(PROXY, 0x12, &[IPV4, CHECKSUM]),
        version2(LOCAL, 0, &[CHECKSUM]),
        version2(LOCAL, TCP4, &[IPV4, CHECKSUM]),
        version2(LOCAL, TCP4, &[IPV4, CHECKSUM, &[4, 0, 9]]),
        long(HEADER_BYTES_MAX - FIXED_LEN + 1),
        long(usize::from(u16::MAX)),
    ] {
        let parsed = parse(&header);
        assert!(matches!(parsed, Err(Malformed(_))), "{}: {parsed:?}", header.escape_ascii());
    }
}

#[test]
fn the_checksum_is_that_of_the_standard() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283, "the check value of the polynomial");
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa, "RFC 3720, section B.4");
    assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43, "RFC 3720, section B.4");
}

#[test]
fn a_written_header_is_read_as_it_was() {
    let (v4, v6) = (("192.0.2.1:1", "192.0.2.2:65535"), ("[2001:db8::1]:1", "[::2]:65535"));
    for (version, is_line) in [(ProxyProtocol::V1, true), (ProxyProtocol::V2, false)] {
        for (client, server) in [v4, v6, (v4.0, v6.1), (v6.0, v4.1)] {
            let addresses = addresses(client, server);
            let header = version.header(Some(addresses));
            let read = parse(&header).expect("it is valid").expect("it is complete");
            assert_eq!(read, ProxyHeader { len: header.len(), addresses: Some(addresses) });
            assert_eq!(header.starts_with(b"PROXY TCP"), is_line);
        }
        let unknown: &[u8] =
            if is_line { b"PROXY UNKNOWN\r\n" } else { b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0" };
        assert_eq!(version.header(None), unknown);
        let own = addresses(v4.0, v4.1);
        for own in [Some(own), None] {
            let header = version.own_header(own);
            let read = parse(&header).expect("it is valid").expect("it is complete");
            assert_eq!(read.addresses, own.filter(|_| is_line));
        }
    }
    let mapped = addresses("[::ffff:192.0.2.1]:1", "192.0.2.2:2");
    assert_eq!(ProxyProtocol::V1.header(Some(mapped)), b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n");
}

#[tokio::test]
async fn no_byte_after_the_header_is_read() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("it is bound");
    for (header, addresses) in valid() {
        // At once with what follows, and byte by byte.
        for piece_len in [header.len() + 1, 1] {
            let mut sent = header.clone();
            sent.push(b'G');
            let client = TcpStream::connect(address).await.expect("loopback");
            client.set_nodelay(true).expect("a TCP connection");
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let sending = async {
                let mut client = client;
                for piece in sent.chunks(piece_len) {
                    client.write_all(piece).await.expect("the other side reads");
                    tokio::task::yield_now().await;
                }
                client
            };
            let (read, client) = tokio::join!(read_header(&mut stream), sending);
            assert_eq!(read.expect("a valid header"), addresses);
            drop(client);
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.expect("the connection holds");
            assert_eq!(rest, b"G");
        }
    }
}

#[tokio::test]
async fn a_connection_that_ends_within_the_header_is_incomplete() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let address = listener.local_addr().expect("it is bound");
    for begun in [&b""[..], b"PROXY TCP4", &version2(PROXY, TCP4, &[IPV4])[..20]] {
        let mut client = TcpStream::connect(address).await.expect("loopback");
        let (mut stream, _) = listener.accept().await.expect("a connection");
        client.write_all(begun).await.expect("the other side is there");
        drop(client);
        let read = read_header(&mut stream).await;
        assert!(matches!(read, Err(ProxyHeaderError::Incomplete(_))), "{read:?}");
    }
}

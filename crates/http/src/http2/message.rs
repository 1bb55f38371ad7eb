//! Messages from their header blocks (RFC 9113, section 8).
//!
//! A malformed message ends its stream. A request that this proxy rejects although it is well-formed gets a response.
//!
//! **WebSockets** (RFC 8441): extended CONNECT becomes the handshake of HTTP/1.1, a `GET` with `upgrade`. No other request
//! over HTTP/2 has `upgrade`.

use super::hpack::{Decoder, FIELD_BYTES, InvalidBlock};
use crate::forwarding;
use crate::head::{Fault, Fields, Known, RequestHead, ResponseHead, Target};
use crate::websocket;
use http::uri::Authority;
use http::{HeaderMap, Method, StatusCode, Version};

/// Fields that concern one connection; they make a message malformed (RFC 9113, section 8.2.2).
pub(super) const CONNECTION_SPECIFIC: u32 = Known::Connection.bit()
    | Known::KeepAlive.bit()
    | Known::ProxyConnection.bit()
    | Known::TransferEncoding.bit()
    | Known::Upgrade.bit();

/// A header list of a client above this multiple of its maximum size is not decoded to its end.
const LIST_EXCESS: usize = 4;

/// Why a request cannot be served.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// The request is malformed; its stream is reset.
    Malformed(&'static str),
    /// The request gets a response.
    Response(Fault),
}

impl From<Fault> for Rejection {
    fn from(fault: Fault) -> Self {
        Self::Response(fault)
    }
}

/// A decoded header block.
#[derive(Debug, Default)]
pub(super) struct HeaderBlock {
    method: Option<Method>,
    /// The protocol of extended CONNECT.
    protocol: Option<ConnectProtocol>,
    scheme: Option<Scheme>,
    authority: Option<Authority>,
    target: Option<Result<Target, Fault>>,
    status: Option<StatusCode>,
    fields: Fields,
    /// The size of the header list.
    list_bytes: usize,
    list_bytes_max: usize,
    has_whitespace: bool,
    malformed: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Http,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectProtocol {
    WebSocket,
    Other,
}

impl HeaderBlock {
    /// Decodes a block. The fields beyond `list_bytes_max` are dropped, but they still change the decoder's table. A peer
    /// that is not trusted must not make this decode far more than it sends.
    pub(super) fn decode(
        decoder: &mut Decoder,
        block: &[u8],
        (list_bytes_max, is_trusted): (usize, bool),
    ) -> Result<Self, InvalidBlock> {
        let fields = Fields::with_capacity(2 * block.len().min(list_bytes_max / 2));
        let mut decoded = Self { fields, list_bytes_max, ..Self::default() };
        decoder.decode(block, |name, value| {
            decoded.add(name, value);
            let is_excessive = !is_trusted && decoded.list_bytes > LIST_EXCESS * list_bytes_max;
            if is_excessive { Err(InvalidBlock::EXCESSIVE) } else { Ok(()) }
        })?;
        Ok(decoded)
    }

    pub(super) const fn is_too_large(&self) -> bool {
        self.list_bytes > self.list_bytes_max
    }

    pub(super) const fn list_bytes(&self) -> usize {
        self.list_bytes
    }

    fn add(&mut self, name: &[u8], value: &[u8]) {
        self.list_bytes += name.len() + value.len() + FIELD_BYTES;
        if self.is_too_large() || self.malformed.is_some() {
            return;
        }
        let added = match name {
            [b':', ..] if self.fields.len() > 0 => Err("a pseudo-header comes after a header"),
            [b':', pseudo @ ..] => self.add_pseudo(pseudo, value),
            _ => self.add_field(name, value),
        };
        self.malformed = added.err();
    }

    fn add_field(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        if name.is_empty() || !name.iter().all(|byte| IS_NAME_BYTE[usize::from(*byte)]) {
            return Err("the name of a header is not valid, or not in lower case");
        }
        if !value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~' | 0x80..)) {
            return Err("a header has a control character");
        }
        let trimmed = value.trim_ascii();
        self.has_whitespace |= trimmed.len() < value.len();
        self.fields.append(name, trimmed);
        Ok(())
    }

    fn add_pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), &'static str> {
        let is_repeated = match name {
            b"method" => {
                let method = Method::from_bytes(value).map_err(|_| ":method is not a method")?;
                self.method.replace(method).is_some()
            }
            b"protocol" => {
                let is_websocket = value.eq_ignore_ascii_case(websocket::PROTOCOL);
                let protocol =
                    if is_websocket { ConnectProtocol::WebSocket } else { ConnectProtocol::Other };
                self.protocol.replace(protocol).is_some()
            }
            b"scheme" => {
                let is_http =
                    [&b"http"[..], b"https"].iter().any(|known| value.eq_ignore_ascii_case(known));
                self.scheme.replace(if is_http { Scheme::Http } else { Scheme::Other }).is_some()
            }
            b"authority" => {
                let authority =
                    Authority::try_from(value).map_err(|_| ":authority is not a host")?;
                self.authority.replace(authority).is_some()
            }
            b"path" => {
                let is_text = value.iter().all(|byte| matches!(byte, b'!'..=b'~' | 0x80..));
                let text =
                    std::str::from_utf8(value).ok().filter(|text| is_text && !text.is_empty());
                let text = text.ok_or(":path is empty, or has a space or a control character")?;
                self.target.replace(Target::of_http2(text)).is_some()
            }
            b"status" => {
                let status =
                    StatusCode::from_bytes(value).map_err(|_| ":status is not a status")?;
                self.status.replace(status).is_some()
            }
            _ => return Err("an unknown pseudo-header"),
        };
        if is_repeated { Err("a repeated pseudo-header") } else { Ok(()) }
    }

    /// Checks what is common to all messages.
    fn check(&self) -> Result<(), &'static str> {
        if let Some(malformed) = self.malformed {
            return Err(malformed);
        }
        if CONNECTION_SPECIFIC & self.fields.present() != 0 {
            return Err("a header that concerns one connection");
        }
        if self.fields.all(Known::Te).any(|te| !te.eq_ignore_ascii_case(b"trailers")) {
            return Err("`te` with a value other than `trailers`");
        }
        Ok(())
    }

    const fn has_pseudo(&self) -> bool {
        self.method.is_some()
            || self.protocol.is_some()
            || self.scheme.is_some()
            || self.authority.is_some()
            || self.target.is_some()
    }

    /// Converts the block to the head of a request.
    pub(super) fn into_request(mut self) -> Result<RequestHead, Rejection> {
        if self.is_too_large() {
            return Err(Fault::HEAD_TOO_LONG.into());
        }
        self.check().map_err(Rejection::Malformed)?;
        let method = self.method.ok_or(Rejection::Malformed("a request without :method"))?;
        if self.status.is_some() {
            return Err(Rejection::Malformed("a request with :status"));
        }
        match (self.protocol, method == Method::CONNECT) {
            (None, false) | (Some(_), true) => {}
            (None, true) => return Err(Fault::CONNECT.into()),
            (Some(_), false) => {
                return Err(Rejection::Malformed("`:protocol` with a method other than CONNECT"));
            }
        }
        let scheme = self.scheme.ok_or(Rejection::Malformed("a request without :scheme"))?;
        let target = self.target.ok_or(Rejection::Malformed("a request without :path"))?;
        if scheme == Scheme::Other {
            return Err(Fault::SCHEME.into());
        }
        if self.has_whitespace {
            // RFC 9113, section 8.2.1.
            return Err(Fault::bad("a header value begins or ends with whitespace").into());
        }
        if self.fields.has(Known::FramingAlias) {
            return Err(Fault::FRAMING_ALIAS.into());
        }
        let length = self.fields.settle_length(false).map_err(Fault::bad)?;
        // RFC 9113, section 8.2.3: clients may split cookies over several fields; HTTP/1.1 allows one.
        self.fields.join(Known::Cookie, b"; ");
        let method = match self.protocol {
            None => method,
            Some(protocol) => Self::put_handshake(&mut self.fields, protocol, length)?,
        };
        let target = target?.unless_asterisk_with(&method)?;
        let (authority, fields, version) = (self.authority, self.fields, Version::HTTP_2);
        Ok(RequestHead { method, target, authority, version, fields })
    }

    /// Converts the fields to those of a WebSocket handshake over HTTP/1.1; returns its method.
    fn put_handshake(
        fields: &mut Fields,
        protocol: ConnectProtocol,
        length: Option<u64>,
    ) -> Result<Method, Fault> {
        if protocol == ConnectProtocol::Other {
            return Err(Fault::CONNECT_PROTOCOL);
        }
        if length.is_some() {
            // RFC 9110, section 9.3.6. A server would take the first bytes of the WebSocket for the content of the `GET`.
            return Err(Fault::bad("CONNECT has no content"));
        }
        // RFC 8441, section 5: they have no meaning over HTTP/2.
        fields.remove(Known::SecWebsocketKey.bit() | Known::SecWebsocketAccept.bit());
        forwarding::ask_upgrade(fields, websocket::PROTOCOL);
        Ok(Method::GET)
    }

    /// Converts the block to the head of a response. The whitespace around values is removed.
    pub(super) fn into_response(self) -> Result<ResponseHead, &'static str> {
        self.check()?;
        if self.has_pseudo() {
            return Err("a response with a pseudo-header of requests");
        }
        let status = self.status.ok_or("a response without :status")?;
        let mut fields = self.fields;
        fields.settle_length(false)?;
        Ok(ResponseHead { status, fields })
    }

    /// Converts the block to trailers.
    pub(super) fn into_trailers(self, is_request: bool) -> Result<HeaderMap, &'static str> {
        self.check()?;
        if self.has_pseudo() || self.status.is_some() {
            return Err("trailers with a pseudo-header");
        }
        if is_request && self.has_whitespace {
            return Err("a trailer begins or ends with whitespace");
        }
        Ok(HeaderMap::from(&self.fields))
    }
}

/// Whether a byte may be in a name: a token (RFC 9110, section 5.6.2) in lower case.
static IS_NAME_BYTE: [bool; 256] = {
    let name_bytes = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz";
    let mut table = [false; 256];
    let mut nth = 0;
    while nth < name_bytes.len() {
        table[name_bytes[nth] as usize] = true;
        nth += 1;
    }
    table
};

#[cfg(test)]
mod tests;

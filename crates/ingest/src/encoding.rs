//! Decompresses bodies in all formats of the OpenTelemetry Collector's exporters.
//!
//! Senders use some names for two formats. The first bytes of the body then determine the format.

use crate::rejection::{RejectReason, Rejection};
use bytes::Bytes;
use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use std::io::{self, Read};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
    Zstd,
    /// `deflate` or `zlib`: zlib's format or raw deflate.
    Deflate,
    /// Snappy's framed format or one raw block.
    Snappy,
    /// LZ4's frame format.
    Lz4,
}

const SNAPPY_FRAMED: &[u8] = b"\xff\x06\0\0sNaPpY";

impl Encoding {
    /// The names of all encodings, for headers and messages.
    pub(crate) const ALL: &'static str =
        "identity, gzip, zstd, deflate, zlib, snappy, x-snappy-framed, lz4";

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Identity),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "zstd" => Some(Self::Zstd),
            "deflate" | "zlib" => Some(Self::Deflate),
            "snappy" | "x-snappy-framed" => Some(Self::Snappy),
            "lz4" => Some(Self::Lz4),
            _ => None,
        }
    }

    /// Decompresses a body to at most `bytes_max` bytes. A longer body is rejected before it is completely
    /// decompressed.
    pub(crate) fn decompress(self, compressed: Bytes, bytes_max: u32) -> Result<Bytes, Rejection> {
        let body = &*compressed;
        let decompressed = match self {
            Self::Identity => Ok(compressed),
            Self::Gzip => read(MultiGzDecoder::new(body), body, bytes_max),
            Self::Zstd => {
                zstd::Decoder::with_buffer(body).and_then(|decoder| read(decoder, body, bytes_max))
            }
            Self::Deflate if is_zlib(body) => read(ZlibDecoder::new(body), body, bytes_max),
            Self::Deflate => read(DeflateDecoder::new(body), body, bytes_max),
            Self::Snappy if body.starts_with(SNAPPY_FRAMED) => {
                read(snap::read::FrameDecoder::new(body), body, bytes_max)
            }
            Self::Snappy => match snap::raw::decompress_len(body) {
                Ok(len) if len > bytes_max as usize => return Err(too_long(bytes_max)),
                Ok(_) => snap::raw::Decoder::new()
                    .decompress_vec(body)
                    .map(Bytes::from)
                    .map_err(io::Error::from),
                Err(error) => Err(error.into()),
            },
            Self::Lz4 if !has_lz4_end(body) => Err(io::ErrorKind::UnexpectedEof.into()),
            Self::Lz4 => read(lz4_flex::frame::FrameDecoder::new(body), body, bytes_max),
        };
        let decompressed = decompressed.map_err(|error| {
            RejectReason::Malformed
                .reject(format!("the body cannot be decompressed ({self:?}): {error}"))
        })?;
        if decompressed.len() > bytes_max as usize {
            return Err(too_long(bytes_max));
        }
        Ok(decompressed)
    }
}

/// Whether a body begins with a zlib header (RFC 1950, section 2.2).
fn is_zlib(compressed: &[u8]) -> bool {
    matches!(compressed, [method, flags, ..]
        if method & 0x0F == 8 && u16::from_be_bytes([*method, *flags]).is_multiple_of(31))
}

/// Whether the body ends like an LZ4 frame: an empty block, then the frame's checksum if there is one. This check is
/// necessary because the decoder accepts a truncated frame.
fn has_lz4_end(compressed: &[u8]) -> bool {
    const HAS_CHECKSUM: u8 = 1 << 2;
    let checksum = compressed.get(4).map_or(0, |flags| usize::from(flags & HAS_CHECKSUM));
    compressed.len().checked_sub(checksum).is_some_and(|end| compressed[..end].ends_with(&[0; 4]))
}

/// Reads at most one byte more than `bytes_max`, to detect a body that is too long.
fn read(decoder: impl Read, compressed: &[u8], bytes_max: u32) -> io::Result<Bytes> {
    // Spans compress to a fifth or less, so the buffer rarely grows.
    let mut decompressed = Vec::with_capacity((4 * compressed.len()).min(bytes_max as usize));
    decoder.take(u64::from(bytes_max) + 1).read_to_end(&mut decompressed)?;
    Ok(decompressed.into())
}

pub(crate) fn too_long(bytes_max: u32) -> Rejection {
    RejectReason::TooLong.reject(format!("the batch has more than {bytes_max} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write<W: io::Write>(mut encoder: W, bytes: &[u8]) -> W {
        encoder.write_all(bytes).expect("compressed");
        encoder
    }

    /// The same bytes in every format, with its name.
    fn all(bytes: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
        let fast = flate2::Compression::fast();
        let gzip = flate2::write::GzEncoder::new(Vec::new(), fast);
        let zlib = flate2::write::ZlibEncoder::new(Vec::new(), fast);
        let zlib = write(zlib, bytes).finish().expect("compressed");
        let deflate = flate2::write::DeflateEncoder::new(Vec::new(), fast);
        let snappy = snap::write::FrameEncoder::new(Vec::new());
        let snappy = write(snappy, bytes).into_inner().expect("compressed");
        let lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        vec![
            ("gzip", write(gzip, bytes).finish().expect("compressed")),
            ("zstd", zstd::encode_all(bytes, 1).expect("compressed")),
            ("zlib", zlib.clone()),
            ("deflate", zlib),
            ("deflate", write(deflate, bytes).finish().expect("compressed")),
            ("snappy", snappy.clone()),
            ("x-snappy-framed", snappy),
            ("snappy", snap::raw::Encoder::new().compress_vec(bytes).expect("compressed")),
            ("lz4", write(lz4, bytes).finish().expect("compressed")),
        ]
    }

    #[test]
    fn bodies_are_decompressed_up_to_the_limit() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|nth| (nth / 5_000).to_le_bytes()[0]).collect();
        for (name, compressed) in all(&bytes) {
            let encoding = Encoding::named(name).expect("it is known");
            let compressed = Bytes::from(compressed);
            assert!(compressed.len() < 10_000, "{name}");
            assert_eq!(
                encoding.decompress(compressed.clone(), 100_000).expect(name),
                bytes,
                "{name}"
            );
            let rejection = encoding.decompress(compressed.clone(), 99_999).expect_err(name);
            assert_eq!(rejection.reason, RejectReason::TooLong, "{name}");
            for len in [1, compressed.len() / 2, compressed.len() - 1] {
                let rejection =
                    encoding.decompress(compressed.slice(..len), 200_000).expect_err(name);
                assert_eq!(rejection.reason, RejectReason::Malformed, "{name}, {len}");
            }
            let noise = encoding.decompress(Bytes::from_static(b"\x07not compressed at all"), 100);
            assert_eq!(noise.expect_err(name).reason, RejectReason::Malformed, "{name}");
        }
    }

    #[test]
    fn several_members_in_a_row_are_one_body() {
        for (name, compressed) in all(&[7; 1_000]).into_iter().take(2) {
            let encoding = Encoding::named(name).expect("it is known");
            let twice = Bytes::from(compressed.repeat(2));
            assert_eq!(encoding.decompress(twice, 2_000).expect(name).len(), 2_000);
        }
    }

    #[test]
    fn names_are_those_of_http() {
        for (name, encoding) in [
            ("GZIP", Some(Encoding::Gzip)),
            (" zstd ", Some(Encoding::Zstd)),
            ("identity", Some(Encoding::Identity)),
            ("br", None),
            ("gzip, zstd", None),
        ] {
            assert_eq!(Encoding::named(name), encoding, "{name}");
        }
    }
}

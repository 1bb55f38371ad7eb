//! How a body is packed.

use crate::refusal::{Kind, Refusal};
use bytes::Bytes;
use std::io::{self, Read};

/// A way to pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Identity,
    Gzip,
    Zstd,
}

impl Encoding {
    /// Those that are known, as headers list them.
    pub(crate) const ALL: &'static str = "identity, gzip, zstd";

    pub(crate) fn named(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "" | "identity" => Some(Self::Identity),
            "gzip" | "x-gzip" => Some(Self::Gzip),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// What was packed, if it has at most so many bytes. What would have more is found out without being
    /// unpacked whole.
    pub(crate) fn unpack(self, packed: Bytes, bytes_max: u32) -> Result<Bytes, Refusal> {
        let unpacked = match self {
            Self::Identity if packed.len() > bytes_max as usize => return Err(too_long(bytes_max)),
            Self::Identity => return Ok(packed),
            Self::Gzip => read(flate2::read::MultiGzDecoder::new(&*packed), &packed, bytes_max),
            Self::Zstd => zstd::Decoder::with_buffer(&*packed)
                .and_then(|decoder| read(decoder, &packed, bytes_max)),
        };
        let unpacked = unpacked.map_err(|error| {
            Kind::Malformed.refuse(format!("the body cannot be unpacked ({self:?}): {error}"))
        })?;
        if unpacked.len() > bytes_max as usize {
            return Err(too_long(bytes_max));
        }
        Ok(unpacked.into())
    }
}

/// At most one byte more than allowed.
fn read(unpacking: impl Read, packed: &[u8], bytes_max: u32) -> io::Result<Vec<u8>> {
    // Spans pack to a fifth or less, and few batches grow so often then.
    let mut unpacked = Vec::with_capacity((4 * packed.len()).min(bytes_max as usize));
    unpacking.take(u64::from(bytes_max) + 1).read_to_end(&mut unpacked)?;
    Ok(unpacked)
}

pub(crate) fn too_long(bytes_max: u32) -> Refusal {
    Kind::TooLong.refuse(format!("the batch has more than {bytes_max} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn packed(encoding: Encoding, bytes: &[u8]) -> Bytes {
        match encoding {
            Encoding::Identity => bytes.to_vec(),
            Encoding::Gzip => {
                let mut packing =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                packing.write_all(bytes).expect("packed");
                packing.finish().expect("packed")
            }
            Encoding::Zstd => zstd::encode_all(bytes, 1).expect("packed"),
        }
        .into()
    }

    #[test]
    fn what_was_packed_is_unpacked_up_to_the_bound() {
        let bytes = vec![7; 100_000];
        for encoding in [Encoding::Gzip, Encoding::Zstd] {
            let packed = packed(encoding, &bytes);
            assert!(packed.len() < 1_000);
            assert_eq!(encoding.unpack(packed.clone(), 100_000).expect("unpacked"), bytes);
            let refusal = encoding.unpack(packed.clone(), 99_999).expect_err("too long");
            assert_eq!(refusal.kind, Kind::TooLong);
            let twice = Bytes::from([&packed[..], &packed].concat());
            assert_eq!(encoding.unpack(twice, 200_000).expect("unpacked").len(), 200_000);
            for len in [1, packed.len() / 2, packed.len() - 1] {
                let refusal = encoding.unpack(packed.slice(..len), 200_000).expect_err("cut off");
                assert_eq!(refusal.kind, Kind::Malformed, "{encoding:?}, {len}");
            }
            let noise = encoding.unpack(Bytes::from_static(b"not packed at all"), 100);
            assert_eq!(noise.expect_err("noise").kind, Kind::Malformed);
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

//! Reads a body within the limits of size and memory.

use crate::encoding::too_long;
use crate::memory_limit::MemoryReservation;
use crate::rejection::{RejectReason, Rejection};
use bytes::{Buf, Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt;

/// Maximum buffer that is allocated because a request announces its length.
const RESERVED_MAX: u64 = 1 << 20;

/// The size of the prefix of a gRPC message: a flag for compression, and the length.
const FRAME_BYTES: usize = 5;

/// Reads a body of at most `bytes_max` bytes.
pub(crate) async fn read<B>(
    mut body: B,
    reservation: &mut MemoryReservation,
    bytes_max: u32,
) -> Result<Bytes, Rejection>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    let announced = body.size_hint().lower();
    let is_too_long = |len: u64| len > u64::from(bytes_max) + FRAME_BYTES as u64;
    if is_too_long(announced) {
        return Err(too_long(bytes_max));
    }
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let broke_off =
            |error| RejectReason::Malformed.reject(format!("the body broke off: {error}"));
        let Ok(data) = frame.map_err(broke_off)?.into_data() else { continue };
        reservation.grow(data.len())?;
        if whole.is_empty() && first.is_empty() {
            // A body in one piece is not copied.
            first = data;
        } else {
            if whole.is_empty() {
                let announced = announced.max(framed(&first)).min(RESERVED_MAX);
                whole.reserve(usize::try_from(announced).unwrap_or(0).max(2 * first.len()));
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&data);
        }
        if is_too_long(whole.len().max(first.len()) as u64) {
            return Err(too_long(bytes_max));
        }
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

/// Returns the length of a gRPC body by its first frame, because gRPC sends no `content-length`.
fn framed(first: &[u8]) -> u64 {
    match first {
        [0 | 1, a, b, c, d, ..] => {
            u64::from(u32::from_be_bytes([*a, *b, *c, *d])) + FRAME_BYTES as u64
        }
        _ => 0,
    }
}

/// Removes gRPC's frame from a message; returns the message, and whether it is compressed.
pub(crate) fn unframe(mut body: Bytes) -> Result<(Bytes, bool), Rejection> {
    let malformed = |message: &str| RejectReason::Malformed.reject(message);
    let Some(&[compressed, a, b, c, d]) = body.first_chunk::<FRAME_BYTES>() else {
        return Err(malformed("the body ends within the 5 bytes before a gRPC message"));
    };
    body.advance(FRAME_BYTES);
    if u64::from(u32::from_be_bytes([a, b, c, d])) != body.len() as u64 {
        return Err(malformed(
            "the length before the gRPC message differs from the body's: expected one message",
        ));
    }
    match compressed {
        0 => Ok((body, false)),
        1 => Ok((body, true)),
        _ => Err(malformed("the compressed flag of the gRPC message is neither 0 nor 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_out_of_its_frame() {
        let framed = |bytes: &'static [u8]| unframe(Bytes::from_static(bytes));
        assert_eq!(framed(b"\0\0\0\0\x02ab").expect("framed"), (Bytes::from_static(b"ab"), false));
        assert_eq!(framed(b"\x01\0\0\0\x02ab").expect("framed"), (Bytes::from_static(b"ab"), true));
        assert_eq!(framed(b"\0\0\0\0\0").expect("framed"), (Bytes::new(), false));
        for bad in [
            &b""[..],
            b"\0\0\0\0",
            b"\0\0\0\0\x03ab",
            b"\0\0\0\0\x01ab",
            b"\x02\0\0\0\x02ab",
            b"\0\xff\xff\xff\xffab",
        ] {
            assert_eq!(
                framed(bad).expect_err("it is none").reason,
                RejectReason::Malformed,
                "{bad:?}"
            );
        }
    }
}

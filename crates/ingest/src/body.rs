//! Reads a body within the limits of size and memory.

use crate::encoding::too_long;
use crate::memory_limit::MemoryReservation;
use crate::rejection::{RejectReason, Rejection};
use bytes::{Bytes, BytesMut};
use curtail_http::grpc::{PREFIX_BYTES, read_prefix};
use http_body::Body;
use http_body_util::BodyExt;

/// Maximum buffer that is allocated because a request announces its length.
const RESERVED_MAX: u64 = 1 << 20;

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
    let is_too_long = |len: u64| len > u64::from(bytes_max) + PREFIX_BYTES as u64;
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
    read_prefix(first).map_or(0, |(len, _)| u64::from(len) + PREFIX_BYTES as u64)
}

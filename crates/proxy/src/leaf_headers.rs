//! The headers between a root and its leaves: ties and loads.

use curtail_policy::{Load, TieId, TieRole};
use curtail_units::Duration;

/// The error of a request that the leaf has no room for in its queue.
pub(crate) const QUEUE_FULL: &str = "queue_full";
/// `curtail-leaf` of a request that the leaf has no room for; its server has not seen the request.
pub(crate) const LEAF_REFUSED: &[u8] = b"refused";
/// `curtail-leaf` of a request that the leaf could not send to its server.
pub(crate) const LEAF_NOT_SENT: &[u8] = b"not-sent";
/// `curtail-leaf` of a copy that the leaf has dropped, because its twin has started.
pub(crate) const LEAF_TWIN_STARTED: &[u8] = b"twin-started";

pub(crate) fn write_tie(id: TieId, role: TieRole, twin: &str) -> String {
    let role = match role {
        TieRole::First => "first",
        TieRole::Second => "second",
    };
    format!("{:016x};{role};{twin}", id.0)
}

/// Reads a tie at a leaf: its ID, and the address of the twin's leaf.
pub(crate) fn read_tie(value: &str) -> Option<(TieId, &str)> {
    let mut parts = value.splitn(3, ';');
    let (id, _role, twin) = (parts.next()?, parts.next()?, parts.next()?);
    Some((TieId(u64::from_str_radix(id, 16).ok()?), twin))
}

pub(crate) fn write_load(load: Load) -> String {
    format!("in_flight={};latency_ns={}", load.in_flight, load.latency.as_ns())
}

pub(crate) fn read_load(value: &str) -> Option<Load> {
    let (in_flight, latency) = value.split_once(';')?;
    Some(Load {
        in_flight: in_flight.strip_prefix("in_flight=")?.parse().ok()?,
        latency: Duration::from_ns(latency.strip_prefix("latency_ns=")?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_and_loads_are_read_as_they_were_written() {
        let tie = write_tie(TieId(0xfeed), TieRole::Second, "[::1]:80");
        assert_eq!(read_tie(&tie), Some((TieId(0xfeed), "[::1]:80")));
        let load = Load { in_flight: 7, latency: Duration::from_us(1_500) };
        assert_eq!(read_load(&write_load(load)), Some(load));
        for garbage in ["", ";", "in_flight=x;latency_ns=1", "in_flight=1"] {
            assert_eq!(read_load(garbage), None, "{garbage:?}");
        }
    }
}

//! Pauses of a JVM's garbage collector, from its log.
//!
//! **Input**: lines of the JVM's unified logging (JEP 158, JEP 271), such as
//! `[2026-11-22T10:00:01.250+0000][12.250s][info][gc] GC(7) Pause Young (Normal) (G1 Evacuation Pause) 24M->4M(256M)
//! 3.456ms`. A line with `Pause` that ends in milliseconds is a pause. The end of the pause is the wall-clock time of
//! the line, or the JVM's uptime if the line has no wall-clock time.

use chrono::DateTime;
use curtail_units::Duration;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pause {
    pub(super) ended: Ended,
    pub(super) lasted: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// By the wall clock: nanoseconds since 1970 (UTC).
    Unix(u64),
    /// Since the JVM was started.
    Uptime(Duration),
}

pub(super) fn pause(line: &str) -> Option<Pause> {
    let (decorations, message) = decorated(line);
    if !message.contains("Pause") {
        return None;
    }
    let (_, last) = message.trim_end().rsplit_once(' ')?;
    let lasted = positive(last.strip_suffix("ms")?)? * 1e6;
    let wall = decorations.iter().find_map(|text| unix_ns(text)).map(Ended::Unix);
    let ended = wall.or_else(|| decorations.iter().find_map(|text| uptime(text)))?;
    Some(Pause { ended, lasted: Duration::from_ns_f64(lasted) })
}

/// The texts in brackets before the message, and the message.
fn decorated(line: &str) -> (Vec<&str>, &str) {
    let mut decorations = Vec::new();
    let mut rest = line;
    while let Some((text, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        decorations.push(text.trim());
        rest = after;
    }
    (decorations, rest)
}

fn uptime(text: &str) -> Option<Ended> {
    let (number, unit) = match (text.strip_suffix("ms"), text.strip_suffix("ns")) {
        (Some(number), _) => (number, 1e6),
        (_, Some(number)) => (number, 1.0),
        _ => (text.strip_suffix('s')?, 1e9),
    };
    Some(Ended::Uptime(Duration::from_ns_f64(positive(number)? * unit)))
}

fn positive(text: &str) -> Option<f64> {
    // Some languages write a comma.
    text.replace(',', ".").parse().ok().filter(|number: &f64| *number >= 0.0)
}

/// `2026-11-22T10:00:01.250+0000` in nanoseconds since 1970.
fn unix_ns(text: &str) -> Option<u64> {
    // Some languages write a comma.
    let text = text.replace(',', ".").replace('Z', "+0000");
    let at = DateTime::parse_from_str(&text, "%Y-%m-%dT%H:%M:%S%.3f%z").ok()?;
    u64::try_from(at.timestamp_nanos_opt()?).ok()
}

#[cfg(test)]
mod tests {
    use super::{Ended, Pause, pause};
    use curtail_units::Duration;

    #[test]
    fn pauses_are_found_with_their_time() {
        let line = "[2026-11-22T10:00:01.250+0000][12.250s][info][gc          ] GC(7) Pause Young (Normal) (G1 Evacuation Pause) 24M->4M(256M) 3.456ms";
        let found = pause(line).expect("a pause");
        let lasted = Duration::from_us(3_456);
        // date -u -d 2026-11-22T10:00:01 +%s
        assert_eq!(found, Pause { ended: Ended::Unix(1_795_341_601_250_000_000), lasted });
        let east = line.replace("10:00:01.250+0000", "12:30:01.250+0230");
        assert_eq!(pause(&east), Some(found));
        let uptime = "[12.250s][info][gc] GC(8) Pause Remark 30M->30M(256M) 1,200ms";
        let ended = Ended::Uptime(Duration::from_ms(12_250));
        assert_eq!(pause(uptime), Some(Pause { ended, lasted: Duration::from_us(1_200) }));
        let leap = "[2024-02-29T00:00:00.000+0000] GC(8) Pause Cleanup 0.010ms";
        let found = pause(leap).expect("a pause");
        // date -u -d 2024-02-29 +%s
        assert_eq!(found.ended, Ended::Unix(1_709_164_800_000_000_000));
    }

    #[test]
    fn what_is_no_pause_is_left_out() {
        for line in [
            "[12.250s][info][gc,start] GC(7) Pause Young (Normal) (G1 Evacuation Pause)",
            "[12.250s][info][gc] GC(7) Concurrent Mark Cycle 5.0ms",
            "[12.250s][info][gc] GC(7) Pause Young -3ms",
            "GC(7) Pause Young 3ms",
            "[gc] GC(7) Pause Young 3ms",
            "[",
            "",
        ] {
            assert_eq!(pause(line), None, "{line}");
        }
    }
}

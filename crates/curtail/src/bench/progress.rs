//! The progress of a run: live percentiles in one line.

use crate::terminal;
use curtail_generator::session::SessionProgress;
use curtail_load::Slot;
use curtail_text::numbers::rounded_latency;
use curtail_text::{WIDTH, cut};
use curtail_units::{Duration, Quantile};
use std::collections::VecDeque;

/// The number of slots in the live percentiles: five seconds of one thread.
const RECENT: usize = 10;

const BAR: usize = 8;

/// Minimum width of a name.
const NAME_MIN: usize = 6;

/// The interval between two progress lines if standard error is not a terminal.
const LINE_EVERY: std::time::Duration = std::time::Duration::from_secs(15);

#[derive(Debug)]
pub(super) struct RunProgress {
    shown: terminal::ProgressLine,
    names: Vec<String>,
    recent: VecDeque<Slot>,
    shown_at: Duration,
}

impl RunProgress {
    /// Creates the progress of a run of arms with these names; a single arm needs no name.
    pub(super) fn new(names: Vec<String>) -> Self {
        Self {
            shown: terminal::ProgressLine::on_stderr(Some(LINE_EVERY)),
            names,
            recent: VecDeque::new(),
            shown_at: Duration::ZERO,
        }
    }

    /// Renames the only arm.
    pub(super) fn named(&mut self, name: &str) {
        self.names = vec![name.to_owned()];
    }

    pub(super) fn show(&mut self, progress: SessionProgress, slot: &Slot) {
        if progress.since_began < self.shown_at {
            // Another block has begun.
            self.recent.clear();
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(slot.clone());
        self.shown_at = progress.since_began;
        let Self { shown, names, recent, .. } = self;
        shown.show(|| line(names, recent, progress));
    }

    pub(super) fn say(&mut self, line: &str) {
        self.shown.say(line);
    }

    pub(super) fn clear(&mut self) {
        self.shown.clear();
    }
}

/// Renders a line of at most [`WIDTH`] columns. The number of failures comes first, so it is never cut off.
fn line(names: &[String], recent: &VecDeque<Slot>, progress: SessionProgress) -> String {
    let SessionProgress { arm, blocks_done, blocks, is_warm_up, since_began, lasts } = progress;
    let mut merged = Slot::new();
    for slot in recent {
        merged.merge(slot);
    }
    let at = |quantile| merged.response.quantile(quantile).map_or("-".to_owned(), rounded_latency);
    let of_block = (since_began.as_secs_f64() / lasts.as_secs_f64()).clamp(0.0, 1.0);
    let of_block = if is_warm_up { 0.0 } else { of_block };
    let done = (blocks_done as f64 + of_block) / blocks as f64;
    let filled = (1..=BAR).filter(|nth| *nth as f64 <= done * BAR as f64).count();
    let bar = format!("{}{}", "#".repeat(filled), ".".repeat(BAR - filled));
    let what = if is_warm_up {
        format!("warming up {since_began:.0}")
    } else if blocks > 1 {
        let left = lasts.mul_f64(blocks as f64 * (1.0 - done));
        format!("block {} of {blocks}, {} left", blocks_done + 1, format_time_left(left))
    } else {
        format!("{:.0} of {:.0} s", since_began.as_secs_f64(), lasts.as_secs_f64())
    };
    let (p50, p99, failed) = (at(Quantile::P50), at(Quantile::P99), merged.failed);
    let start = format!("[{bar}] failed {failed}  ");
    let rest = format!("{what}  p50 {p50}  p99 {p99}");
    let room = WIDTH.saturating_sub(start.chars().count() + rest.chars().count() + 1);
    let name = names
        .get(arm)
        .map_or_else(String::new, |name| format!("{} ", cut(name, room.max(NAME_MIN))));
    cut(&format!("{start}{name}{rest}"), WIDTH)
}

/// A time as an estimate: `40 s`, `38 min`.
fn format_time_left(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 90.0 { format!("{seconds:.0} s") } else { format!("{:.0} min", seconds / 60.0) }
}

#[cfg(test)]
mod tests {
    use super::line;
    use curtail_generator::session::SessionProgress;
    use curtail_load::Slot;
    use curtail_units::Duration;
    use std::collections::VecDeque;

    const PROGRESS: SessionProgress = SessionProgress {
        arm: 1,
        blocks_done: 2,
        blocks: 160,
        is_warm_up: false,
        since_began: Duration::from_secs(5),
        lasts: Duration::from_secs(15),
    };

    fn shown(name: &str, latency: Duration, failed: u64, progress: SessionProgress) -> String {
        let mut slot = Slot::new();
        slot.response.record(latency);
        slot.failed = failed;
        line(&["A".to_owned(), name.to_owned()], &VecDeque::from([slot]), progress)
    }

    #[test]
    fn the_remaining_time_of_a_comparison_fits_80_columns() {
        let at = |progress| shown("B", Duration::from_us(21_700), 12, progress);
        let line = at(PROGRESS);
        assert!(line.contains("failed 12  B block 3 of 160, 39 min left  p50 21."), "{line}");
        assert!(line.ends_with(" ms"), "{line}");
        assert!(line.chars().count() <= 80, "{line}");
        let line = at(SessionProgress { blocks_done: 156, ..PROGRESS });
        assert!(line.contains("block 157 of 160, 55 s left"), "{line}");
    }

    #[test]
    fn failures_are_shown_however_long_the_rest_is() {
        let line = shown(&"shard".repeat(20), Duration::from_secs(3_000), 123_456, PROGRESS);
        assert!(line.contains("] failed 123456  shard…"), "{line}");
        assert!(line.chars().count() <= 80, "{line}");
    }
}

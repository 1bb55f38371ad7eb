//! One line on standard error that says where a run is, when somebody may be looking.

use curtail_bench::session::Progress;
use curtail_load::Slot;
use curtail_units::{Duration, Quantile};
use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Write as _};

/// Of how many times something was told live percentiles are made: five seconds of one thread.
const RECENT: usize = 10;

/// How wide the bar is.
const BAR: usize = 16;

/// The line.
#[derive(Debug)]
pub(super) struct Screen {
    is_seen: bool,
    is_dirty: bool,
    names: Vec<String>,
    recent: VecDeque<Slot>,
    shown_at: Duration,
}

impl Screen {
    /// For a run of arms with these names; none where there is nothing to tell apart.
    pub(super) fn new(names: Vec<String>) -> Self {
        let is_seen = io::stderr().is_terminal();
        Self { is_seen, is_dirty: false, names, recent: VecDeque::new(), shown_at: Duration::ZERO }
    }

    /// The only arm is called this from now on.
    pub(super) fn named(&mut self, name: &str) {
        self.names = vec![name.to_owned()];
    }

    /// Shows how things stand.
    pub(super) fn show(&mut self, progress: Progress, slot: &Slot) {
        if !self.is_seen {
            return;
        }
        if progress.since_began < self.shown_at {
            // Another block has begun.
            self.recent.clear();
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(slot.clone());
        self.shown_at = progress.since_began;
        // Whoever does not read this does not miss it.
        let _told = write!(io::stderr(), "\r\x1b[K{:.79}", self.line(progress));
        self.is_dirty = true;
    }

    fn line(&self, progress: Progress) -> String {
        let Progress { arm, blocks_done, blocks, is_warm_up, since_began, lasts } = progress;
        let mut recent = Slot::new();
        for slot in &self.recent {
            recent.merge(slot);
        }
        let at = |quantile| match recent.response.quantile(quantile) {
            Some(latency) => format!("{:.1} ms", latency.as_ms_f64()),
            None => "-".to_owned(),
        };
        let of_block = (since_began.as_secs_f64() / lasts.as_secs_f64()).clamp(0.0, 1.0);
        let of_block = if is_warm_up { 0.0 } else { of_block };
        let done = (blocks_done as f64 + of_block) / blocks as f64;
        let filled = (1..=BAR).filter(|nth| *nth as f64 <= done * BAR as f64).count();
        let bar = format!("{}{}", "#".repeat(filled), ".".repeat(BAR - filled));
        let name = self.names.get(arm).map_or_else(String::new, |name| format!("{name} "));
        let what = if is_warm_up {
            format!("warming up {since_began:.0}")
        } else if blocks > 1 {
            format!("block {} of {blocks}", blocks_done + 1)
        } else {
            format!("{:.0} of {:.0} s", since_began.as_secs_f64(), lasts.as_secs_f64())
        };
        let (p50, p99, failed) = (at(Quantile::P50), at(Quantile::P99), recent.failed);
        format!("[{bar}] {name}{what}  p50 {p50}  p99 {p99}  failed {failed}")
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        if self.is_dirty {
            let _told = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

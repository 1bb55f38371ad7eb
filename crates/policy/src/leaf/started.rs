//! Ties whose copy at another leaf has started while their copy for this leaf has not arrived yet. The late copy is
//! dropped on arrival.
//!
//! **Limits**: [`TIES_MAX`] ties, each for [`AGE_MAX`]; the oldest is forgotten first. A forgotten tie costs a
//! redundant execution, never a response.

use crate::TieId;
use alloc::collections::{BTreeMap, VecDeque};
use curtail_units::{Duration, Instant};

/// Maximum number of remembered ties, which take some 150 KB. At 40,000 tied requests a second, each of which starts at
/// its twin first, they reach back 100 ms: two hundred times a usual message delay.
pub(super) const TIES_MAX: usize = 4_096;

/// The time for which a tie is remembered: a later copy was lost, or its root has stopped waiting.
pub(super) const AGE_MAX: Duration = Duration::from_secs(10);

/// The ties whose twin has started and whose copy has not arrived.
#[derive(Clone, Debug, Default)]
pub(super) struct StartedTwins {
    heard: BTreeMap<TieId, Instant>,
    /// The same ties, the oldest first.
    oldest_first: VecDeque<TieId>,
}

impl StartedTwins {
    /// Records the report of the twin's leaf that the twin has started.
    pub(super) fn note(&mut self, now: Instant, tie: TieId) {
        // A repeated message changes nothing: the time of the first one stays.
        if self.contains(now, tie) {
            return;
        }
        while let Some(oldest) = self.oldest_first.front() {
            let heard = self.heard.get(oldest).expect("the two hold the same ties");
            if self.oldest_first.len() < TIES_MAX && now.since(*heard) <= AGE_MAX {
                break;
            }
            self.heard.remove(oldest);
            self.oldest_first.pop_front();
        }
        self.heard.insert(tie, now);
        self.oldest_first.push_back(tie);
    }

    /// Whether the twin of this tie is known to have started.
    pub(super) fn contains(&self, now: Instant, tie: TieId) -> bool {
        self.heard.get(&tie).is_some_and(|heard| now.since(*heard) <= AGE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::{AGE_MAX, StartedTwins, TIES_MAX};
    use crate::TieId;
    use curtail_units::{Duration, Instant};

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let mut started = StartedTwins::default();
        let now = Instant::from_ns(1);
        for tie in 0..3 * TIES_MAX as u64 {
            started.note(now, TieId(tie));
            started.note(now, TieId(tie));
            assert_eq!(started.heard.len(), started.oldest_first.len());
        }
        assert_eq!(started.heard.len(), TIES_MAX);
        let oldest_kept = 2 * TIES_MAX as u64;
        assert!(!started.contains(now, TieId(oldest_kept - 1)));
        assert!(started.contains(now, TieId(oldest_kept)));
    }

    #[test]
    fn what_is_too_old_is_not_known_any_more_and_makes_room() {
        let mut started = StartedTwins::default();
        let begin = Instant::from_ns(1);
        (0..10).for_each(|tie| started.note(begin, TieId(tie)));
        assert!(started.contains(begin + AGE_MAX, TieId(0)));
        let later = begin + AGE_MAX + Duration::from_ns(1);
        assert!(!started.contains(later, TieId(0)));
        started.note(later, TieId(10));
        assert_eq!((started.heard.len(), started.oldest_first.len()), (1, 1));
    }
}

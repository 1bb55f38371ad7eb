//! The event queue: entries ordered by time.
//!
//! At the same instant, messages come first, then insertion order decides, so a run depends only on its seed. If a
//! message without delay came later, two servers that finish at once would both start the same tied request.
//!
//! The queue is a heap with four children a node, and a [`Lane`] for each kind of entry that is mostly scheduled in
//! order. An entry of a lane costs O(1); entries out of order go to the heap. No entry is ever cancelled: see
//! [`crate::alarm::Alarm`].

use curtail_units::Instant;
use std::collections::VecDeque;

const CHILDREN: usize = 4;

/// The offset on the order of entries that are not messages.
const AFTER_MESSAGES: u64 = 1 << 63;

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    at: Instant,
    order: u64,
    item: T,
}

impl<T> Entry<T> {
    /// A single number to compare, which costs less than comparing the instant and then the order.
    const fn key(&self) -> u128 {
        ((self.at.as_ns() as u128) << 64) | self.order as u128
    }
}

/// Entries that are mostly scheduled in the order in which they are due.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lane {
    Messages,
    Alarms,
}

/// Items with the instants at which they are due.
#[derive(Clone, Debug)]
pub(crate) struct Queue<T> {
    heap: Vec<Entry<T>>,
    /// The entries of each [`Lane`], in the order in which they are due.
    lanes: [VecDeque<Entry<T>>; 2],
    scheduled: u64,
}

impl<T: Copy> Queue<T> {
    pub(crate) const fn new() -> Self {
        Self { heap: Vec::new(), lanes: [VecDeque::new(), VecDeque::new()], scheduled: 0 }
    }

    /// Schedules `item` for `at`.
    pub(crate) fn push(&mut self, at: Instant, item: T) {
        let entry = self.entry(at, AFTER_MESSAGES, item);
        self.push_heap(entry);
    }

    /// Schedules `item` for `at`, which is rarely before the last entry of the lane.
    pub(crate) fn push_lane(&mut self, lane: Lane, at: Instant, item: T) {
        let after = match lane {
            Lane::Messages => 0,
            Lane::Alarms => AFTER_MESSAGES,
        };
        let entry = self.entry(at, after, item);
        let lane = &mut self.lanes[lane as usize];
        if lane.back().is_none_or(|last| last.at <= at) {
            lane.push_back(entry);
        } else {
            self.push_heap(entry);
        }
    }

    /// Removes and returns the entry that is due first.
    pub(crate) fn pop(&mut self) -> Option<(Instant, T)> {
        let key = |entry: Option<&Entry<T>>| entry.map_or(u128::MAX, Entry::key);
        let [messages, alarms] = &mut self.lanes;
        let (message, alarm) = (key(messages.front()), key(alarms.front()));
        let (lane, first) = if message < alarm { (messages, message) } else { (alarms, alarm) };
        let entry = if first < key(self.heap.first()) { lane.pop_front() } else { self.pop_heap() };
        entry.map(|entry| (entry.at, entry.item))
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.heap.len() + self.lanes.iter().map(VecDeque::len).sum::<usize>()
    }

    fn push_heap(&mut self, entry: Entry<T>) {
        self.heap.push(entry);
        self.sift_up(self.heap.len() - 1, entry);
    }

    fn entry(&mut self, at: Instant, after: u64, item: T) -> Entry<T> {
        let order = after + self.scheduled;
        self.scheduled += 1;
        Entry { at, order, item }
    }

    fn pop_heap(&mut self) -> Option<Entry<T>> {
        let last = self.heap.pop()?;
        let Some(&first) = self.heap.first() else { return Some(last) };
        // The hole goes all the way down, and the last entry up from there: it is nearly always one of the
        // latest, so comparing it on the way down would be for nothing.
        let mut hole = 0;
        while let Some(least) = self.least_child(hole) {
            self.heap[hole] = self.heap[least];
            hole = least;
        }
        self.sift_up(hole, last);
        Some(first)
    }

    /// The child of `parent` that is due first.
    fn least_child(&self, parent: usize) -> Option<usize> {
        let first = parent * CHILDREN + 1;
        let children = self.heap.get(first..)?;
        if let Some([a, b, c, d]) = children.first_chunk::<CHILDREN>() {
            // A tournament without branches: which child is least cannot be predicted.
            let (ab, cd) = (usize::from(b.key() < a.key()), 2 + usize::from(d.key() < c.key()));
            let cd_is_less = children[cd].key() < children[ab].key();
            return Some(first + if cd_is_less { cd } else { ab });
        }
        (first..self.heap.len()).min_by_key(|child| self.heap[*child].key())
    }

    /// Puts `entry` into `hole` or, while it is due before the parent, further up.
    fn sift_up(&mut self, mut hole: usize, entry: Entry<T>) {
        while hole > 0 {
            let parent = (hole - 1) / CHILDREN;
            if self.heap[parent].key() <= entry.key() {
                break;
            }
            self.heap[hole] = self.heap[parent];
            hole = parent;
        }
        self.heap[hole] = entry;
    }
}

#[cfg(test)]
mod tests {
    use super::{Lane, Queue};
    use curtail_units::{Duration, Instant, Rng};
    use std::collections::BTreeSet;

    #[test]
    fn entries_come_by_time_then_messages_first_then_in_order_of_insertion() {
        let seed = 3;
        let mut rng = Rng::new(seed);
        let mut queue = Queue::new();
        let mut expected: BTreeSet<(Instant, bool, u32)> = BTreeSet::new();
        let mut now = Instant::ZERO;
        // A third more pushes than pops, few distinct instants, lanes in and out of order.
        for number in 0..100_000_u32 {
            if rng.chance(0.57) {
                let wait = |rng: &mut Rng| Duration::from_ns(rng.below(50) as u64);
                let at = now + if rng.chance(0.3) { Duration::from_ns(20) } else { wait(&mut rng) };
                let lane = rng.below(3);
                match lane {
                    0 => queue.push(at, number),
                    1 => queue.push_lane(Lane::Messages, at, number),
                    _ => queue.push_lane(Lane::Alarms, at, number),
                }
                expected.insert((at, lane != 1, number));
            } else if let Some((at, item)) = queue.pop() {
                let first = expected.pop_first().map(|(at, _, number)| (at, number));
                assert_eq!(Some((at, item)), first, "seed {seed}");
                now = at;
            }
            assert_eq!(queue.len(), expected.len(), "seed {seed}");
        }
        while let Some(entry) = queue.pop() {
            let first = expected.pop_first().map(|(at, _, number)| (at, number));
            assert_eq!(Some(entry), first, "seed {seed}");
        }
        assert!(expected.is_empty());
    }
}

//! Fair queueing between tenants: deficit round robin.
//!
//! **Decides** which queued item is next. Tenants get equal shares of cost (bytes, work): each turn grants a tenant one
//! quantum, and its next item leaves the queue when the grants of the tenant cover the cost.
//! **Limits**: the caller limits the number of queued items. A pop takes at most tenants × (cost of the item / quantum)
//! turns, rounded up, and each turn takes O(log tenants).
//! **Invariant** `fair-shares`: between two tenants that always have an item, the served costs differ by at most the
//! sum of a quantum and the largest cost.
//! **Source**: Shreedhar & Varghese, "Efficient Fair Queueing using Deficit Round Robin", SIGCOMM 1995.
//! **Hurts when** costs are wrong: a tenant whose items cost more than they claim gets more than its share.

use alloc::collections::{BTreeMap, VecDeque};
use core::num::NonZeroUsize;

/// Queued items by tenant.
#[derive(Clone, Debug)]
pub struct FairQueue<K, T> {
    quantum: NonZeroUsize,
    /// The tenants with queued items, in the order of their turns.
    turns: VecDeque<K>,
    tenants: BTreeMap<K, Tenant<T>>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Tenant<T> {
    /// The items with their costs, in the order of arrival.
    items: VecDeque<(usize, T)>,
    /// The cost that the tenant may still use: its grants minus the costs of its served items.
    deficit: usize,
}

impl<K: Ord + Clone, T> FairQueue<K, T> {
    /// An empty queue that grants `quantum` with each turn. `quantum` should be about the cost of a usual item.
    #[must_use]
    pub const fn new(quantum: NonZeroUsize) -> Self {
        Self { quantum, turns: VecDeque::new(), tenants: BTreeMap::new(), len: 0 }
    }

    /// The number of queued items.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no item is queued.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Queues an item.
    pub fn push(&mut self, tenant: &K, cost: usize, item: T) {
        let known = self.tenants.entry(tenant.clone()).or_insert_with(|| {
            self.turns.push_back(tenant.clone());
            Tenant { items: VecDeque::new(), deficit: self.quantum.get() }
        });
        known.items.push_back((cost, item));
        self.len += 1;
    }

    /// Removes the next item.
    pub fn pop(&mut self) -> Option<T> {
        loop {
            let id = self.turns.front()?;
            let tenant = self.tenants.get_mut(id)?;
            let cost = tenant.items.front().map_or(0, |(cost, _)| *cost);
            if cost > tenant.deficit {
                tenant.deficit = tenant.deficit.saturating_add(self.quantum.get());
                self.turns.rotate_left(1);
                continue;
            }
            tenant.deficit -= cost;
            let next = tenant.items.pop_front();
            if tenant.items.is_empty() {
                self.tenants.remove(id);
                self.turns.pop_front();
            }
            self.len -= 1;
            return next.map(|(_, item)| item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FairQueue;
    use alloc::vec::Vec;
    use core::num::NonZeroUsize;

    const QUANTUM: NonZeroUsize = NonZeroUsize::new(512).expect("above 0");

    fn drain<T>(queue: &mut FairQueue<&'static str, T>) -> Vec<T> {
        core::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn items_of_one_tenant_keep_their_order() {
        let mut queue = FairQueue::new(QUANTUM);
        for (nth, cost) in [3 * 512, 0, 1, 100 * 512, 7].into_iter().enumerate() {
            queue.push(&"one", cost, nth);
        }
        assert_eq!(queue.len(), 5);
        assert_eq!(drain(&mut queue), [0, 1, 2, 3, 4]);
        assert!(queue.is_empty() && queue.tenants.is_empty() && queue.turns.is_empty());
    }

    #[test]
    fn small_items_do_not_wait_for_all_the_large_ones_before_them() {
        let mut queue = FairQueue::new(QUANTUM);
        (0..10).for_each(|_| queue.push(&"large", 30 * 512, "large"));
        (0..10).for_each(|_| queue.push(&"small", 256, "small"));
        let order = drain(&mut queue);
        assert_eq!(order.len(), 20);
        assert!(order[..10].iter().all(|item| *item == "small"), "{order:?}");
    }

    #[test]
    fn tenants_that_always_have_an_item_get_equal_shares() {
        let mut queue = FairQueue::new(QUANTUM);
        let tenants = [("a", 10), ("b", 3 * 512), ("c", 512)];
        let push = |queue: &mut FairQueue<_, _>, nth: usize| {
            queue.push(&tenants[nth].0, tenants[nth].1, nth);
        };
        (0..3).for_each(|nth| (0..2).for_each(|_| push(&mut queue, nth)));
        let mut served = [0; 3];
        for _ in 0..20_000 {
            let nth = queue.pop().expect("an item is always queued");
            served[nth] += tenants[nth].1;
            push(&mut queue, nth);
        }
        let (least, most) =
            (*served.iter().min().expect("three"), *served.iter().max().expect("three"));
        assert!(most - least <= 4 * 512, "{served:?}");
    }
}

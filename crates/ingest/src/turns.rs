//! Who comes next: what waits does so by tenant, and tenants take turns.
//!
//! Tenants that have something waiting get the same share of bytes, whatever they send and however long what they send is:
//! with each turn a tenant may have [`TURN_BYTES`] more, and what it has is taken when that is enough for it. So nobody waits
//! for all that another has sent before.
//!
//! **Source**: deficit round robin, Shreedhar and Varghese, "Efficient Fair Queueing using Deficit Round Robin", SIGCOMM 1995.
//!
//! **Limits**: whoever pushes bounds what waits. A tenant is known while something of it waits.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// About two batches of the usual length.
const TURN_BYTES: usize = 512 << 10;

/// What waits.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    /// The tenants of which something waits, in the order of their turns.
    order: VecDeque<Arc<str>>,
    of: HashMap<Arc<str>, OfTenant<T>>,
    len: usize,
}

/// What waits of one tenant.
#[derive(Debug)]
struct OfTenant<T> {
    /// With its bytes, in the order in which it came.
    waiting: VecDeque<(usize, T)>,
    /// So many bytes it may have before its next turn.
    may_have: usize,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { order: VecDeque::new(), of: HashMap::new(), len: 0 }
    }
}

impl<T> Turns<T> {
    /// How many wait.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds what a tenant has, of so many bytes.
    pub(crate) fn push(&mut self, tenant: &Arc<str>, bytes: usize, what: T) {
        let of_tenant = self.of.entry(Arc::clone(tenant)).or_insert_with(|| {
            self.order.push_back(Arc::clone(tenant));
            OfTenant { waiting: VecDeque::new(), may_have: TURN_BYTES }
        });
        of_tenant.waiting.push_back((bytes, what));
        self.len += 1;
    }

    /// Takes the next one.
    pub(crate) fn pop(&mut self) -> Option<T> {
        loop {
            let tenant = self.order.front()?;
            let of_tenant = self.of.get_mut(tenant)?;
            let bytes = of_tenant.waiting.front().map_or(0, |(bytes, _)| *bytes);
            if bytes > of_tenant.may_have {
                of_tenant.may_have += TURN_BYTES;
                self.order.rotate_left(1);
                continue;
            }
            of_tenant.may_have -= bytes;
            let next = of_tenant.waiting.pop_front();
            if of_tenant.waiting.is_empty() {
                self.of.remove(tenant);
                self.order.pop_front();
            }
            self.len -= 1;
            return next.map(|(_, what)| what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order<T>(turns: &mut Turns<T>) -> Vec<T> {
        std::iter::from_fn(|| turns.pop()).collect()
    }

    #[test]
    fn of_one_tenant_what_comes_first_goes_first() {
        let (mut turns, tenant) = (Turns::default(), Arc::from("one"));
        for (nth, bytes) in [3 * TURN_BYTES, 0, 1, 100 * TURN_BYTES, 7].into_iter().enumerate() {
            turns.push(&tenant, bytes, nth);
        }
        assert_eq!(turns.len(), 5);
        assert_eq!(order(&mut turns), [0, 1, 2, 3, 4]);
        assert!(turns.is_empty() && turns.of.is_empty() && turns.order.is_empty());
    }

    #[test]
    fn short_ones_do_not_wait_for_all_the_long_ones_before_them() {
        let mut turns = Turns::default();
        let (long, short) = (Arc::from("long"), Arc::from("short"));
        (0..10).for_each(|_| turns.push(&long, 30 * TURN_BYTES, "long"));
        (0..10).for_each(|_| turns.push(&short, TURN_BYTES / 2, "short"));
        let order = order(&mut turns);
        assert_eq!(order.len(), 20);
        assert!(order[..10].iter().all(|which| *which == "short"), "{order:?}");
    }

    #[test]
    fn tenants_that_always_have_something_get_the_same_bytes() {
        let mut turns = Turns::default();
        let tenants: [(Arc<str>, usize); 3] =
            [("a".into(), 10_000), ("b".into(), 3 * TURN_BYTES), ("c".into(), TURN_BYTES)];
        let push = |turns: &mut Turns<usize>, nth: usize| {
            let (tenant, bytes) = &tenants[nth];
            turns.push(tenant, *bytes, nth);
        };
        (0..3).for_each(|nth| (0..2).for_each(|_| push(&mut turns, nth)));
        let mut got = [0; 3];
        for _ in 0..20_000 {
            let nth = turns.pop().expect("something always waits");
            got[nth] += tenants[nth].1;
            push(&mut turns, nth);
        }
        let (least, most) = (*got.iter().min().expect("three"), *got.iter().max().expect("three"));
        assert!(most - least <= 4 * TURN_BYTES, "{got:?}");
    }
}

//! Builds the tree of a trace from the parent IDs of its spans.
//!
//! | spans | become |
//! |---|---|
//! | without a parent ID | roots; the one that began first is the root of the trace |
//! | with a missing parent, or themselves as parent | orphans, each with its subtree |
//! | in a cycle | a subtree below the one that began first, which is an orphan |
//! | with the same ID | separate spans; the first to begin gets the children |
//!
//! **Invariant**: the path of parents from any span ends at a root or an orphan.

use crate::Span;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// The entry in `parents` for a span without a parent.
const NONE: u32 = u32::MAX;

/// Builds trees, one after the other. A span is named by its index in the spans that were assembled last.
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    parents: Vec<u32>,
    /// The spans with a parent, grouped by parent.
    children: Vec<u32>,
    /// The end of each span's children in `children`.
    ends: Vec<u32>,
    root: Option<u32>,
    roots: usize,
    orphans: usize,
    /// The ID, the start and the index of each span, in ascending order.
    by_id: Vec<(u64, i64, u32)>,
    /// The state of the walk from each span to its root.
    visits: Vec<Visit>,
    /// The spans of the current walk.
    way: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visit {
    No,
    Now,
    Done,
}

impl Assembly {
    /// Builds the trees of `spans`.
    ///
    /// # Panics
    /// When there are 2^32 spans or more.
    pub fn assemble(&mut self, spans: &[Span]) {
        self.find_parents(spans);
        self.cut_cycles(spans);
        self.list_children(spans);
    }

    /// The root that began first; [`None`] without roots.
    #[must_use]
    pub fn root(&self) -> Option<usize> {
        self.root.map(|root| root as usize)
    }

    /// The number of spans without a parent ID.
    #[must_use]
    pub const fn roots(&self) -> usize {
        self.roots
    }

    /// The number of spans whose parent is missing or the span itself, plus one for each cycle.
    #[must_use]
    pub const fn orphans(&self) -> usize {
        self.orphans
    }

    /// The parent of a span.
    ///
    /// # Panics
    /// When there is no such span.
    #[must_use]
    pub fn parent(&self, span: usize) -> Option<usize> {
        Some(self.parents[span]).filter(|parent| *parent != NONE).map(|parent| parent as usize)
    }

    /// The children of a span: the child that ended last comes first.
    ///
    /// # Panics
    /// When there is no such span.
    #[must_use]
    pub fn children(&self, span: usize) -> &[u32] {
        let from = span.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.children[from as usize..self.ends[span] as usize]
    }

    fn find_parents(&mut self, spans: &[Span]) {
        let Self { parents, by_id, root, roots, orphans, .. } = self;
        by_id.clear();
        by_id.extend((0..).zip(spans).map(|(nth, span)| (span.id, span.start_ns, nth)));
        by_id.sort_unstable();
        (*root, *roots, *orphans) = (None, 0, 0);
        parents.clear();
        for (nth, span) in (0..).zip(spans) {
            if span.parent_id == 0 {
                *roots += 1;
                let is_first =
                    |root: u32| (span.start_ns, nth) < (spans[root as usize].start_ns, root);
                if root.is_none_or(is_first) {
                    *root = Some(nth);
                }
                parents.push(NONE);
                continue;
            }
            let first = by_id.partition_point(|(id, ..)| *id < span.parent_id);
            let same = by_id[first..].iter().take_while(|(id, ..)| *id == span.parent_id);
            // A span is not its own parent, but may be the child of another span with the same ID.
            let parent = same.map(|(.., parent)| *parent).find(|parent| *parent != nth);
            *orphans += usize::from(parent.is_none());
            parents.push(parent.unwrap_or(NONE));
        }
    }

    /// Cuts cycles of parents.
    fn cut_cycles(&mut self, spans: &[Span]) {
        // Mostly spans are in the order of their starts, and no child begins before its parent.
        let goes_back = |(nth, parent): (u32, &u32)| *parent < nth || *parent == NONE;
        if (0..).zip(&self.parents).all(goes_back) {
            return;
        }
        self.visits.clear();
        self.visits.resize(spans.len(), Visit::No);
        for from in 0..spans.len() {
            self.way.clear();
            let mut at = Some(from);
            while let Some(span) = at.filter(|span| self.visits[*span] == Visit::No) {
                self.visits[span] = Visit::Now;
                self.way.push(span);
                at = self.parent(span);
            }
            if let Some(of) = at.filter(|span| self.visits[*span] == Visit::Now) {
                self.cut_above_first(spans, of);
            }
            for span in &self.way {
                self.visits[*span] = Visit::Done;
            }
        }
    }

    /// Cuts the cycle that contains `of`, above its span that began first.
    fn cut_above_first(&mut self, spans: &[Span], of: usize) {
        let (mut first, mut at) = (of, of);
        while let Some(parent) = self.parent(at).filter(|parent| *parent != of) {
            at = parent;
            if (spans[at].start_ns, at) < (spans[first].start_ns, first) {
                first = at;
            }
        }
        self.parents[first] = NONE;
        self.orphans += 1;
    }

    fn list_children(&mut self, spans: &[Span]) {
        let Self { parents, children, ends, .. } = self;
        ends.clear();
        ends.resize(spans.len(), 0);
        let with_parents = || (0..).zip(&*parents).filter(|(_, parent)| **parent != NONE);
        for (_, parent) in with_parents() {
            ends[*parent as usize] += 1;
        }
        let mut total = 0;
        for end in &mut *ends {
            // For now where the children begin.
            (*end, total) = (total, total + *end);
        }
        children.clear();
        children.resize(total as usize, 0);
        for (nth, parent) in with_parents() {
            let next = &mut ends[*parent as usize];
            children[*next as usize] = nth;
            *next += 1;
        }
        let mut from = 0;
        for end in &*ends {
            let of_one = &mut children[from..*end as usize];
            from = *end as usize;
            if of_one.len() > 1 {
                of_one.sort_unstable_by_key(|nth| {
                    let span = &spans[*nth as usize];
                    // Among those that ended together, the one that was waited for longest.
                    (Reverse(span.end_ns), span.start_ns, *nth)
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;

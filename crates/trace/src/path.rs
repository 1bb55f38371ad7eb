//! The critical path: the span that the root waited for at each moment.
//!
//! The path is followed back from the end of a span. The span waited for its child that ended last. Before this child
//! started, the span waited for the child that had ended last by then. Without such a child, the span worked. Each
//! child is followed likewise. The result is a list of sections without gaps from the start to the end of the span.
//!
//! | a child | is |
//! |---|---|
//! | that overlaps the next child on the path by at most 1 % of the parent's duration | cut at the start of the next child: clocks differ |
//! | that overlaps it by more | not waited for: both children ran at once |
//! | that begins before its parent, or ends after its parent | cut to the parent: clocks differ |
//! | that is longer than its parent by more than 1 % and more than 1 ms | not waited for: the parent continued without it |
//! | outside of its parent | not waited for |
//!
//! **When it hurts**: if a clock is wrong by more than the duration of a span, its subtree is not on the path,
//! and the time counts as its parent's. A wait that has no span, such as for a lock, is the waiting span's own time.
//!
//! **Source**: Zhang et al., "CRISP: Critical Path Analysis of Large-Scale Microservice Architectures", USENIX ATC
//! 2022, section 3. CRISP cuts a child that is longer than its parent. This module leaves such a child out, because
//! background work of a request would hide the work that the request waited for. A server ends its span after it has
//! responded, often a little later than its client: that is no background work.

use crate::{Assembly, Span};
use alloc::vec::Vec;

/// A part of a critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The span that the root waited for.
    pub span: u32,
    /// The start, in nanoseconds since 1970.
    pub from_ns: i64,
    /// The end.
    pub to_ns: i64,
}

/// Finds critical paths, one after the other.
#[derive(Clone, Debug, Default)]
pub struct CriticalPath {
    sections: Vec<Section>,
    /// The spans on the way to the current one, which is last; each waits for the next.
    open: Vec<Open>,
}

/// A span whose children are partly checked.
#[derive(Clone, Copy, Debug)]
struct Open {
    span: u32,
    /// The start of the time in which the parent waited for this span.
    from_ns: i64,
    to_ns: i64,
    /// The end of the time that is not attributed yet.
    at_ns: i64,
    /// The number of children that were checked.
    children: usize,
}

/// The tolerated difference of clocks is a span's duration divided by this number.
const SLACK: i64 = 100;

/// The time after its response in which a server may end its span.
const LATE_END_NS: i64 = 1_000_000;

impl CriticalPath {
    /// The critical path of a span: sections from its start to its end. `assembly` is built from `spans`.
    ///
    /// # Panics
    /// When there is no such span, or `assembly` was built from other spans.
    pub fn of(&mut self, spans: &[Span], assembly: &Assembly, span: usize) -> &[Section] {
        self.sections.clear();
        self.open.clear();
        let nth = u32::try_from(span).expect("no more are assembled");
        self.open.push(Open::new(nth, spans[span].start_ns, spans[span].end_ns));
        while let Some(mut open) = self.open.pop() {
            match next_child(spans, assembly, &mut open) {
                Some(child) => {
                    self.section(open.span, child.to_ns, open.at_ns);
                    open.at_ns = child.from_ns;
                    self.open.extend([open, child]);
                }
                None => self.section(open.span, open.from_ns, open.at_ns),
            }
        }
        self.sections.reverse();
        &self.sections
    }

    fn section(&mut self, span: u32, from_ns: i64, to_ns: i64) {
        if from_ns < to_ns {
            self.sections.push(Section { span, from_ns, to_ns });
        }
    }
}

impl Open {
    const fn new(span: u32, from_ns: i64, to_ns: i64) -> Self {
        Self { span, from_ns, to_ns, at_ns: to_ns, children: 0 }
    }
}

/// The last child that the span waited for before the attributed time.
fn next_child(spans: &[Span], assembly: &Assembly, open: &mut Open) -> Option<Open> {
    let parent_ns = spans[open.span as usize].duration_ns();
    let slack_ns = parent_ns / SLACK;
    let children = assembly.children(open.span as usize);
    while let Some(nth) = children.get(open.children) {
        open.children += 1;
        let child = &spans[*nth as usize];
        let (from_ns, to_ns) = (child.start_ns.max(open.from_ns), child.end_ns.min(open.to_ns));
        let was_waited_for =
            child.duration_ns() <= parent_ns.saturating_add(slack_ns.max(LATE_END_NS));
        let has_ended = to_ns <= open.at_ns.saturating_add(slack_ns);
        if was_waited_for && has_ended && from_ns < to_ns.min(open.at_ns) {
            return Some(Open::new(*nth, from_ns, to_ns.min(open.at_ns)));
        }
    }
    None
}

#[cfg(test)]
mod tests;

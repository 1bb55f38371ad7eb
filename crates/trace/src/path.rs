//! The critical path: what a span waited for at each of its moments.
//!
//! It is followed back from the end. At its end a span had waited for the child that ended last; before that child
//! began, for the one that had ended last by then; and while there was none, it worked itself. Each child is
//! looked at in the same way. What comes out are sections that follow each other from the start of the span to
//! its end, without a gap.
//!
//! | a child | is |
//! |---|---|
//! | that ended a little after the next one began, by up to 1 % of the parent | taken up to there: clocks differ |
//! | that still ran by more than that when the next one began | not waited for: both ran at once |
//! | that begins before its parent, or ends after it | taken as far as it lies within: clocks differ |
//! | that took longer than its parent, by more than 1 % | not waited for: its parent went on without it |
//! | outside of its parent | not waited for |
//!
//! **When it hurts**: a clock that is wrong by more than a span takes, takes all below that span out of the path;
//! the time is then that of its parent. What a span did not say it waited for (a lock, a queue) is its own time.
//!
//! **Source**: Zhang et al., "CRISP: Critical Path Analysis of Large-Scale Microservice Architectures", USENIX ATC
//! 2022, section 3. It takes children that took longer than their parent up to the end of that; here they are not
//! taken, because work that a request leaves behind would hide what it waited for.

use crate::{Assembly, Span};
use alloc::vec::Vec;

/// A part of a critical path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// The span that was waited for, and that waited for none.
    pub span: u32,
    /// From when on.
    pub from_ns: i64,
    /// Up to when.
    pub to_ns: i64,
}

/// Finds critical paths, one after the other.
#[derive(Clone, Debug, Default)]
pub struct CriticalPath {
    sections: Vec<Section>,
    /// The span that is looked at, after those that wait for it.
    open: Vec<Open>,
}

/// A span that is partly looked at.
#[derive(Clone, Copy, Debug)]
struct Open {
    span: u32,
    /// As far as its parent waited for it.
    from_ns: i64,
    to_ns: i64,
    /// The time after it is attributed.
    at_ns: i64,
    /// How many of its children were looked at.
    children: usize,
}

/// The divisor of a span's duration that gives the tolerated difference of clocks.
const SLACK: i64 = 100;

impl CriticalPath {
    /// The critical path of a span, of spans that were assembled: sections from its start to its end.
    ///
    /// # Panics
    /// When there is no such span, or others were assembled.
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

/// The child that was waited for last before the attributed time.
fn next_child(spans: &[Span], assembly: &Assembly, open: &mut Open) -> Option<Open> {
    let parent_ns = spans[open.span as usize].duration_ns();
    let slack_ns = parent_ns / SLACK;
    let children = assembly.children(open.span as usize);
    while let Some(nth) = children.get(open.children) {
        open.children += 1;
        let child = &spans[*nth as usize];
        let (from_ns, to_ns) = (child.start_ns.max(open.from_ns), child.end_ns.min(open.to_ns));
        let was_waited_for = child.duration_ns() <= parent_ns.saturating_add(slack_ns);
        let has_ended = to_ns <= open.at_ns.saturating_add(slack_ns);
        if was_waited_for && has_ended && from_ns < to_ns.min(open.at_ns) {
            return Some(Open::new(*nth, from_ns, to_ns.min(open.at_ns)));
        }
    }
    None
}

#[cfg(test)]
mod tests;

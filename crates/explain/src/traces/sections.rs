//! Divides the critical path of a trace into components, and finds the fan-out of the trace.
//!
//! Each step takes time in proportion to the number of spans, apart from sorting.

use super::{
    AttributeValue, COMPONENTS_MAX, ComponentTime, FIELDS_MAX, Scratch, SpanKind, SpanRow, Traces,
    range,
};
use crate::component::{Component, Phase};
use crate::fan_outs::{CALLS_MIN, FanOut};
use core::ops::Range;
use curtail_trace::Assembly;

/// The operation and the service of components beyond [`COMPONENTS_MAX`].
const OTHER_OPERATIONS: &str = "(other operations)";
const OTHER_SERVICES: &str = "(other services)";

/// A section of the critical path, or a phase of a span.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathSection {
    pub(super) span: u32,
    component: Component,
    from_ns: i64,
    time_ns: i64,
}

impl Traces {
    /// Divides the critical path of the root into components.
    pub(super) fn divide_path(&mut self, rows: &[SpanRow<'_>], root: usize, scratch: &mut Scratch) {
        let Scratch { spans, names, assembly, path, components, sections, .. } = scratch;
        sections.clear();
        components.clear();
        components.resize(rows.len(), None);
        for section in path.of(spans, assembly, root) {
            let nth = section.span as usize;
            let of_call = Phase::of_span(rows[nth].operation);
            let component = if let Some(Some(phase)) = of_call {
                Component::Phase { service: names[nth].0, phase }
            } else {
                // The time of a message belongs to its call.
                let nth = of_call.and_then(|_| assembly.parent(nth)).unwrap_or(nth);
                *components[nth]
                    .get_or_insert_with(|| self.component_of_span(rows, nth, names, assembly))
            };
            let time_ns = section.to_ns - section.from_ns;
            let section =
                PathSection { span: section.span, component, from_ns: section.from_ns, time_ns };
            sections.push(section);
        }
        sections.sort_unstable_by_key(|section| (section.span, section.from_ns));
        split_phases(rows, scratch);
    }

    /// The component of the self time of a span.
    fn component_of_span(
        &mut self,
        rows: &[SpanRow<'_>],
        nth: usize,
        names: &[(u32, u32)],
        assembly: &Assembly,
    ) -> Component {
        let (service, operation) = names[nth];
        let is_no_phase = |child: &&u32| Phase::of_span(rows[**child as usize].operation).is_none();
        let mut children = assembly.children(nth).iter().filter(is_no_phase);
        let (first, second) = (children.next(), children.next());
        let callee =
            first.map(|child| names[*child as usize].0).filter(|callee| *callee != service);
        match callee {
            _ if !matches!(rows[nth].kind, SpanKind::Client | SpanKind::Unset) => {}
            None if first.is_none() => {
                let is_client = rows[nth].kind == SpanKind::Client;
                return Component::UntracedCall { caller: service, operation, is_client };
            }
            Some(callee) if second.is_none() => {
                self.count_served(operation, callee);
                return Component::Gap { caller: service, callee, operation };
            }
            _ => {}
        }
        Component::SelfTime { service, operation }
    }

    /// Counts a call of an operation that a service served.
    fn count_served(&mut self, operation: u32, callee: u32) {
        let served = (operation, callee);
        if self.served.len() >= FIELDS_MAX && !self.served.contains(&served) {
            return;
        }
        let served = self.served.intern(served) as usize;
        if served == self.served_counts.len() {
            self.served_counts.push(0);
        }
        self.served_counts[served] += 1;
    }

    /// The fan-out with the largest spread, of those with calls on the critical path.
    pub(super) fn fan_out(
        &mut self,
        rows: &[SpanRow<'_>],
        scratch: &mut Scratch,
    ) -> Option<FanOut> {
        let Scratch { spans, names, assembly, sections, is_on_path, fan_outs, .. } = scratch;
        let makes_calls = |span: &usize| assembly.children(*span).len() >= CALLS_MIN;
        if !(0..spans.len()).any(|span| makes_calls(&span)) {
            return None;
        }
        is_on_path.clear();
        is_on_path.resize(spans.len(), false);
        // A caller may have no section.
        for section in &*sections {
            let mut at = Some(section.span as usize);
            while let Some(span) = at.filter(|span| !is_on_path[*span]) {
                is_on_path[span] = true;
                at = assembly.parent(span);
            }
        }
        let callers = (0..spans.len()).filter(|span| is_on_path[*span] && makes_calls(span));
        let spans = &*spans;
        let is_call = |nth: &&u32| Phase::of_span(rows[**nth as usize].operation).is_none();
        let of_span = |span| {
            let calls = assembly.children(span).iter().filter(is_call);
            Some((fan_outs.spread(calls.map(|nth| &spans[*nth as usize]))?, span))
        };
        let spreads = callers.filter_map(of_span);
        let ((calls, spread_ns), span) = spreads.max_by_key(|((_, spread_ns), _)| *spread_ns)?;
        let caller = self.operations.intern(names[span]);
        Some(FanOut { caller, spread_ns, calls })
    }

    /// Adds the time of each component.
    pub(super) fn add_times(&mut self, scratch: &mut Scratch) -> Range<u32> {
        let Scratch { sections, numbered, .. } = scratch;
        sections.sort_unstable_by_key(|section| (section.component, section.span));
        numbered.clear();
        for section in &*sections {
            numbered.push((
                self.intern_component(section.component),
                section.span,
                section.time_ns,
            ));
        }
        // Components beyond the limit have one number.
        numbered.sort_unstable_by_key(|(component, span, _)| (*component, *span));
        let from = self.times.len();
        for of_component in numbered.chunk_by(|one, other| one.0 == other.0) {
            let visits = of_component.chunk_by(|one, other| one.1 == other.1).count();
            self.times.push(ComponentTime {
                component: of_component[0].0,
                visits: u32::try_from(visits).expect("the number of spans is limited"),
                time_ns: of_component.iter().map(|(_, _, time_ns)| time_ns).sum(),
            });
        }
        range(from, self.times.len())
    }

    fn intern_component(&mut self, component: Component) -> u32 {
        if self.components.len() < COMPONENTS_MAX || self.components.contains(&component) {
            return self.components.intern(component);
        }
        let operation = self.names.intern_text(OTHER_OPERATIONS);
        let component = component.with_operation(operation);
        if self.components.len() < 2 * COMPONENTS_MAX || self.components.contains(&component) {
            return self.components.intern(component);
        }
        let service = self.names.intern_text(OTHER_SERVICES);
        self.components.intern(Component::SelfTime { service, operation })
    }
}

/// Takes the phases of spans, whose durations are attributes, out of the spans' own sections, the first sections first.
fn split_phases(rows: &[SpanRow<'_>], scratch: &mut Scratch) {
    let Scratch { sections, names, .. } = scratch;
    let (mut from, end) = (0, sections.len());
    while from < end {
        let PathSection { span, from_ns, .. } = sections[from];
        let of_span = sections[from..end].iter().take_while(|section| section.span == span);
        let to = from + of_span.count();
        let mut at = from;
        for (phase, phase_ns) in phases(&rows[span as usize]) {
            let mut time_ns = 0;
            while at < to && time_ns < phase_ns {
                let own_ns = &mut sections[at].time_ns;
                let taken_ns = (phase_ns - time_ns).min(*own_ns);
                *own_ns -= taken_ns;
                time_ns += taken_ns;
                at += usize::from(*own_ns == 0);
            }
            let component = Component::Phase { service: names[span as usize].0, phase };
            sections.push(PathSection { span, component, from_ns, time_ns });
        }
        from = to;
    }
}

/// The phases of a span whose durations are attributes.
fn phases(row: &SpanRow<'_>) -> impl Iterator<Item = (Phase, i64)> {
    row.attributes.iter().filter_map(|(key, value)| {
        let (_, phase) = Phase::ATTRIBUTES.iter().find(|(name, _)| name == key)?;
        let AttributeValue::Number(ns) = value else { return None };
        #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
        let whole_ns = *ns as i64;
        (*ns > 0.0).then_some((*phase, whole_ns))
    })
}

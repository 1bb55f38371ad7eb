//! Writes the result: names for numbers, and a sentence for each finding.

use crate::cause::Cause;
use crate::component::{Component, Phase};
use crate::counterfactual::Counterfactual;
use crate::dominant_delays::{DominantDelay, ParallelCalls};
use crate::excess::{Charge, ComponentExcess, Excess, ServiceExcess};
use crate::explanation::{ComponentShare, Finding, ServiceShare};
use crate::factors::{Factor, FoundFactor};
use crate::populations::Populations;
use crate::replica_pattern::{PatternKind, ReplicaPattern, TraceCount, replica_key_rank};
use crate::slower_components::SlowerComponent;
use crate::traces::Traces;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use curtail_sketch::tail_start;
use curtail_text::numbers::{latency, percent, short, thousands};
use curtail_units::{Duration, wilson_interval};

/// Maximum number of components of a service in the result.
const COMPONENTS_OF_SERVICE_MAX: usize = 5;

/// The quantiles of a finding's traces at which examples are taken.
const EXAMPLES: [f64; 4] = [0.999, 0.99, 0.9, 0.5];

#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) traces: &'a Traces,
    pub(crate) populations: &'a Populations,
    pub(crate) excess: &'a Excess,
    pub(crate) charge: Charge,
}

impl Writer<'_> {
    fn name(&self, number: u32) -> &str {
        self.traces.names.get(number)
    }

    fn operation_name(&self, number: u32) -> String {
        let (service, operation) = *self.traces.operations.get(number);
        format!("{}: {}", self.name(service), self.name(operation))
    }

    pub(crate) fn operations(&self) -> Vec<(String, u64)> {
        let operations = self.populations.operations(self.traces);
        operations.into_iter().map(|(number, count)| (self.operation_name(number), count)).collect()
    }

    /// The excess of which the services have shares: its sum, or that of the services that take longer, if others save
    /// more than these take.
    fn total_ns(&self) -> f64 {
        let more_ns = if self.charge == Charge::AllTime { self.excess.more_ns } else { 0.0 };
        let sum_ns = self.excess.longer_ns + more_ns;
        let longer_ns = || self.excess.by_service.iter().map(|of| of.excess_ns.max(0.0)).sum();
        if sum_ns > 0.0 { sum_ns } else { longer_ns() }
    }

    pub(crate) fn ranking(&self) -> Vec<ServiceShare> {
        let total_ns = self.total_ns();
        let share = |ns: f64| (total_ns > 0.0).then(|| ns / total_ns);
        let of_service = |of: &ServiceExcess| {
            let components = self.components(of.service);
            let (low, high) = of.interval_ns;
            ServiceShare {
                service: self.name(of.service).to_owned(),
                component: components
                    .first()
                    .map_or_else(String::new, |first| first.component.clone()),
                share: share(of.excess_ns),
                interval: share(low).zip(share(high)),
                excess_ns: of.excess_ns,
                components,
            }
        };
        self.excess.by_service.iter().map(of_service).collect()
    }

    /// The components that a service is charged for, the largest excess first.
    fn components(&self, service: u32) -> Vec<ComponentShare> {
        let components = self.excess.components.values().iter().zip(&self.excess.by_component);
        let charged = |(component, excess): &(&Component, &ComponentExcess)| {
            let of_caller =
                matches!(component, Component::Gap { caller, .. } if *caller == service);
            let own_ns = if component.service() == service {
                excess.charged_ns(self.charge) - excess.of_caller_ns
            } else {
                0.0
            };
            own_ns + if of_caller { excess.of_caller_ns } else { 0.0 }
        };
        let mut charged: Vec<_> =
            components.map(|of| (charged(&of), of)).filter(|(ns, _)| *ns != 0.0).collect();
        charged.sort_by(|one, other| other.0.total_cmp(&one.0));
        let share =
            |(_, (component, excess)): (f64, (&Component, &ComponentExcess))| ComponentShare {
                component: self.component_name(*component),
                longer_ns: excess.longer_ns,
                more_ns: excess.more_ns,
                visit_ns: excess.visit_ns,
                visits: excess.visits,
            };
        charged.into_iter().take(COMPONENTS_OF_SERVICE_MAX).map(share).collect()
    }

    fn component_name(&self, component: Component) -> String {
        match component {
            Component::SelfTime { service, operation } => {
                format!("{}: {}", self.name(service), self.name(operation))
            }
            Component::Gap { caller, callee, operation } => {
                format!("{} -> {}: {}", self.name(caller), self.name(callee), self.name(operation))
            }
            Component::UntracedCall { caller, operation, .. } => {
                format!("{} -> untraced service: {}", self.name(caller), self.name(operation))
            }
            Component::Phase { service, phase } => {
                format!("{}: {}", self.name(service), phase.name())
            }
        }
    }

    /// A finding for each service with components that take longer.
    pub(crate) fn slower_component_findings(
        &self,
        slower_components: &[SlowerComponent],
    ) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        for of in &self.excess.by_service {
            let is_charged = |slower: &&SlowerComponent| {
                let component = *self.excess.components.get(slower.component);
                let excess = &self.excess.by_component[slower.component as usize];
                let (of_caller, own) =
                    (excess.of_caller_ns, excess.longer_ns - excess.of_caller_ns);
                let charged = match component {
                    Component::Gap { caller, .. } if of_caller > own => Some(caller),
                    Component::SelfTime { .. }
                    | Component::Gap { .. }
                    | Component::UntracedCall { .. }
                    | Component::Phase { .. } => None,
                };
                charged.unwrap_or_else(|| component.service()) == of.service
            };
            if let Some(slower) =
                slower_components.iter().find(is_charged).filter(|_| of.excess_ns > 0.0)
            {
                findings.push(self.slower_component_finding(of, slower));
            }
        }
        findings
    }

    fn slower_component_finding(&self, of: &ServiceExcess, slower: &SlowerComponent) -> Finding {
        let component = *self.excess.components.get(slower.component);
        let excess = &self.excess.by_component[slower.component as usize];
        let total_ns = self.total_ns();
        let share = |ns: f64| (ns / total_ns).clamp(-1.0, 1.0);
        let (before, after) = excess.visit_ns;
        let (service, subject) = (self.name(of.service), self.component_name(component));
        let text = format!(
            "{service} adds {} to a request ({} of the added time): {subject} takes {} instead of {}",
            time(of.excess_ns),
            percent(share(of.excess_ns)),
            time(after),
            time(before),
        );
        Finding {
            cause: self.cause_of(component),
            text,
            service: service.to_owned(),
            subject,
            share: share(of.excess_ns),
            interval: (share(of.interval_ns.0), share(of.interval_ns.1)),
            p_value: Some(slower.p_value),
            traces: (self.populations.slow.len() as u64, self.traces.len() as u64),
            quantile_ns: None,
            same_as: Vec::new(),
            examples: self.examples(|nth| self.has_component(nth, slower.component)),
        }
    }

    fn cause_of(&self, component: Component) -> Cause {
        match component {
            Component::SelfTime { operation, .. } => {
                Cause::of_wait(self.name(operation)).unwrap_or(Cause::SlowService)
            }
            Component::Gap { .. } => Cause::Network,
            Component::UntracedCall { .. } => Cause::Dependency,
            Component::Phase { phase: Phase::Lookup, .. } => Cause::NameLookup,
            Component::Phase { phase: Phase::Connect | Phase::Handshake, .. } => {
                Cause::ColdConnection
            }
            Component::Phase { phase: Phase::Queue, .. } => Cause::Queueing,
        }
    }

    fn has_component(&self, nth: u32, component: u32) -> bool {
        let times = self.traces.times(&self.traces.rows[nth as usize]);
        times.iter().any(|time| self.excess.resolved[time.component as usize] == component)
    }

    /// IDs of slow traces at several quantiles, the slowest first.
    fn examples(&self, is_of: impl Fn(u32) -> bool) -> Vec<u128> {
        let rows = &self.traces.rows;
        let slow = self.populations.slow.iter().copied();
        let mut slow: Vec<u32> = slow.filter(|nth| is_of(*nth)).collect();
        slow.sort_unstable_by_key(|nth| rows[*nth as usize].duration_ns);
        if slow.is_empty() {
            return Vec::new();
        }
        let at = |quantile| rows[slow[tail_start(quantile, slow.len())] as usize].trace_id;
        let mut examples: Vec<u128> = EXAMPLES.into_iter().map(at).collect();
        examples.dedup();
        examples
    }

    /// Slow traces with a cause, without another one if there are such.
    fn examples_of(&self, masks: &[u16], bit: usize) -> Vec<u128> {
        let only = self.examples(|trace| masks[trace as usize] == 1 << bit);
        if only.is_empty() {
            self.examples(|trace| masks[trace as usize] & (1 << bit) != 0)
        } else {
            only
        }
    }

    /// A finding for each factor.
    fn factor_findings(
        &self,
        factors: &[FoundFactor],
        attribution: &Attribution<'_>,
    ) -> Vec<Finding> {
        let finding = |(nth, found): (usize, &FoundFactor)| {
            // Of factors with the same traces, the one that names a cause; of calls, those that make the others; of a
            // replica's attributes, its name.
            let mut same = found.same.clone();
            same.sort_by_key(|(factor, _)| {
                let field = self.field_of(*factor);
                let depth = self.traces.depths.get(field as usize).copied().unwrap_or_default();
                let key = self.name(self.traces.fields.get(field).name);
                (self.cause_of_factor(*factor).rank(), depth, replica_key_rank(key))
            });
            let (named, estimate) = same[0];
            let (service, condition) = self.condition(named);
            let quantile_ns = attribution.effect.of_factors_ns.get(nth).copied();
            let share = attribution.fractions[nth];
            let compared = estimate.risk_ratio().map_or_else(
                || "and none of the others".to_owned(),
                |ratio| format!("{} times the ratio of the others", short(ratio, 1)),
            );
            let text = format!(
                "{condition} ({service}) explains {} of the slow requests: {} of {} requests with it are slow, {compared}",
                percent(share),
                thousands(estimate.slow.into()),
                thousands(estimate.all.into()),
            );
            let mut same_as: Vec<String> =
                same[1..].iter().map(|(alias, _)| self.condition(*alias).1).collect();
            // A call counts at both of its services, with the same text.
            let mut known = vec![condition.clone()];
            same_as.retain(|alias| {
                let is_new = !known.contains(alias);
                known.push(alias.clone());
                is_new
            });
            Finding {
                cause: self.cause_of_factor(named),
                text,
                service: service.to_owned(),
                subject: condition,
                share,
                interval: (
                    (share - estimate.half_width()).max(0.0),
                    (share + estimate.half_width()).min(1.0),
                ),
                p_value: Some(estimate.p_value()),
                traces: (estimate.slow.into(), estimate.all.into()),
                quantile_ns,
                same_as,
                examples: self.examples_of(attribution.masks, nth),
            }
        };
        factors.iter().enumerate().map(finding).collect()
    }

    /// The service and the condition of a factor.
    fn condition(&self, factor: Factor) -> (&str, String) {
        let field = self.traces.fields.get(self.field_of(factor));
        let (service, key) = (self.name(field.service), self.name(field.name));
        let of_calls = if field.is_call_count { "calls of " } else { "" };
        let condition = match factor {
            Factor::Value(value) => {
                format!("{key} = {}", self.name(self.traces.values.get(value).1))
            }
            Factor::Above(_, cut) => format!("{of_calls}{key} > {}", short(cut, 3)),
            Factor::AtMost(_, cut) => format!("{of_calls}{key} <= {}", short(cut, 3)),
            Factor::Called(_) => format!("a call of {key}"),
        };
        (service, condition)
    }

    fn field_of(&self, factor: Factor) -> u32 {
        match factor {
            Factor::Value(value) => self.traces.values.get(value).0,
            Factor::Above(field, _) | Factor::AtMost(field, _) | Factor::Called(field) => field,
        }
    }

    fn cause_of_factor(&self, factor: Factor) -> Cause {
        let field = self.traces.fields.get(self.field_of(factor));
        cause_of_condition(factor, self.name(field.name), field.is_call_count)
    }

    /// A finding for each component or fan-out that dominates many slow traces.
    fn dominant_delay_findings(
        &self,
        delays: &[DominantDelay],
        attribution: &Attribution<'_>,
    ) -> Vec<Finding> {
        let slow_count = self.populations.slow.len() as f64;
        let finding = |delay: &DominantDelay| {
            let share = attribution.fractions[delay.bit];
            let (cause, service, subject, why) = self.dominant_delay(delay);
            let text = format!("{subject} explains {} of the slow requests: {why}", percent(share));
            Finding {
                cause,
                text,
                service: self.name(service).to_owned(),
                subject,
                share,
                interval: wilson_interval(share.clamp(0.0, 1.0), slow_count),
                p_value: None,
                traces: (delay.slow.into(), self.traces.len() as u64),
                quantile_ns: attribution.effect.of_factors_ns.get(delay.bit).copied(),
                same_as: Vec::new(),
                examples: self.examples_of(attribution.masks, delay.bit),
            }
        };
        delays.iter().map(finding).collect()
    }

    /// The cause, the service, the subject, and why it is the cause.
    fn dominant_delay(&self, delay: &DominantDelay) -> (Cause, u32, String, String) {
        let slow = thousands(delay.slow.into());
        let mut reasons = Vec::new();
        let mut named = None;
        if let Some(number) = delay.component {
            let component = *self.excess.components.get(number);
            let (before, after) = self.excess.by_component[number as usize].visit_ns;
            reasons.push(format!(
                "most of the time that {slow} of them take longer is there, {} a call instead of {}",
                time(after),
                time(before),
            ));
            named = Some((
                self.cause_of(component),
                component.service(),
                self.component_name(component),
            ));
        }
        if let Some(replica_pattern) = delay.replica_pattern {
            reasons.push(self.replica_pattern(replica_pattern));
            let cause = named.as_mut().map(|(cause, ..)| cause);
            cause.into_iter().for_each(|cause| *cause = with_replicas(*cause, replica_pattern));
        }
        if let Some(ParallelCalls { caller, count }) = delay.fan_out {
            reasons.push(format!(
                "{slow} of them would not be slow if the slowest of {} parallel calls took as long as the median",
                short(count, 0),
            ));
            let (service, _) = *self.traces.operations.get(caller);
            let of = format!("fan-out of {}", self.operation_name(caller));
            named = Some(match named {
                Some((Cause::SlowService | Cause::Dependency, _, component)) => {
                    (Cause::FanOut, service, format!("{of} to {component}"))
                }
                Some(named) => named,
                None => (Cause::FanOut, service, of),
            });
        }
        let (cause, service, subject) = named.expect("it is of a component or of a fan-out");
        (cause, service, subject, reasons.join("; "))
    }

    fn replica_pattern(&self, ReplicaPattern { key, kind }: ReplicaPattern) -> String {
        let of = |count: TraceCount| {
            format!("{} of {}", thousands(count.long.into()), thousands(count.all.into()))
        };
        let key = self.name(key);
        match kind {
            PatternKind::Simultaneous { same_replica, other_replicas, .. } => format!(
                "of the requests that begin meanwhile, {} with the same {key} take long too, and {} with another",
                of(same_replica),
                of(other_replicas),
            ),
            PatternKind::AfterIdle { least_ns, traces } => format!(
                "{} requests take long that come after {} without a request with the same {key}",
                of(traces),
                time(least_ns as f64),
            ),
        }
    }

    /// The findings of a tail, by the lower bounds of their intervals, the largest first.
    pub(crate) fn tail_findings(
        &self,
        found: &[FoundFactor],
        delays: &[DominantDelay],
        attribution: &Attribution<'_>,
    ) -> Vec<Finding> {
        let mut findings = self.factor_findings(found, attribution);
        findings.extend(self.dominant_delay_findings(delays, attribution));
        findings.sort_by(|one, other| other.interval.0.total_cmp(&one.interval.0));
        findings
    }
}

/// What each factor and dominant delay explains, by its bit in the masks of traces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribution<'a> {
    pub(crate) masks: &'a [u16],
    pub(crate) fractions: &'a [f64],
    pub(crate) effect: &'a Counterfactual,
}

/// The cause that a condition on an attribute, or on the number of calls of an operation, stands for.
fn cause_of_condition(factor: Factor, name: &str, is_call_count: bool) -> Cause {
    match factor {
        Factor::Called(_) => Cause::of_wait(name).unwrap_or(Cause::CodePath),
        Factor::Above(..) if is_call_count => Cause::MoreCalls,
        // Requests with fewer calls take another path.
        Factor::AtMost(..) if is_call_count => Cause::CodePath,
        Factor::AtMost(..) => Cause::of_small_number(name),
        Factor::Value(_) | Factor::Above(..) => Cause::of_key(name),
    }
}

/// The cause of a component whose slow traces have this in common at their replicas.
fn with_replicas(cause: Cause, replica_pattern: ReplicaPattern) -> Cause {
    match (cause, replica_pattern.kind) {
        (_, PatternKind::Simultaneous { is_everywhere: true, .. }) => Cause::SlowTogether,
        (Cause::SlowService | Cause::Dependency, PatternKind::Simultaneous { .. }) => Cause::Pause,
        (
            Cause::SlowService | Cause::Dependency | Cause::Network,
            PatternKind::AfterIdle { .. },
        ) => Cause::WakeUp,
        (named, _) => named,
    }
}

fn time(ns: f64) -> String {
    latency(Duration::from_ns_f64(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_calls_and_small_amounts_are_other_causes_than_many_and_large_ones() {
        let (above, at_most) = (Factor::Above(0, 1.0), Factor::AtMost(0, 1.0));
        for (name, is_call_count, of_above, of_at_most) in [
            ("SELECT", true, Cause::MoreCalls, Cause::CodePath),
            ("http.request.body.size", false, Cause::LargePayload, Cause::Attribute),
            ("http.request.resend_count", false, Cause::Retries, Cause::Attribute),
            ("queue.length", false, Cause::Queueing, Cause::Attribute),
            ("host.cpu.busy_ratio", false, Cause::BusyProcessor, Cause::Attribute),
            ("jvm.gc.duration", false, Cause::Pause, Cause::Attribute),
            ("connection.age", false, Cause::ColdConnection, Cause::ColdConnection),
        ] {
            assert_eq!(cause_of_condition(above, name, is_call_count), of_above, "{name}");
            assert_eq!(cause_of_condition(at_most, name, is_call_count), of_at_most, "{name}");
        }
    }
}

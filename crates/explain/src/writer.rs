//! Writes the result: names for numbers, and a sentence for each finding.

use crate::cause::Cause;
use crate::component::{Part, Phase};
use crate::counterfactual::Counterfactual;
use crate::excess::{Charge, Excess, PartExcess, ServiceExcess};
use crate::explanation::{ComponentShare, Finding, ServiceShare};
use crate::factors::{Factor, Factors, FoundFactor};
use crate::populations::{NO_STRATUM, Populations};
use crate::shifts::Shift;
use crate::statistics::index;
use crate::traces::Traces;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use curtail_text::numbers::{latency, percent, short, thousands};
use curtail_units::Duration;

/// The number of components of a service in the result.
const COMPONENTS_MAX: usize = 5;

/// The smallest share of a wait (gap, queue, connection) that is a finding of its own.
const WAIT_SHARE_MIN: f64 = 0.2;

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

    pub(crate) fn endpoints(&self) -> Vec<(String, u64)> {
        let endpoints = self.populations.endpoints(self.traces);
        let name = |endpoint| {
            let (service, operation) = *self.traces.endpoints.get(endpoint);
            format!("{}: {}", self.name(service), self.name(operation))
        };
        endpoints.into_iter().map(|(endpoint, count)| (name(endpoint), count)).collect()
    }

    /// The excess of which the services have shares: its sum, or that of the services that take longer, if others save
    /// more than these take.
    fn total_ns(&self) -> f64 {
        let more_ns = if self.charge == Charge::AllTime { self.excess.more_ns } else { 0.0 };
        let sum_ns = self.excess.longer_ns + more_ns;
        let longer_ns = || self.excess.of_services.iter().map(|of| of.excess_ns.max(0.0)).sum();
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
        self.excess.of_services.iter().map(of_service).collect()
    }

    /// The components that a service is charged for, the largest excess first.
    fn components(&self, service: u32) -> Vec<ComponentShare> {
        let parts = self.excess.parts.values().iter().zip(&self.excess.of_parts);
        let charged = |(part, excess): &(&Part, &PartExcess)| {
            let of_caller = matches!(part, Part::Gap { caller, .. } if *caller == service);
            let own_ns = if part.service() == service {
                excess.charged_ns(self.charge) - excess.of_caller_ns
            } else {
                0.0
            };
            own_ns + if of_caller { excess.of_caller_ns } else { 0.0 }
        };
        let mut charged: Vec<_> =
            parts.map(|of| (charged(&of), of)).filter(|(ns, _)| *ns != 0.0).collect();
        charged.sort_by(|one, other| other.0.total_cmp(&one.0));
        let share = |(_, (part, excess)): (f64, (&Part, &PartExcess))| ComponentShare {
            component: self.component(*part),
            longer_ns: excess.longer_ns,
            more_ns: excess.more_ns,
            visit_ns: excess.visit_ns,
            visits: excess.visits,
        };
        charged.into_iter().take(COMPONENTS_MAX).map(share).collect()
    }

    fn component(&self, part: Part) -> String {
        match part {
            Part::Own { service, operation } => {
                format!("{}: {}", self.name(service), self.name(operation))
            }
            Part::Gap { caller, callee, operation } => {
                format!("{} -> {}: {}", self.name(caller), self.name(callee), self.name(operation))
            }
            Part::Unseen { caller, operation, .. } => {
                format!("{} -> ?: {}", self.name(caller), self.name(operation))
            }
            Part::Phase { service, phase } => format!("{}: {}", self.name(service), phase.name()),
        }
    }

    /// A finding for each service with components that take longer.
    pub(crate) fn of_shifts(&self, shifts: &[Shift]) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        for of in &self.excess.of_services {
            let is_charged = |shift: &&Shift| {
                let part = *self.excess.parts.get(shift.part);
                let excess = &self.excess.of_parts[shift.part as usize];
                let (of_caller, own) =
                    (excess.of_caller_ns, excess.longer_ns - excess.of_caller_ns);
                let charged = match part {
                    Part::Gap { caller, .. } if of_caller > own => Some(caller),
                    Part::Own { .. }
                    | Part::Gap { .. }
                    | Part::Unseen { .. }
                    | Part::Phase { .. } => None,
                };
                charged.unwrap_or_else(|| part.service()) == of.service
            };
            if let Some(shift) = shifts.iter().find(is_charged).filter(|_| of.excess_ns > 0.0) {
                findings.push(self.of_shift(of, shift));
            }
        }
        findings
    }

    fn of_shift(&self, of: &ServiceExcess, shift: &Shift) -> Finding {
        let part = *self.excess.parts.get(shift.part);
        let excess = &self.excess.of_parts[shift.part as usize];
        let total_ns = self.total_ns();
        let share = |ns: f64| (ns / total_ns).clamp(-1.0, 1.0);
        let (before, after) = excess.visit_ns;
        let (service, component) = (self.name(of.service), self.component(part));
        let text = format!(
            "{service} adds {} to a request ({} of the added time): {component} takes {} instead of {}",
            time(of.excess_ns),
            percent(share(of.excess_ns)),
            time(after),
            time(before),
        );
        Finding {
            cause: self.cause_of(part),
            text,
            service: service.to_owned(),
            subject: component,
            share: share(of.excess_ns),
            interval: (share(of.interval_ns.0), share(of.interval_ns.1)),
            p_value: Some(shift.p_value),
            traces: (self.populations.slow.len() as u64, self.traces.len() as u64),
            quantile_ns: None,
            same_as: Vec::new(),
            examples: self.examples(|nth| self.has_part(nth, shift.part)),
        }
    }

    fn cause_of(&self, part: Part) -> Cause {
        match part {
            Part::Own { operation, .. } => {
                Cause::of_wait(self.name(operation)).unwrap_or(Cause::SlowService)
            }
            Part::Gap { .. } => Cause::Network,
            Part::Unseen { .. } => Cause::Dependency,
            Part::Phase { phase: Phase::Lookup, .. } => Cause::NameLookup,
            Part::Phase { phase: Phase::Connect | Phase::Handshake, .. } => Cause::ColdConnection,
            Part::Phase { phase: Phase::Queue, .. } => Cause::Queueing,
        }
    }

    fn has_part(&self, nth: u32, part: u32) -> bool {
        let times = self.traces.times(&self.traces.rows[nth as usize]);
        times.iter().any(|time| self.excess.resolved[time.part as usize] == part)
    }

    /// IDs of slow traces at several quantiles, the slowest first.
    fn examples(&self, is_of: impl Fn(u32) -> bool) -> Vec<u128> {
        let rows = &self.traces.rows;
        let mut slow: Vec<u32> =
            self.populations.slow.iter().copied().filter(|nth| is_of(*nth)).collect();
        slow.sort_unstable_by_key(|nth| rows[*nth as usize].duration_ns);
        if slow.is_empty() {
            return Vec::new();
        }
        let at = |quantile| rows[slow[index(quantile, slow.len())] as usize].trace_id;
        let mut examples: Vec<u128> = EXAMPLES.into_iter().map(at).collect();
        examples.dedup();
        examples
    }

    /// A finding for each factor, the largest share first.
    pub(crate) fn of_factors(&self, factors: &Factors, effect: &Counterfactual) -> Vec<Finding> {
        let finding = |(nth, found): (usize, &FoundFactor)| {
            // Of factors with the same traces, the one that names a cause.
            let mut same: Vec<Factor> =
                [found.factor].into_iter().chain(found.aliases.iter().copied()).collect();
            same.sort_by_key(|factor| self.cause_of_factor(*factor).rank());
            let (service, condition) = self.condition(same[0]);
            let quantile_ns = effect.of_factors_ns.get(nth).copied();
            let lift = if found.lift.is_finite() {
                format!("{} times the ratio of the others", short(found.lift, 1))
            } else {
                "and none of the others".to_owned()
            };
            let text = format!(
                "{condition} ({service}) explains {} of the slow requests: {} of {} requests with it are slow, {lift}",
                percent(found.fraction),
                thousands(found.slow.into()),
                thousands(found.all.into()),
            );
            let mut same_as: Vec<String> =
                same[1..].iter().map(|alias| self.condition(*alias).1).collect();
            // A call counts at both of its services, with the same text.
            let mut known = vec![condition.clone()];
            same_as.retain(|alias| {
                let is_new = !known.contains(alias);
                known.push(alias.clone());
                is_new
            });
            Finding {
                cause: self.cause_of_factor(same[0]),
                text,
                service: service.to_owned(),
                subject: condition,
                share: found.fraction,
                interval: found.interval,
                p_value: Some(found.p_value),
                traces: (found.slow.into(), found.all.into()),
                quantile_ns,
                same_as,
                examples: self.examples(|trace| factors.masks[trace as usize] & (1 << nth) != 0),
            }
        };
        let mut findings: Vec<_> = factors.found.iter().enumerate().map(finding).collect();
        findings.sort_by(|one, other| other.interval.0.total_cmp(&one.interval.0));
        findings
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
        match factor {
            Factor::Called(_) => Cause::of_wait(self.name(field.name)).unwrap_or(Cause::CodePath),
            Factor::Above(..) | Factor::AtMost(..) if field.is_call_count => Cause::MoreCalls,
            Factor::Value(_) | Factor::Above(..) | Factor::AtMost(..) => {
                Cause::of_key(self.name(field.name))
            }
        }
    }

    /// Findings for gaps, queues and connections that have a large share of the excess.
    pub(crate) fn of_waits(&self) -> Vec<Finding> {
        let total_ns = self.total_ns();
        let parts = (0..).zip(self.excess.parts.values().iter().zip(&self.excess.of_parts));
        let is_wait = |part: &Part| match part {
            Part::Own { operation, .. } => Cause::of_wait(self.name(*operation)).is_some(),
            Part::Gap { .. } | Part::Phase { .. } => true,
            // A dependency works as well as it waits; nothing says which.
            Part::Unseen { .. } => false,
        };
        let waits = parts.filter(|(_, (part, _))| is_wait(part));
        let finding = |(number, (part, excess)): (u32, (&Part, &PartExcess))| {
            let share = excess.charged_ns(self.charge) / total_ns;
            let (before, after) = excess.visit_ns;
            let component = self.component(*part);
            let half = 1.96 * excess.share_error;
            (share >= WAIT_SHARE_MIN && share > half).then(|| Finding {
                cause: self.cause_of(*part),
                text: format!(
                    "{} of the time that slow requests take longer is in {component}: {} a call instead of {}",
                    percent(share), time(after), time(before),
                ),
                service: self.name(part.service()).to_owned(),
                subject: component,
                share,
                interval: ((share - half).max(-1.0), (share + half).min(1.0)),
                p_value: None,
                traces: (self.populations.slow.len() as u64, self.traces.len() as u64),
                quantile_ns: None,
                same_as: Vec::new(),
                examples: self.examples(|trace| self.has_part(trace, number)),
            })
        };
        waits.filter_map(finding).collect()
    }

    /// The share of slow traces that are slow for none of the factors found.
    pub(crate) fn unexplained(&self, factors: &Factors) -> f64 {
        // The counts of slow and of all traces, with and without a factor, of each stratum.
        let mut counts = vec![[[0.0_f64; 2]; 2]; self.populations.counts.len()];
        for (trace, stratum) in
            self.populations.strata.iter().enumerate().filter(|(_, s)| **s != NO_STRATUM)
        {
            let has = usize::from(factors.masks[trace] != 0);
            let count = &mut counts[*stratum as usize][has];
            count[0] += f64::from(u8::from(self.populations.is_slow[trace]));
            count[1] += 1.0;
        }
        let explained = counts.iter().map(|[without, with]| {
            let ratio = if without[1] > 0.0 { without[0] / without[1] } else { 0.0 };
            with[0] - ratio * with[1]
        });
        let explained = explained.sum::<f64>() / self.populations.slow.len() as f64;
        (1.0 - explained).clamp(0.0, 1.0)
    }
}

fn time(ns: f64) -> String {
    latency(Duration::from_ns_f64(ns))
}

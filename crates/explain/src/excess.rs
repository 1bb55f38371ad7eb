//! Where the time went: the excess of slow traces over the baseline, by component and by service.
//!
//! For a component with V visits and time T a trace, the excess has a twofold decomposition (Oaxaca, "Male-female wage
//! differentials in urban labor markets", International Economic Review 14, 1973; Blinder, "Wage discrimination", Journal
//! of Human Resources 8, 1973). The interaction (more visits that are also longer) counts as longer visits:
//!
//! | term | formula | meaning |
//! |---|---|---|
//! | longer | `V_slow × (T_slow / V_slow − T_base / V_base)` | each visit takes longer |
//! | more | `(V_slow − V_base) × T_base / V_base` | there are more visits |
//!
//! The terms of all components sum to the difference of the mean durations, because the sections of a critical path
//! tile its root.
//!
//! **The service charged for a gap**: a delay of a host is in all its calls. The part of a gap that a caller's calls to all
//! services have in common is charged to the caller, the rest to the service called.
//!
//! **Intervals**: traces are grouped in blocks by time, and blocks are resampled, so that traces that are slow together
//! count as one observation. The intervals of all services hold together (the largest studentized deviation decides).

use crate::component::{Component, Components};
use crate::populations::Populations;
use crate::traces::Traces;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use curtail_sketch::tail_start;
use curtail_units::Rng;
use libm::sqrt;

/// The largest number of blocks of a population.
const BLOCKS_MAX: usize = 40;

/// The number of resamples.
const RESAMPLES: usize = 400;

/// The probability that all intervals hold.
const CONFIDENCE: f64 = 0.95;

/// Visits and time of one component in some traces.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    visits: f64,
    time_ns: f64,
}

/// The excess of one component, as a mean of the slow traces.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ComponentExcess {
    pub(crate) longer_ns: f64,
    pub(crate) more_ns: f64,
    /// Mean time of a visit in the baseline and in the slow traces.
    pub(crate) visit_ns: (f64, f64),
    /// Mean visits of a trace in the baseline and in the slow traces.
    pub(crate) visits: (f64, f64),
    /// The part of `longer_ns` that is charged to the caller of a gap.
    pub(crate) of_caller_ns: f64,
}

impl ComponentExcess {
    pub(crate) fn charged_ns(&self, charge: Charge) -> f64 {
        self.longer_ns + if charge == Charge::AllTime { self.more_ns } else { 0.0 }
    }
}

/// The excess of a service.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServiceExcess {
    pub(crate) service: u32,
    pub(crate) excess_ns: f64,
    pub(crate) interval_ns: (f64, f64),
}

/// The excess of all components and services.
#[derive(Clone, Debug, Default)]
pub(crate) struct Excess {
    /// Components, calls resolved to the services that serve them.
    pub(crate) components: Components,
    /// The number in `components` for each component of the traces.
    pub(crate) resolved: Vec<u32>,
    pub(crate) by_component: Vec<ComponentExcess>,
    /// Services by excess, largest first.
    pub(crate) by_service: Vec<ServiceExcess>,
    /// The sum of `longer_ns`, and of `more_ns`, of all components.
    pub(crate) longer_ns: f64,
    pub(crate) more_ns: f64,
}

/// Whether services are charged for more visits, or for longer visits only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charge {
    LongerVisits,
    AllTime,
}

impl Excess {
    pub(crate) fn of(
        traces: &Traces,
        populations: &Populations,
        charge: Charge,
        rng: &Rng,
    ) -> Self {
        let mut this = Self::default();
        this.resolve_calls(traces);
        // The last sum counts the traces.
        let width = this.components.len() + 1;
        let slow = blocks(traces, &populations.slow, (&this.resolved, width), |_| 1.0);
        let weight = |nth| populations.weight(nth);
        let baseline = blocks(traces, &populations.baseline, (&this.resolved, width), weight);
        this.by_component = this.split(&total(&slow, width), &total(&baseline, width));
        this.longer_ns = this.by_component.iter().map(|component| component.longer_ns).sum();
        this.more_ns = this.by_component.iter().map(|component| component.more_ns).sum();
        this.by_service = this
            .charge_services(&this.by_component, charge)
            .into_iter()
            .map(|(service, excess_ns)| ServiceExcess {
                service,
                excess_ns,
                interval_ns: (excess_ns, excess_ns),
            })
            .collect();
        this.resample((&slow, &baseline), charge, rng);
        this.by_service.sort_by(|one, other| other.excess_ns.total_cmp(&one.excess_ns));
        this
    }

    /// Finds the service behind each call without a span of the called service: the service that serves the same operation
    /// elsewhere, else the same gRPC interface (`shop.Cart` of `shop.Cart/GetItem`).
    fn resolve_calls(&mut self, traces: &Traces) {
        let (mut by_operation, mut by_interface) = (BTreeMap::new(), BTreeMap::new());
        let counts = traces.served.values().iter().zip(&traces.served_counts);
        for ((operation, callee), count) in counts {
            let known = by_operation.entry(*operation).or_insert((*count, *callee));
            *known = (*known).max((*count, *callee));
            if let Some(interface) = interface(traces.names.get(*operation)) {
                let known = by_interface.entry(interface).or_insert((*count, *callee));
                *known = (*known).max((*count, *callee));
            }
        }
        for component in traces.components.values() {
            let component = match *component {
                Component::UntracedCall { caller, operation, is_client } => {
                    let interface = interface(traces.names.get(operation));
                    let served = by_operation.get(&operation);
                    let served = served.or_else(|| by_interface.get(interface?));
                    match served {
                        Some((_, callee)) if *callee != caller => {
                            Component::Gap { caller, callee: *callee, operation }
                        }
                        _ if is_client => *component,
                        _ => Component::SelfTime { service: caller, operation },
                    }
                }
                Component::SelfTime { .. } | Component::Gap { .. } | Component::Phase { .. } => {
                    *component
                }
            };
            self.resolved.push(self.components.intern(component));
        }
    }

    fn split(&self, slow: &[Sum], baseline: &[Sum]) -> Vec<ComponentExcess> {
        let count = |sums: &[Sum]| sums.last().map_or(1.0, |traces| traces.visits);
        let (slow_count, baseline_count) = (count(slow), count(baseline));
        let split = |(slow, baseline): (&Sum, &Sum)| {
            let visit = |sum: &Sum, other: f64| {
                if sum.visits > 0.0 { sum.time_ns / sum.visits } else { other }
            };
            let base_ns = visit(baseline, visit(slow, 0.0));
            let slow_ns = visit(slow, base_ns);
            let visits = (baseline.visits / baseline_count, slow.visits / slow_count);
            ComponentExcess {
                longer_ns: visits.1 * (slow_ns - base_ns),
                more_ns: (visits.1 - visits.0) * base_ns,
                visit_ns: (base_ns, slow_ns),
                visits,
                of_caller_ns: 0.0,
            }
        };
        let mut components: Vec<_> =
            slow.iter().zip(baseline).take(self.components.len()).map(split).collect();
        self.charge_callers(&mut components);
        components
    }

    /// Charges to each caller what the gaps to all services that it calls have in common.
    fn charge_callers(&self, excess: &mut [ComponentExcess]) {
        let mut of_callers = BTreeMap::<u32, BTreeMap<u32, (f64, f64)>>::new();
        for (component, excess) in self.components.values().iter().zip(&*excess) {
            if let Component::Gap { caller, callee, .. } = component {
                let sum = of_callers.entry(*caller).or_default().entry(*callee).or_default();
                *sum = (sum.0 + excess.longer_ns, sum.1 + excess.visits.1);
            }
        }
        let common = |calls: &BTreeMap<u32, (f64, f64)>| {
            // Slow traces without calls of a service say nothing about these calls.
            let of_calls = calls.values().filter(|(_, visits)| *visits > 0.0);
            let of_visits = of_calls.map(|(longer, visits)| longer / visits);
            if of_visits.clone().count() < 2 {
                return 0.0;
            }
            of_visits.fold(f64::INFINITY, f64::min).max(0.0)
        };
        let common: BTreeMap<u32, f64> =
            of_callers.iter().map(|(caller, calls)| (*caller, common(calls))).collect();
        for (component, excess) in self.components.values().iter().zip(excess) {
            if let Component::Gap { caller, .. } = component {
                excess.of_caller_ns =
                    (common[caller] * excess.visits.1).min(excess.longer_ns.max(0.0));
            }
        }
    }

    fn charge_services(
        &self,
        by_component: &[ComponentExcess],
        charge: Charge,
    ) -> BTreeMap<u32, f64> {
        let mut services = BTreeMap::<u32, f64>::new();
        for (component, excess) in self.components.values().iter().zip(by_component) {
            let more_ns = if charge == Charge::AllTime { excess.more_ns } else { 0.0 };
            if let Component::Gap { caller, .. } = component {
                *services.entry(*caller).or_default() += excess.of_caller_ns;
            }
            *services.entry(component.service()).or_default() +=
                excess.longer_ns - excess.of_caller_ns + more_ns;
        }
        services
    }

    /// Sets the intervals of all services.
    fn resample(&mut self, blocks: (&[Vec<Sum>], &[Vec<Sum>]), charge: Charge, rng: &Rng) {
        let width = self.components.len() + 1;
        let mut rng = rng.split("blocks");
        let mut resamples: Vec<Vec<f64>> = Vec::with_capacity(RESAMPLES);
        for _ in 0..RESAMPLES {
            let mut draw = |blocks: &[Vec<Sum>]| {
                let drawn: Vec<_> =
                    blocks.iter().map(|_| &blocks[rng.below(blocks.len())]).collect();
                let mut sums = vec![Sum::default(); width];
                for block in drawn {
                    add(&mut sums, block);
                }
                sums
            };
            let (slow, baseline) = (draw(blocks.0), draw(blocks.1));
            let components = self.split(&slow, &baseline);
            let services = self.charge_services(&components, charge);
            resamples.push(
                self.by_service
                    .iter()
                    .map(|of| services.get(&of.service).copied().unwrap_or(0.0))
                    .collect(),
            );
        }
        let deviations: Vec<f64> = (0..self.by_service.len())
            .map(|nth| deviation(resamples.iter().map(|resample| resample[nth])))
            .collect();
        let mut largest: Vec<f64> = resamples
            .iter()
            .map(|resample| {
                let studentized = resample.iter().zip(&self.by_service).zip(&deviations);
                let studentized = studentized.filter(|(_, deviation)| **deviation > 0.0);
                let studentized =
                    studentized.map(|((ns, of), deviation)| (ns - of.excess_ns).abs() / deviation);
                studentized.fold(0.0, f64::max)
            })
            .collect();
        largest.sort_unstable_by(f64::total_cmp);
        let critical = largest[tail_start(CONFIDENCE, largest.len())];
        for (of, deviation) in self.by_service.iter_mut().zip(deviations) {
            let half = critical * deviation;
            of.interval_ns = (of.excess_ns - half, of.excess_ns + half);
        }
    }
}

/// The interface of a gRPC operation, whose name is `package.Interface/Method`.
fn interface(operation: &str) -> Option<&str> {
    let (interface, _) = operation.rsplit_once('/')?;
    (interface.contains('.') && !interface.contains(' ')).then_some(interface)
}

/// Sums of consecutive groups of traces.
fn blocks(
    traces: &Traces,
    population: &[u32],
    (resolved, width): (&[u32], usize),
    weight: impl Fn(u32) -> f64,
) -> Vec<Vec<Sum>> {
    let len = population.len().div_ceil(BLOCKS_MAX).max(1);
    let block = |of_block: &[u32]| {
        let mut sums = vec![Sum::default(); width];
        for nth in of_block {
            let weight = weight(*nth);
            sums[width - 1].visits += weight;
            for time in traces.times(&traces.rows[*nth as usize]) {
                let sum = &mut sums[resolved[time.component as usize] as usize];
                sum.visits += weight * f64::from(time.visits);
                sum.time_ns += weight * time.time_ns as f64;
            }
        }
        sums
    };
    population.chunks(len).map(block).collect()
}

fn total(blocks: &[Vec<Sum>], width: usize) -> Vec<Sum> {
    let mut sums = vec![Sum::default(); width];
    blocks.iter().for_each(|block| add(&mut sums, block));
    sums
}

fn add(sums: &mut [Sum], block: &[Sum]) {
    for (sum, more) in sums.iter_mut().zip(block) {
        sum.visits += more.visits;
        sum.time_ns += more.time_ns;
    }
}

fn deviation(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let n = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / n;
    sqrt(values.map(|value| (value - mean) * (value - mean)).sum::<f64>() / n)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times of the gaps from one caller to the services 1, 2 and so on that are charged to the caller. Each gap has its
    /// added time and its visits in a slow trace.
    fn charged_to_caller(gaps: &[(f64, f64)]) -> Vec<f64> {
        let (mut excess, mut components) = (Excess::default(), Vec::new());
        for (callee, (longer_ns, visits)) in (1..).zip(gaps) {
            excess.components.intern(Component::Gap { caller: 0, callee, operation: 9 });
            let visits = (1.0, *visits);
            components.push(ComponentExcess {
                longer_ns: *longer_ns,
                visits,
                ..ComponentExcess::default()
            });
        }
        excess.charge_callers(&mut components);
        components.iter().map(|component| component.of_caller_ns).collect()
    }

    #[test]
    fn a_caller_is_charged_for_what_its_calls_have_in_common() {
        assert_eq!(charged_to_caller(&[(50.0, 1.0), (20.0, 1.0)]), [20.0, 20.0]);
        assert_eq!(charged_to_caller(&[(50.0, 1.0)]), [0.0]);
        // Slow traces call one of the two services only: nothing is common.
        assert_eq!(charged_to_caller(&[(50.0, 1.0), (0.0, 0.0)]), [0.0, 0.0]);
    }
}

//! A snapshot as the text that Prometheus scrapes (`OpenMetrics` 1.0).
//!
//! `prometheus-client` writes the format; the numbers are our own, so there are no metric objects.

use super::catalogue::{self as table, Metric};
use super::labels::Counts;
use super::leaf::LeafCounts;
use super::snapshot::{ConnectionsSnapshot, Snapshot};
use super::upstream::UpstreamCounts;
use crate::trail::ConnectPhases;
use curtail_sketch::Histogram;
use curtail_units::Duration;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::exemplar::Exemplar;
use std::fmt;

/// Where the buckets of a duration end: five a decade in equal steps of ratio (the series R5 of
/// ISO 3), from 100 µs to 63 s.
const BOUNDS: [Duration; 30] = {
    const STEPS: [u64; 5] = [100, 160, 250, 400, 630];
    let mut bounds = [Duration::ZERO; 30];
    let (mut decade_us, mut next) = (1, 0);
    while next < bounds.len() {
        bounds[next] = Duration::from_us(STEPS[next % 5] * decade_us);
        next += 1;
        if next.is_multiple_of(5) {
            decade_us *= 10;
        }
    }
    bounds
};

impl Collector for Snapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Out { encoder };
        self.requests(&mut out)?;
        self.attempts(&mut out)?;
        self.remedies(&mut out)?;
        self.connections(&mut out)?;
        self.leaves(&mut out)?;
        self.listeners(&mut out)?;
        self.telemetry(&mut out)?;
        self.process(&mut out)
    }
}

/// One function for each part of the proxy, each in the order of the table.
impl Snapshot {
    fn requests(&self, out: &mut Out<'_>) -> fmt::Result {
        out.counts(&table::REQUESTS, self.by_upstream("status", |u| &u.requests))?;
        out.histograms(
            &table::REQUEST_DURATION,
            self.upstreams.iter().map(|u| (("upstream", &*u.name), &u.counts.latency)),
        )?;
        out.counts(&table::ANSWERS, self.by_upstream("reason", |u| &u.answers))?;
        out.counts(&table::REQUESTS_FAILED, self.by_upstream("reason", |u| &u.failed))
    }

    fn attempts(&self, out: &mut Out<'_>) -> fmt::Result {
        out.counts(&table::ATTEMPTS, self.by_upstream("reason", |u| &u.sent))?;
        let answered = self.by_upstream("outcome", |u| &u.attempts_answered);
        out.counts(&table::ATTEMPTS_ANSWERED, answered)?;
        let failed = self.by_upstream("failure", |u| &u.attempts_failed);
        out.counts(&table::ATTEMPTS_FAILED, failed)?;
        out.counts(&table::ATTEMPTS_CANCELLED, self.by_upstream("reason", |u| &u.cancelled))
    }

    fn remedies(&self, out: &mut Out<'_>) -> fmt::Result {
        out.counts(&table::DECISIONS_AGAINST, self.by_upstream("reason", |u| &u.held))?;
        out.counts(&table::PROBES, self.by_upstream("reason", |u| &u.probes))?;
        let upstreams = || self.upstreams.iter().map(|u| ([("upstream", &*u.name)], u));
        let delays = upstreams().filter_map(|(labels, u)| Some((labels, u.hedge_delay?)));
        out.gauges(&table::HEDGE_DELAY, delays.map(|(labels, d)| (labels, d.as_secs_f64())))?;
        let budgets = || upstreams().map(|(labels, u)| (labels, u.budget));
        out.gauges(&table::BUDGET_REQUESTS, budgets().map(|(labels, (all, _))| (labels, all)))?;
        out.gauges(&table::BUDGET_EXTRA, budgets().map(|(labels, (_, extra))| (labels, extra)))?;
        let replicas = upstreams().flat_map(|([upstream], u)| {
            u.replicas.iter().map(move |replica| {
                let authority = &*replica.connections.authority;
                ([upstream, ("replica", authority)], replica.in_flight)
            })
        });
        out.gauges(&table::IN_FLIGHT, replicas)
    }

    fn connections(&self, out: &mut Out<'_>) -> fmt::Result {
        let each = || self.addresses().map(|(labels, to)| (labels, to, &to.counts));
        out.gauges(&table::CONNECTIONS_OPEN, each().map(|(labels, _, c)| (labels, c.open)))?;
        out.gauges(&table::CONNECTIONS_IDLE, each().map(|(labels, to, _)| (labels, to.idle)))?;
        out.counters(&table::CONNECTIONS_OPENED, each().map(|(labels, _, c)| (labels, c.opened)))?;
        out.counters(&table::CONNECTIONS_FAILED, each().map(|(labels, _, c)| (labels, c.failed)))?;
        let phases = each().flat_map(|([owner, replica], _, counts)| {
            let ConnectPhases { lookup, tcp, tls } = counts.phases;
            [("lookup", lookup), ("tcp", tcp), ("tls", tls)]
                .map(|(phase, time)| ([owner, replica, ("phase", phase)], time.as_secs_f64()))
        });
        out.counters(&table::CONNECT, phases)
    }

    fn leaves(&self, out: &mut Out<'_>) -> fmt::Result {
        let each = || self.leaves.iter().map(|leaf| (("leaf", &*leaf.name), leaf));
        let queues = each().map(|(name, leaf)| ([name], leaf.queue_len));
        out.gauges(&table::LEAF_QUEUE_LEN, queues)?;
        let in_service = each().map(|(name, leaf)| ([name], leaf.in_service));
        out.gauges(&table::LEAF_IN_SERVICE, in_service)?;
        let by_reason = |counts: fn(&LeafCounts) -> &Counts| {
            each().map(move |(name, leaf)| (name, "reason", counts(&leaf.counts)))
        };
        out.counts(&table::LEAF_STARTED, by_reason(|counts| &counts.started))?;
        out.counts(&table::LEAF_REFUSED, by_reason(|counts| &counts.refused))?;
        out.counts(&table::LEAF_DROPPED, by_reason(|counts| &counts.dropped))?;
        out.counts(&table::LEAF_TWINS_TOLD, by_reason(|counts| &counts.twins_told))?;
        out.histograms(&table::LEAF_WAIT, each().map(|(name, leaf)| (name, &leaf.counts.waited)))
    }

    fn listeners(&self, out: &mut Out<'_>) -> fmt::Result {
        let each = || self.listeners.iter().map(|(name, c)| ([("listener", &**name)], c));
        out.gauges(&table::CLIENTS_OPEN, each().map(|(labels, c)| (labels, c.open)))?;
        out.counters(&table::CLIENTS_ACCEPTED, each().map(|(labels, c)| (labels, c.accepted)))?;
        out.counters(&table::CLIENTS_WAITED, each().map(|(labels, c)| (labels, c.waited)))?;
        out.counters(&table::UNROUTED, each().map(|(labels, c)| (labels, c.unrouted)))?;
        out.counters(&table::MALFORMED, each().map(|(labels, c)| (labels, c.malformed)))
    }

    fn telemetry(&self, out: &mut Out<'_>) -> fmt::Result {
        if let Some(spans) = &self.spans {
            out.counters(&table::SPANS_RECORDED, [([], spans.recorded)])?;
            out.counters(&table::SPANS_SENT, [([], spans.sent)])?;
            let causes = [
                ("buffer_full", spans.dropped),
                ("undelivered", spans.undelivered),
                ("rejected", spans.rejected),
            ];
            let dropped = causes.map(|(cause, count)| ([("cause", cause)], count));
            out.counters(&table::SPANS_DROPPED, dropped)?;
            out.counters(&table::SPAN_EXPORTS_FAILED, [([], spans.exports_failed)])?;
        }
        match self.journal_lost {
            Some(lost) => out.counters(&table::JOURNAL_LOST, [([], lost)]),
            None => Ok(()),
        }
    }

    fn process(&self, out: &mut Out<'_>) -> fmt::Result {
        let results = [("ok", self.process.reloads_ok), ("failed", self.process.reloads_failed)];
        let reloads = results.map(|(result, count)| ([("result", result)], count));
        out.counters(&table::CONFIG_RELOADS, reloads)?;
        out.counters(&table::INVARIANTS_BROKEN, [([], self.process.invariants_broken)])?;
        out.info(&table::BUILD, &[("version", env!("CARGO_PKG_VERSION"))])?;
        let cpu = self.usage.cpu.map(|cpu| ([], cpu.as_secs_f64()));
        out.counters(&table::PROCESS_CPU, cpu)?;
        let resident = self.usage.resident.map(|resident| ([], resident.get()));
        out.gauges(&table::PROCESS_MEMORY, resident)?;
        let started = Duration::from_ns(self.started_unix_ns).as_secs_f64();
        out.gauges(&table::PROCESS_START, [([], started)])
    }

    /// A count of every upstream that a second label splits.
    fn by_upstream<'a>(
        &'a self,
        label: &'a str,
        counts: impl Fn(&UpstreamCounts) -> &Counts + 'a,
    ) -> impl Iterator<Item = ((&'a str, &'a str), &'a str, &'a Counts)> {
        let upstreams = self.upstreams.iter();
        upstreams.map(move |u| (("upstream", &*u.name), label, counts(&u.counts)))
    }

    /// Every address that is connected to, with the labels that name it.
    fn addresses(&self) -> impl Iterator<Item = ([(&str, &str); 2], &ConnectionsSnapshot)> {
        let replicas = self.upstreams.iter().flat_map(|upstream| {
            let replicas = upstream.replicas.iter().map(|replica| &replica.connections);
            replicas.map(|to| (("upstream", &*upstream.name), to))
        });
        let servers = self.leaves.iter().map(|leaf| (("leaf", &*leaf.name), &leaf.server));
        replicas.chain(servers).map(|(owner, to)| ([owner, ("replica", &*to.authority)], to))
    }
}

/// A label's name and value.
type Label<'a> = (&'a str, &'a str);

/// The exposition as it is written, one metric with all its series at a time.
struct Out<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Out<'_> {
    fn counters<'a, const N: usize, V: EncodeCounterValue>(
        &mut self,
        metric: &Metric,
        series: impl IntoIterator<Item = ([Label<'a>; N], V)>,
    ) -> fmt::Result {
        let exemplar = None::<&Exemplar<NoLabelSet, f64>>;
        let mut family = self.family(metric)?;
        series.into_iter().try_for_each(|(labels, value)| match N {
            0 => family.encode_counter(&value, exemplar),
            _ => family.encode_family(&labels)?.encode_counter(&value, exemplar),
        })
    }

    /// Counters that one more label splits: its name, and its values with their counts.
    fn counts<'a>(
        &mut self,
        metric: &Metric,
        series: impl Iterator<Item = (Label<'a>, &'a str, &'a Counts)>,
    ) -> fmt::Result {
        let split = series.flat_map(|(owner, label, counts)| {
            counts.iter().map(move |&(value, count)| ([owner, (label, value)], count))
        });
        self.counters(metric, split)
    }

    fn gauges<'a, const N: usize, V: EncodeGaugeValue>(
        &mut self,
        metric: &Metric,
        series: impl IntoIterator<Item = ([Label<'a>; N], V)>,
    ) -> fmt::Result {
        let mut family = self.family(metric)?;
        series.into_iter().try_for_each(|(labels, value)| match N {
            0 => family.encode_gauge(&value),
            _ => family.encode_family(&labels)?.encode_gauge(&value),
        })
    }

    fn histograms<'a>(
        &mut self,
        metric: &Metric,
        series: impl Iterator<Item = (Label<'a>, &'a Histogram)>,
    ) -> fmt::Result {
        let mut family = self.family(metric)?;
        for (label, durations) in series {
            let (sum, count) = (durations.sum_secs_f64(), durations.count());
            let buckets = onto_bounds(durations);
            family
                .encode_family(&[label])?
                .encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }

    fn info(&mut self, metric: &Metric, labels: &[Label<'_>]) -> fmt::Result {
        self.family(metric)?.encode_info(&labels)
    }

    fn family<'s>(&'s mut self, metric: &'s Metric) -> Result<MetricEncoder<'s>, fmt::Error> {
        let Metric { base, unit, kind, help, .. } = metric;
        self.encoder.encode_descriptor(base, help, unit.as_ref(), *kind)
    }
}

/// How many durations lie between each of [`BOUNDS`] (in seconds) and the one before; the last entry is
/// without bound. What cannot be told from a bound counts as longer, so speed is never overstated.
fn onto_bounds(durations: &Histogram) -> Vec<(f64, u64)> {
    let bounds = BOUNDS.iter().map(|bound| bound.as_secs_f64()).chain([f64::INFINITY]);
    let mut buckets: Vec<_> = bounds.map(|bound| (bound, 0)).collect();
    for bucket in durations.buckets() {
        let place = BOUNDS.partition_point(|&bound| bound < bucket.upper);
        buckets[place].1 += bucket.count;
    }
    buckets
}

#[cfg(test)]
mod tests;

//! A snapshot as the text that Prometheus scrapes (OpenMetrics 1.0).
//!
//! `prometheus-client` writes the format; the numbers are our own, so there are no metric objects.

use super::catalogue::{self as table, Metric};
use super::labels::Counts;
use super::snapshot::{ConnectionsSnapshot, Snapshot, UpstreamSnapshot};
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

/// Label names and values.
type Labels<'a> = [(&'a str, &'a str)];

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
        self.by_label(out, &table::REQUESTS, "status", |u| &u.counts.requests)?;
        let mut durations = out.family(&table::REQUEST_DURATION)?;
        for upstream in &self.upstreams {
            durations.histogram(&[("upstream", &upstream.name)], &upstream.counts.latency)?;
        }
        self.by_label(out, &table::ANSWERS, "reason", |u| &u.counts.answers)?;
        self.by_label(out, &table::REQUESTS_FAILED, "reason", |u| &u.counts.failed)
    }

    fn attempts(&self, out: &mut Out<'_>) -> fmt::Result {
        self.by_label(out, &table::ATTEMPTS, "reason", |u| &u.counts.sent)?;
        self.by_label(out, &table::ATTEMPTS_ANSWERED, "outcome", |u| &u.counts.attempts_answered)?;
        self.by_label(out, &table::ATTEMPTS_FAILED, "failure", |u| &u.counts.attempts_failed)?;
        self.by_label(out, &table::ATTEMPTS_CANCELLED, "reason", |u| &u.counts.cancelled)
    }

    fn remedies(&self, out: &mut Out<'_>) -> fmt::Result {
        self.by_label(out, &table::DECISIONS_AGAINST, "reason", |u| &u.counts.held)?;
        self.by_label(out, &table::PROBES, "reason", |u| &u.counts.probes)?;
        let mut delays = out.family(&table::HEDGE_DELAY)?;
        for upstream in &self.upstreams {
            if let Some(delay) = upstream.hedge_delay {
                delays.gauge(&[("upstream", &upstream.name)], delay.as_secs_f64())?;
            }
        }
        let mut requests = out.family(&table::BUDGET_REQUESTS)?;
        for upstream in &self.upstreams {
            requests.gauge(&[("upstream", &upstream.name)], upstream.budget.0)?;
        }
        let mut extra = out.family(&table::BUDGET_EXTRA)?;
        for upstream in &self.upstreams {
            extra.gauge(&[("upstream", &upstream.name)], upstream.budget.1)?;
        }
        let mut in_flight = out.family(&table::IN_FLIGHT)?;
        for upstream in &self.upstreams {
            for replica in &upstream.replicas {
                let authority = &replica.connections.authority;
                let labels = [("upstream", &*upstream.name), ("replica", authority)];
                in_flight.gauge(&labels, replica.in_flight)?;
            }
        }
        Ok(())
    }

    fn connections(&self, out: &mut Out<'_>) -> fmt::Result {
        let mut open = out.family(&table::CONNECTIONS_OPEN)?;
        self.each_address(|labels, to| open.gauge(labels, to.counts.open))?;
        let mut idle = out.family(&table::CONNECTIONS_IDLE)?;
        self.each_address(|labels, to| idle.gauge(labels, to.idle))?;
        let mut opened = out.family(&table::CONNECTIONS_OPENED)?;
        self.each_address(|labels, to| opened.counter(labels, to.counts.opened))?;
        let mut failed = out.family(&table::CONNECTIONS_FAILED)?;
        self.each_address(|labels, to| failed.counter(labels, to.counts.failed))?;
        let mut connect = out.family(&table::CONNECT)?;
        self.each_address(|&[owner, replica], to| {
            let phases = to.counts.phases;
            let phases = [("lookup", phases.lookup), ("tcp", phases.tcp), ("tls", phases.tls)];
            phases.into_iter().try_for_each(|(phase, time)| {
                connect.counter(&[owner, replica, ("phase", phase)], time.as_secs_f64())
            })
        })
    }

    fn leaves(&self, out: &mut Out<'_>) -> fmt::Result {
        let mut queue_len = out.family(&table::LEAF_QUEUE_LEN)?;
        for leaf in &self.leaves {
            queue_len.gauge(&[("leaf", &leaf.name)], leaf.queue_len)?;
        }
        let mut in_service = out.family(&table::LEAF_IN_SERVICE)?;
        for leaf in &self.leaves {
            in_service.gauge(&[("leaf", &leaf.name)], leaf.in_service)?;
        }
        let by_reason = [
            (&table::LEAF_STARTED, 0),
            (&table::LEAF_REFUSED, 1),
            (&table::LEAF_DROPPED, 2),
            (&table::LEAF_TWINS_TOLD, 3),
        ];
        for (metric, place) in by_reason {
            let mut family = out.family(metric)?;
            for leaf in &self.leaves {
                let counts = &leaf.counts;
                let counts =
                    [&counts.started, &counts.refused, &counts.dropped, &counts.twins_told];
                family.counters(("leaf", &leaf.name), "reason", counts[place])?;
            }
        }
        let mut waits = out.family(&table::LEAF_WAIT)?;
        for leaf in &self.leaves {
            waits.histogram(&[("leaf", &leaf.name)], &leaf.counts.waited)?;
        }
        Ok(())
    }

    fn listeners(&self, out: &mut Out<'_>) -> fmt::Result {
        let mut open = out.family(&table::CLIENTS_OPEN)?;
        for (name, counts) in &self.listeners {
            open.gauge(&[("listener", name)], counts.open)?;
        }
        let mut accepted = out.family(&table::CLIENTS_ACCEPTED)?;
        for (name, counts) in &self.listeners {
            accepted.counter(&[("listener", name)], counts.accepted)?;
        }
        let mut refused = out.family(&table::CLIENTS_REFUSED)?;
        for (name, counts) in &self.listeners {
            refused.counter(&[("listener", name)], counts.refused)?;
        }
        let mut unrouted = out.family(&table::UNROUTED)?;
        for (name, counts) in &self.listeners {
            unrouted.counter(&[("listener", name)], counts.unrouted)?;
        }
        Ok(())
    }

    fn telemetry(&self, out: &mut Out<'_>) -> fmt::Result {
        if let Some(spans) = &self.spans {
            out.family(&table::SPANS_RECORDED)?.counter(&[], spans.recorded)?;
            out.family(&table::SPANS_SENT)?.counter(&[], spans.sent)?;
            let mut dropped = out.family(&table::SPANS_DROPPED)?;
            dropped.counter(&[("cause", "buffer_full")], spans.dropped)?;
            dropped.counter(&[("cause", "undelivered")], spans.undelivered)?;
            dropped.counter(&[("cause", "rejected")], spans.rejected)?;
            out.family(&table::SPAN_EXPORTS_FAILED)?.counter(&[], spans.exports_failed)?;
        }
        if let Some(lost) = self.journal_lost {
            out.family(&table::JOURNAL_LOST)?.counter(&[], lost)?;
        }
        Ok(())
    }

    fn process(&self, out: &mut Out<'_>) -> fmt::Result {
        let mut reloads = out.family(&table::CONFIG_RELOADS)?;
        reloads.counter(&[("result", "ok")], self.process.reloads_ok)?;
        reloads.counter(&[("result", "failed")], self.process.reloads_failed)?;
        let broken = self.process.invariants_broken;
        out.family(&table::INVARIANTS_BROKEN)?.counter(&[], broken)?;
        out.family(&table::BUILD)?.info(&[("version", env!("CARGO_PKG_VERSION"))])?;
        if let Some(cpu) = self.usage.cpu {
            out.family(&table::PROCESS_CPU)?.counter(&[], cpu.as_secs_f64())?;
        }
        if let Some(resident) = self.usage.resident {
            out.family(&table::PROCESS_MEMORY)?.gauge(&[], resident.get())?;
        }
        let started = Duration::from_ns(self.started_unix_ns);
        out.family(&table::PROCESS_START)?.gauge(&[], started.as_secs_f64())
    }

    /// A counter of every upstream, split by a second label.
    fn by_label(
        &self,
        out: &mut Out<'_>,
        metric: &'static Metric,
        label: &str,
        counts: impl Fn(&UpstreamSnapshot) -> &Counts,
    ) -> fmt::Result {
        let mut family = out.family(metric)?;
        for upstream in &self.upstreams {
            family.counters(("upstream", &upstream.name), label, counts(upstream))?;
        }
        Ok(())
    }

    /// Every address that is connected to, with the labels that name it.
    fn each_address(
        &self,
        mut show: impl FnMut(&[(&str, &str); 2], &ConnectionsSnapshot) -> fmt::Result,
    ) -> fmt::Result {
        let replicas = self.upstreams.iter().flat_map(|upstream| {
            let to_address = |replica| (("upstream", &*upstream.name), replica);
            upstream.replicas.iter().map(|replica| &replica.connections).map(to_address)
        });
        let servers = self.leaves.iter().map(|leaf| (("leaf", &*leaf.name), &leaf.server));
        replicas
            .chain(servers)
            .try_for_each(|(owner, to)| show(&[owner, ("replica", &*to.authority)], to))
    }
}

/// The exposition as it is written.
struct Out<'a> {
    encoder: DescriptorEncoder<'a>,
}

/// One metric, of which the series follow.
struct Family<'a> {
    encoder: MetricEncoder<'a>,
}

impl Out<'_> {
    fn family(&mut self, metric: &'static Metric) -> Result<Family<'_>, fmt::Error> {
        let Metric { base, unit, kind, help, .. } = metric;
        let encoder = self.encoder.encode_descriptor(base, help, unit.as_ref(), *kind)?;
        Ok(Family { encoder })
    }
}

impl Family<'_> {
    fn counter(&mut self, labels: &Labels<'_>, value: impl EncodeCounterValue) -> fmt::Result {
        let exemplar = None::<&Exemplar<NoLabelSet, f64>>;
        self.encoder.encode_family(&labels)?.encode_counter(&value, exemplar)
    }

    /// Counters that one more label tells apart.
    fn counters(&mut self, owner: (&str, &str), label: &str, counts: &Counts) -> fmt::Result {
        counts.iter().try_for_each(|(name, count)| self.counter(&[owner, (label, *name)], *count))
    }

    fn gauge(&mut self, labels: &Labels<'_>, value: impl EncodeGaugeValue) -> fmt::Result {
        self.encoder.encode_family(&labels)?.encode_gauge(&value)
    }

    fn histogram(&mut self, labels: &Labels<'_>, durations: &Histogram) -> fmt::Result {
        let (sum, count) = (durations.sum_secs_f64(), durations.count());
        let mut series = self.encoder.encode_family(&labels)?;
        series.encode_histogram::<NoLabelSet>(sum, count, &onto_bounds(durations), None)
    }

    fn info(&mut self, labels: &Labels<'_>) -> fmt::Result {
        self.encoder.encode_info(&labels)
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

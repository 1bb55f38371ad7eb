//! A snapshot as families of series, the input of every exposition format.

use super::catalogue as table;
use super::leaf::LeafCounts;
use super::process::ListenerCounts;
use super::snapshot::{ConnectionsSnapshot, Snapshot, UpstreamSnapshot};
use super::upstream::UpstreamCounts;
use crate::holdout::HoldoutSnapshot;
use curtail_http::connection_counts::ConnectionCounts;
use curtail_load::holdout::{EffectVerdict, PercentileEffect, Sides};
use curtail_metrics::{Counts, Family, FamilyCollector, MetricsSnapshot, process};
use curtail_policy::{CircuitState, RemedyState};
use curtail_units::{Duration, Label as _};

/// One function for each part of the proxy, in the order of the catalogue.
impl MetricsSnapshot for Snapshot {
    fn families(&self) -> Vec<Family<'_>> {
        let mut out = FamilyCollector::default();
        self.requests(&mut out);
        self.attempts(&mut out);
        self.remedies(&mut out);
        self.holdouts(&mut out);
        self.dry_runs(&mut out);
        self.fan_outs(&mut out);
        self.route_limits(&mut out);
        self.tenants(&mut out);
        self.discoveries(&mut out);
        self.connections(&mut out);
        self.leaves(&mut out);
        self.listeners(&mut out);
        self.telemetry(&mut out);
        self.process(&mut out);
        out.into_families()
    }
}

impl Snapshot {
    fn requests<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        out.counts(&table::REQUESTS, self.by_upstream("status", |u| &u.requests));
        out.histograms(
            &table::REQUEST_DURATION,
            self.upstreams.iter().map(|u| (("upstream", &*u.name), &u.counts.latency)),
        );
        out.histograms(
            &table::REQUEST_CUT_SHORT,
            self.upstreams.iter().map(|u| (("upstream", &*u.name), &u.counts.cut_short)),
        );
        out.counts(&table::RESPONSES, self.by_upstream("reason", |u| &u.responses));
        out.counts(&table::REQUESTS_FAILED, self.by_upstream("reason", |u| &u.failed));
    }

    fn attempts<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        out.counts(&table::ATTEMPTS, self.by_upstream("reason", |u| &u.sent));
        let responded = self.by_upstream("outcome", |u| &u.attempts_responded);
        out.counts(&table::ATTEMPTS_RESPONDED, responded);
        let failed = self.by_upstream("failure", |u| &u.attempts_failed);
        out.counts(&table::ATTEMPTS_FAILED, failed);
        let cancelled = self.by_upstream("reason", |u| &u.cancelled);
        let by_fan_out = self.by_upstream("reason", |u| &u.cancelled_by_fan_out);
        out.counts(&table::ATTEMPTS_CANCELLED, cancelled.chain(by_fan_out));
    }

    fn remedies<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        out.counts(&table::REMEDIES_SKIPPED, self.by_upstream("reason", |u| &u.skipped));
        out.counts(&table::PROBES, self.by_upstream("reason", |u| &u.probes));
        let upstreams = || self.upstreams.iter().map(|u| ([("upstream", &*u.name)], u));
        let delays = upstreams().filter_map(|(labels, u)| Some((labels, u.hedge_delay?)));
        out.add(&table::HEDGE_DELAY, delays.map(|(labels, d)| (labels, d.as_secs_f64())));
        let budgets = || upstreams().map(|(labels, u)| (labels, u.budget));
        out.add(&table::BUDGET_REQUESTS, budgets().map(|(labels, (all, _))| (labels, all)));
        out.add(&table::BUDGET_EXTRA, budgets().map(|(labels, (_, extra))| (labels, extra)));
        let limits = || upstreams().filter_map(|(labels, u)| Some((labels, u.in_flight_limit?)));
        out.add(&table::UPSTREAM_IN_FLIGHT, limits().map(|(labels, of)| (labels, of.in_flight)));
        let remaining = limits().map(|(labels, of)| (labels, of.max.saturating_sub(of.in_flight)));
        out.add(&table::UPSTREAM_REMAINING, remaining);
        let open = limits().map(|(labels, of)| (labels, u32::from(of.limit.is_open)));
        out.add(&table::UPSTREAM_AT_LIMIT, open);
        let rejected = limits().map(|(labels, of)| (labels, of.limit.rejected));
        out.add(&table::UPSTREAM_REJECTED, rejected);
        let replicas = || {
            upstreams().flat_map(|([upstream], u)| {
                u.replicas.iter().map(move |replica| {
                    ([upstream, ("replica", &*replica.connections.address)], replica)
                })
            })
        };
        out.add(&table::IN_FLIGHT, replicas().map(|(labels, r)| (labels, r.in_flight)));
        let ejected = replicas()
            .map(|(labels, r)| (labels, u32::from(r.circuit.state == CircuitState::Open)));
        out.add(&table::EJECTED, ejected);
        let is_positive = |time: Duration| u32::from(time > Duration::ZERO);
        let suspect = replicas().map(|(labels, r)| (labels, is_positive(r.suspect_for)));
        out.add(&table::SUSPECT, suspect);
        let full = replicas().map(|(labels, r)| (labels, is_positive(r.full_for)));
        out.add(&table::FULL, full);
        out.counts(&table::EJECTIONS, self.by_upstream("reason", |u| &u.ejections));
        let healthy = replicas()
            .filter_map(|(labels, r)| Some((labels, u32::from(r.health.as_ref()?.is_healthy?))));
        out.add(&table::HEALTHY, healthy);
        let has_checks = |u: &&UpstreamSnapshot| u.replicas.iter().any(|r| r.health.is_some());
        let checked = self.upstreams.iter().filter(has_checks);
        let checks = checked.map(|u| (("upstream", &*u.name), "result", &u.counts.health_checks));
        out.counts(&table::HEALTH_CHECKS, checks);
        let has_zones = |u: &&UpstreamSnapshot| u.replicas.iter().any(|r| r.side.is_some());
        let zoned = self.upstreams.iter().filter(has_zones);
        let zones = zoned.map(|u| (("upstream", &*u.name), "zone", &u.counts.zones));
        out.counts(&table::ATTEMPT_ZONES, zones);
    }

    fn holdouts<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        let each = || {
            let upstreams = self.upstreams.iter();
            upstreams.filter_map(|u| Some((("upstream", &*u.name), u.holdout.as_ref()?)))
        };
        let requests = each().flat_map(|(name, holdout)| {
            let Sides { without, with } = holdout.requests;
            [("holdout", without), ("remedy", with)].map(|(side, n)| ([name, ("side", side)], n))
        });
        out.add(&table::HOLDOUT_REQUESTS, requests);
        let periods = || {
            each().flat_map(|(name, holdout)| {
                holdout.periods.iter().map(move |p| ([name, ("period", p.period)], p))
            })
        };
        let extra = periods().filter_map(|(labels, p)| Some((labels, p.extra_ratio()?)));
        out.add(&table::HOLDOUT_EXTRA, extra);
        out.add(&table::HOLDOUT_LATENCY, bounds(each()));
        out.add(&table::HOLDOUT_VERDICT, verdicts(each()));
        let switchbacks = || {
            let upstreams = self.upstreams.iter();
            upstreams.filter_map(|u| Some((("upstream", &*u.name), u.switchback.as_ref()?)))
        };
        out.add(&table::SWITCHBACK_LATENCY, bounds(switchbacks()));
        out.add(&table::SWITCHBACK_VERDICT, verdicts(switchbacks()));
    }

    fn dry_runs<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        let each = || {
            let upstreams = self.upstreams.iter();
            upstreams.filter_map(|u| Some((("upstream", &*u.name), u, u.dry_run.as_ref()?)))
        };
        out.add(&table::DRY_RUN_WON, each().map(|(name, u, _)| ([name], u.counts.dry_run_won)));
        out.add(&table::DRY_RUN_LATENCY, bounds(each().map(|(name, _, dry_run)| (name, dry_run))));
        let auto = || {
            let upstreams = self.upstreams.iter();
            upstreams.filter_map(|u| Some((("upstream", &*u.name), u, u.remedy.as_ref()?)))
        };
        let states = auto().flat_map(|(name, _, remedy)| {
            let present = remedy.state.name();
            let each = RemedyState::NAMES.iter();
            each.map(move |state| ([name, ("state", *state)], u32::from(*state == present)))
        });
        out.add(&table::REMEDY_STATE, states);
        let decisions = auto().map(|(name, u, _)| (name, "reason", &u.counts.remedy_decisions));
        out.counts(&table::REMEDY_DECISIONS, decisions);
    }

    fn fan_outs<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        let each = || self.fan_outs.iter().map(|(name, counts)| (("route", &**name), counts));
        let requests = each().map(|(name, counts)| (name, "result", &counts.requests));
        out.counts(&table::FAN_OUT_REQUESTS, requests);
        let rest = each().flat_map(|(name, c)| {
            [("finished", c.rest_finished), ("cancelled", c.rest_cancelled)]
                .map(|(result, calls)| ([name, ("result", result)], calls))
        });
        out.add(&table::FAN_OUT_REST_CALLS, rest);
        let missing = each().map(|(name, counts)| ([name], counts.missing));
        out.add(&table::FAN_OUT_SHARDS_MISSING, missing);
        out.histograms(&table::FAN_OUT_DURATION, each().map(|(name, c)| (name, &c.latency)));
    }

    fn route_limits<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        let each = || self.route_limits.iter().map(|limits| (("route", &*limits.route), limits));
        let rejected = each().map(|(name, limits)| (name, "reason", &limits.counts.rejected));
        out.counts(&table::LIMITS_REJECTED, rejected);
        let in_flight = || each().filter_map(|(name, limits)| Some(([name], limits.in_flight?)));
        out.add(&table::LIMITS_IN_FLIGHT, in_flight().map(|(name, (count, _))| (name, count)));
        out.add(&table::LIMITS_IN_FLIGHT_MAX, in_flight().map(|(name, (_, max))| (name, max)));
        let full = each().map(|(name, limits)| (name, "table", &limits.counts.table_full));
        out.counts(&table::LIMITS_TABLE_FULL, full);
    }

    fn tenants<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        let Some(decades) = &self.tenants else { return };
        let each = || decades.iter().map(|of| (("decade", &*of.requests_min), of));
        out.add(&table::TENANTS, each().map(|(decade, of)| ([decade], of.tenants)));
        out.add(&table::TENANT_REQUESTS, each().map(|(decade, of)| ([decade], of.requests)));
        out.add(&table::TENANT_ERRORS, each().map(|(decade, of)| ([decade], of.errors)));
        let latencies = each().flat_map(|(decade, of)| {
            let percentiles = of.percentiles.iter();
            percentiles.map(move |(name, latency)| {
                ([decade, ("percentile", *name)], latency.as_secs_f64())
            })
        });
        out.add(&table::TENANT_LATENCY, latencies);
    }

    fn discoveries<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        let each = || {
            let upstreams = self.upstreams.iter();
            upstreams.filter_map(|u| Some((("upstream", &*u.name), u.discovery.as_ref()?)))
        };
        let lookups = each().map(|(name, discovery)| (name, "result", &discovery.lookups));
        out.counts(&table::DISCOVERY_LOOKUPS, lookups);
        let ages =
            each().filter_map(|(name, of)| Some(([name], of.endpoints_age()?.as_secs_f64())));
        out.add(&table::DISCOVERY_AGE, ages);
        let endpoints = each().map(|(name, discovery)| ([name], discovery.endpoints.len()));
        out.add(&table::DISCOVERY_ENDPOINTS, endpoints);
    }

    fn connections<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        let each = || self.addresses().map(|(labels, to)| (labels, to, &to.counts));
        out.add(
            &table::CONNECTIONS_OPEN,
            each().map(|(labels, _, c)| (labels, c.opened - c.closed)),
        );
        out.add(&table::CONNECTIONS_IDLE, each().map(|(labels, to, _)| (labels, to.idle)));
        out.add(&table::CONNECTIONS_OPENED, each().map(|(labels, _, c)| (labels, c.opened)));
        out.add(&table::CONNECTIONS_FAILED, each().map(|(labels, _, c)| (labels, c.failed)));
        let refused = each().map(|(labels, _, c)| (labels, c.streams_refused));
        out.add(&table::STREAMS_REFUSED, refused);
        out.add(&table::CONNECTIONS_WAITING, each().map(|(labels, to, _)| (labels, to.waiting)));
        let limits = || {
            each().flat_map(|([owner, replica], _, c)| {
                [("connections", c.connections_full), ("waiting", c.waiting_full)]
                    .map(|(limit, counts)| ([owner, replica, ("limit", limit)], counts))
            })
        };
        let open = limits().map(|(labels, limit)| (labels, u32::from(limit.is_open)));
        out.add(&table::CONNECTIONS_AT_LIMIT, open);
        let rejected = limits().map(|(labels, limit)| (labels, limit.rejected));
        out.add(&table::CONNECTIONS_REJECTED, rejected);
        let phases = each().flat_map(|([owner, replica], _, counts)| {
            let &ConnectionCounts { lookup_ns, tcp_ns, tls_ns, .. } = counts;
            [("lookup", lookup_ns), ("tcp", tcp_ns), ("tls", tls_ns)].map(|(phase, ns)| {
                ([owner, replica, ("phase", phase)], Duration::from_ns(ns).as_secs_f64())
            })
        });
        out.add(&table::CONNECT, phases);
    }

    fn leaves<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        let each = || self.leaves.iter().map(|leaf| (("leaf", &*leaf.name), leaf));
        let queues = each().map(|(name, leaf)| ([name], leaf.queue_len));
        out.add(&table::LEAF_QUEUE_LEN, queues);
        let in_service = each().map(|(name, leaf)| ([name], leaf.in_service));
        out.add(&table::LEAF_IN_SERVICE, in_service);
        let by_reason = |counts: fn(&LeafCounts) -> &Counts| {
            each().map(move |(name, leaf)| (name, "reason", counts(&leaf.counts)))
        };
        out.counts(&table::LEAF_STARTED, by_reason(|counts| &counts.started));
        out.counts(&table::LEAF_REFUSED, by_reason(|counts| &counts.refused));
        out.counts(&table::LEAF_DROPPED, by_reason(|counts| &counts.dropped));
        out.counts(&table::LEAF_TWIN_CANCELS, by_reason(|counts| &counts.twin_cancels));
        out.histograms(&table::LEAF_WAIT, each().map(|(name, leaf)| (name, &leaf.counts.waited)));
    }

    fn listeners<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        let each = || self.listeners.iter().map(|(name, c)| ([("listener", &**name)], c));
        out.add(&table::CLIENTS_OPEN, each().map(|(labels, c)| (labels, c.accepted - c.closed)));
        out.add(&table::CLIENTS_ACCEPTED, each().map(|(labels, c)| (labels, c.accepted)));
        out.add(&table::CLIENTS_WAITED, each().map(|(labels, c)| (labels, c.waited)));
        out.add(&table::CLIENTS_TLS_FAILED, each().map(|(labels, c)| (labels, c.tls_failed)));
        let by_reason = |counts: fn(&ListenerCounts) -> &Counts| {
            self.listeners.iter().map(move |(name, c)| (("listener", &**name), "reason", counts(c)))
        };
        let header_failed = by_reason(|c| &c.proxy_header_failed);
        out.counts(&table::CLIENTS_PROXY_HEADER_FAILED, header_failed);
        out.add(&table::UNROUTED, each().map(|(labels, c)| (labels, c.unrouted)));
        out.add(&table::REDIRECTED, each().map(|(labels, c)| (labels, c.redirected)));
        out.add(&table::MALFORMED, each().map(|(labels, c)| (labels, c.malformed)));
        out.counts(&table::CLIENT_TIMEOUTS, by_reason(|c| &c.timed_out));
    }

    fn telemetry<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        if let Some(spans) = &self.spans {
            out.add(&table::SPANS_RECORDED, [([], spans.recorded)]);
            out.add(&table::SPANS_SENT, [([], spans.sent)]);
            let causes = [
                ("buffer_full", spans.dropped),
                ("undelivered", spans.undelivered),
                ("rejected", spans.rejected),
                ("encoder_panicked", spans.encoder_panicked),
            ];
            let dropped = causes.map(|(cause, count)| ([("cause", cause)], count));
            out.add(&table::SPANS_DROPPED, dropped);
            out.add(&table::SPAN_EXPORTS_FAILED, [([], spans.exports_failed)]);
        }
        if let Some(log) = &self.access_log {
            out.add(&table::ACCESS_LOG_WRITTEN, [([], log.written)]);
            let causes = [
                ("buffer_full", log.buffer_full),
                ("write_failed", log.write_failed),
                ("encoder_panicked", log.encoder_panicked),
            ];
            let dropped = causes.map(|(cause, count)| ([("cause", cause)], count));
            out.add(&table::ACCESS_LOG_DROPPED, dropped);
        }
        if let Some(lost) = self.journal_lost {
            out.add(&table::JOURNAL_LOST, [([], lost)]);
        }
    }

    fn process<'a>(&'a self, out: &mut FamilyCollector<'a>) {
        out.add(&table::INVARIANTS_BROKEN, [([], self.process.invariants_broken)]);
        out.reloads(&self.process.reloads);
        let started = Duration::from_ns(self.started_unix_ns);
        process::add_families(out, &self.usage, started);
    }

    /// A count per upstream and value of a second label.
    fn by_upstream<'a>(
        &'a self,
        label: &'a str,
        counts: impl Fn(&UpstreamCounts) -> &Counts + 'a,
    ) -> impl Iterator<Item = ((&'a str, &'a str), &'a str, &'a Counts)> {
        let upstreams = self.upstreams.iter();
        upstreams.map(move |u| (("upstream", &*u.name), label, counts(&u.counts)))
    }

    /// Every address that the proxy connects to, with its labels.
    fn addresses(&self) -> impl Iterator<Item = ([(&str, &str); 2], &ConnectionsSnapshot)> {
        let replicas = self.upstreams.iter().flat_map(|upstream| {
            let replicas = upstream.replicas.iter().map(|replica| &replica.connections);
            replicas.map(|to| (("upstream", &*upstream.name), to))
        });
        let servers = self.leaves.iter().map(|leaf| (("leaf", &*leaf.name), &leaf.server));
        replicas.chain(servers).map(|(owner, to)| ([owner, ("replica", &*to.address)], to))
    }
}

type LabelPair<'a> = (&'a str, &'a str);

/// The percentiles of all periods, with their labels.
fn percentiles<'a>(
    each: impl Iterator<Item = (LabelPair<'a>, &'a HoldoutSnapshot)>,
) -> impl Iterator<Item = ([LabelPair<'a>; 3], &'a PercentileEffect)> {
    each.flat_map(|(name, snapshot)| {
        snapshot.periods.iter().flat_map(move |period| {
            let labels = move |of: &PercentileEffect| {
                [name, ("period", period.period), ("percentile", of.name)]
            };
            period.percentiles.iter().map(move |effect| (labels(effect), effect))
        })
    })
}

/// The verdict on each percentile.
fn verdicts<'a>(
    each: impl Iterator<Item = (LabelPair<'a>, &'a HoldoutSnapshot)>,
) -> impl Iterator<Item = ([LabelPair<'a>; 3], f64)> {
    percentiles(each).map(|(labels, effect)| {
        let verdict = match effect.verdict() {
            EffectVerdict::Better => 1.0,
            EffectVerdict::Undecided => 0.0,
            EffectVerdict::Worse => -1.0,
        };
        (labels, verdict)
    })
}

/// The latencies of both sides at each percentile, with the bounds of their intervals.
fn bounds<'a>(
    each: impl Iterator<Item = (LabelPair<'a>, &'a HoldoutSnapshot)>,
) -> impl Iterator<Item = ([LabelPair<'a>; 5], f64)> {
    percentiles(each).flat_map(|([name, period, percentile], effect)| {
        let Sides { without, with } = effect.latency;
        let (low, high) = (effect.interval.without, effect.interval.with);
        let bounds = [
            ("holdout", "low", Some(low.low)),
            ("holdout", "estimate", without),
            ("holdout", "high", low.high),
            ("remedy", "low", Some(high.low)),
            ("remedy", "estimate", with),
            ("remedy", "high", high.high),
        ];
        bounds.into_iter().filter_map(move |(side, bound, latency)| {
            let labels = [name, period, percentile, ("side", side), ("bound", bound)];
            Some((labels, latency?.as_secs_f64()))
        })
    })
}

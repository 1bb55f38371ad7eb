//! The configuration snapshot: all state that follows from one configuration. A reload replaces it as a whole.

use crate::access_log::AccessLog;
use crate::access_log::buffers::LineBuffers;
use crate::config::{
    Config, DiscoveryConfig, DiscoverySource, FanOutConfig, NamedUpstream, RouteConfig,
};
use crate::discovery::{Discovery, Resolver};
use crate::driver::membership::Membership;
use crate::driver::{SharedParts, Upstream};
use crate::fan_out::FanOut;
use crate::finished::FinishedRequests;
use crate::group::Group;
use crate::guard::Guard;
use crate::journal::Journal;
use crate::leaf::{self, Leaf};
use crate::metrics::{ListenerMetrics, ProcessMetrics};
use crate::route::{Route, Routes, Target};
use crate::route_limits::RouteLimits;
use crate::spans::SpanSink;
use crate::tenants::Tenants;
use crate::{StartError, check};
use curtail_http::clock::Clock;
use curtail_units::Rng;
use std::sync::{Arc, Weak};

/// Routes, upstreams and leaves.
#[derive(Debug)]
pub(crate) struct ConfigSnapshot {
    pub(crate) config: Config,
    pub(crate) routes: Routes,
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    pub(crate) leaves: Vec<Arc<Leaf>>,
    /// The counters of the listeners by name, then those of the leaves.
    pub(crate) listeners: Vec<(String, Arc<ListenerMetrics>)>,
    /// The lookup of names, if replicas are discovered by name.
    pub(crate) resolver: Option<Arc<Resolver>>,
    /// The buffer of spans, if there is a receiver for them.
    pub(crate) spans: Option<Arc<SpanSink>>,
    /// The latencies by tenant, if there is a header for them.
    pub(crate) tenants: Option<Arc<Tenants>>,
    /// The access log, if one is configured.
    pub(crate) access_log: Option<AccessLog>,
    /// The routes that fan out.
    pub(crate) fan_outs: Vec<Arc<FanOut>>,
    /// The limits of the routes that have any.
    pub(crate) route_limits: Vec<Arc<RouteLimits>>,
    /// Upstreams that a reload has replaced and requests in progress still use.
    replaced: Vec<Weak<Upstream>>,
}

/// An upstream that a reload keeps, and its replicas from then on.
pub(crate) type Change = (Arc<Upstream>, Membership);

/// State of the process that outlives the snapshots.
#[derive(Debug)]
pub(crate) struct ProcessState {
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) journal: Option<Arc<Journal>>,
    pub(crate) process: Arc<ProcessMetrics>,
    /// The lines that wait for the file of the access log.
    pub(crate) access_lines: Arc<LineBuffers>,
    /// The finished requests, until their spans and lines are written.
    pub(crate) finished: FinishedRequests,
}

#[cfg(test)]
impl ProcessState {
    /// That of a process without a journal.
    pub(crate) fn for_tests() -> Self {
        Self {
            clock: Clock::start(),
            rng: Rng::new(1),
            journal: None,
            process: Arc::default(),
            access_lines: Arc::new(LineBuffers::new(1)),
            finished: FinishedRequests::new(1),
        }
    }
}

impl ConfigSnapshot {
    /// Builds the snapshot of `config`. Upstreams with the same policy and group as in `before` keep their state; the
    /// caller applies the changes of their replicas. Leaves with the same configuration keep their state too, and so
    /// does a group with the same shared keys.
    ///
    /// # Errors
    /// When a certificate or an authority cannot be used; nothing has been changed then.
    pub(crate) fn new(
        config: Config,
        process_state: &ProcessState,
        before: Option<&Self>,
    ) -> Result<(Self, Vec<Change>), StartError> {
        let mut groups: Vec<Arc<Group>> = before.map_or_else(Vec::new, |before| {
            before.upstreams.iter().filter_map(|upstream| upstream.group.clone()).collect()
        });
        let mut changes = Vec::new();
        let upstreams: Vec<Arc<Upstream>> = config
            .upstreams
            .iter()
            .map(|wanted| {
                let section = format!("upstreams.{}", wanted.name);
                let within = |error| {
                    check::connections_error((&section, "replicas"), &wanted.connect, error)
                };
                let is_named = |old: &&Arc<Upstream>| old.name == wanted.name;
                let old = before.and_then(|before| before.upstreams.iter().find(is_named));
                let discovery = discovery_of(wanted, old, process_state);
                if let Some(kept) = old.filter(|old| old.is_kept_by(wanted)) {
                    let membership = kept.prepare(wanted, discovery).map_err(within)?;
                    changes.push((Arc::clone(kept), membership));
                    return Ok(Arc::clone(kept));
                }
                let rng = process_state.rng.split(&wanted.name);
                let group = group_of(wanted, &mut groups, process_state);
                let carried = old.map(|old| old.carried(discovery.as_ref())).unwrap_or_default();
                let shared = SharedParts { group, discovery, carried };
                let upstream = Upstream::new(wanted, config.workers, rng, process_state, shared);
                Ok(Arc::new(upstream.map_err(within)?))
            })
            .collect::<Result<_, StartError>>()?;
        let leaves = leaves(&config, process_state, before, &mut changes)?;
        let (mut fan_outs, mut route_limits) = (Vec::new(), Vec::new());
        let route = |route: &RouteConfig| {
            let mut shards = route.shards(&config.upstreams);
            let target = if let Some(fan_out) = &route.fan_out {
                let shards = shards.map(|shard| Arc::clone(&upstreams[shard]));
                let fan_out = Arc::new(fan_out_of(route, fan_out, shards, (process_state, before)));
                fan_outs.push(Arc::clone(&fan_out));
                Some(Target::FanOut(fan_out))
            } else {
                shards.next().map(|shard| Target::Upstream(Arc::clone(&upstreams[shard])))
            };
            let limits = limits_of(route, &config, before);
            route_limits.extend(limits.clone());
            Route::new(route, target, limits)
        };
        let routes = Routes::new(config.routes.iter().map(route).collect());
        let mut snapshot = Self {
            routes,
            upstreams,
            leaves,
            listeners: listener_metrics(&config, before),
            resolver: resolver(&config)?,
            spans: span_sink(&config, before),
            tenants: tenants(&config, before, process_state),
            access_log: AccessLog::new(&config, &process_state.access_lines),
            fan_outs,
            route_limits,
            config,
            replaced: Vec::new(),
        };
        if let Some(before) = before {
            let is_kept = |old: &Arc<Upstream>| snapshot.has(old);
            let replaced = before.swept_upstreams().filter(|old| !is_kept(old));
            snapshot.replaced = replaced.map(|old| Arc::downgrade(&old)).collect();
        }
        Ok((snapshot, changes))
    }

    fn has(&self, upstream: &Arc<Upstream>) -> bool {
        self.current_upstreams().any(|current| Arc::ptr_eq(current, upstream))
    }

    /// The upstreams of the configuration, and those of the leaves.
    pub(crate) fn current_upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.upstreams.iter().chain(self.leaves.iter().map(|leaf| &leaf.server))
    }

    /// Every upstream that may have connections: those of the configuration, those of the leaves, and those that a
    /// reload has replaced while requests still use them, perhaps for days.
    pub(crate) fn swept_upstreams(&self) -> impl Iterator<Item = Arc<Upstream>> {
        self.current_upstreams().cloned().chain(self.replaced.iter().filter_map(Weak::upgrade))
    }
}

/// The leaves of a configuration. Those of `before` with the same keys stay; their authorities are read again.
fn leaves(
    config: &Config,
    process_state: &ProcessState,
    before: Option<&ConfigSnapshot>,
    changes: &mut Vec<Change>,
) -> Result<Vec<Arc<Leaf>>, StartError> {
    config
        .leaves
        .iter()
        .enumerate()
        .map(|(index, wanted)| {
            let section = format!("leaves[{index}]");
            let within =
                |error| check::connections_error((&section, "server"), &wanted.connect, error);
            let same = |kept: &&Arc<Leaf>| kept.config == *wanted;
            if let Some(kept) = before.and_then(|b| b.leaves.iter().find(same)) {
                let server = kept.server.prepare(&leaf::server_upstream(wanted), None);
                changes.push((Arc::clone(&kept.server), server.map_err(within)?));
                return Ok(Arc::clone(kept));
            }
            let rng = process_state.rng.split(&wanted.name);
            let leaf = Leaf::new(wanted.clone(), config.workers, rng, process_state);
            Ok(Arc::new(leaf.map_err(within)?))
        })
        .collect()
}

/// The counters of listeners and leaves. A name that was there before keeps its counters.
fn listener_metrics(
    config: &Config,
    before: Option<&ConfigSnapshot>,
) -> Vec<(String, Arc<ListenerMetrics>)> {
    let names = config.listeners.iter().map(|listener| &listener.name);
    let names = names.chain(config.leaves.iter().map(|leaf| &leaf.name));
    let earlier = |name| before?.listeners.iter().find(|(earlier, _)| earlier == name);
    let metrics = |name| earlier(name).map(|(_, metrics)| Arc::clone(metrics)).unwrap_or_default();
    names.map(|name| (name.clone(), metrics(name))).collect()
}

/// The lookup of names, if replicas are discovered by name. It is always a new one: `/etc/resolv.conf` may have changed.
pub(crate) fn resolver(config: &Config) -> Result<Option<Arc<Resolver>>, StartError> {
    let is_dns = |discovery: &DiscoveryConfig| matches!(discovery.source, DiscoverySource::Dns(_));
    let mut discoveries = config.upstreams.iter().filter_map(|one| one.discovery.as_ref());
    let is_needed = discoveries.any(is_dns);
    Ok(is_needed.then(|| Resolver::new(&config.dns)).transpose()?.map(Arc::new))
}

/// The source of an upstream's replicas: that of `old`, the upstream of before, if its keys are the same.
fn discovery_of(
    wanted: &NamedUpstream,
    old: Option<&Arc<Upstream>>,
    process_state: &ProcessState,
) -> Option<Arc<Discovery>> {
    let config = wanted.discovery.as_ref()?;
    let kept = old.and_then(|old| old.discovery()).filter(|kept| kept.config == *config);
    let rng = process_state.rng.split(&wanted.name);
    Some(kept.unwrap_or_else(|| Arc::new(Discovery::new(config, process_state.clock.now(), &rng))))
}

/// The buffer of spans. The buffer of `before` stays for the same receiver, unless authorities must be read again.
fn span_sink(config: &Config, before: Option<&ConfigSnapshot>) -> Option<Arc<SpanSink>> {
    let wanted = config.spans.as_ref()?;
    let tenant_header = |config: &Config| config.tenants.as_ref().map(|of| of.header.clone());
    let header = tenant_header(config);
    let is_same = |before: &&ConfigSnapshot| {
        before.config.spans.as_ref() == Some(wanted) && tenant_header(&before.config) == header
    };
    let kept = before.filter(is_same).filter(|_| wanted.ca_file.is_none());
    let earlier = before.and_then(|before| before.spans.as_deref());
    let kept = kept.and_then(|before| before.spans.clone());
    Some(kept.unwrap_or_else(|| Arc::new(SpanSink::new(header.as_deref(), earlier))))
}

/// The latencies by tenant: those of `before` if the keys are the same.
fn tenants(
    config: &Config,
    before: Option<&ConfigSnapshot>,
    process_state: &ProcessState,
) -> Option<Arc<Tenants>> {
    let wanted = config.tenants.as_ref()?;
    let kept = before.and_then(|before| before.tenants.clone());
    let kept = kept.filter(|kept| kept.config() == wanted);
    let new = || Arc::new(Tenants::new(wanted, config.workers, process_state.clock.now()));
    Some(kept.unwrap_or_else(new))
}

/// The fan-out of a route, with the counters that it had before.
fn fan_out_of(
    route: &RouteConfig,
    config: &FanOutConfig,
    shards: impl Iterator<Item = Arc<Upstream>>,
    (process_state, before): (&ProcessState, Option<&ConfigSnapshot>),
) -> FanOut {
    let name = route.name();
    let mut all = before.iter().flat_map(|before| &before.fan_outs);
    let kept = all.find(|kept| kept.name == name);
    let metrics = kept.map(|kept| Arc::clone(&kept.metrics));
    let guard = Guard::new(&name, &process_state.process);
    let metrics = metrics.unwrap_or_default();
    let mut fan_out = FanOut::new((name, &route.path_prefix), config, shards, (guard, metrics));
    if let Some(kept) = kept {
        fan_out.keep_measurements(kept);
    }
    fan_out
}

/// The limits of a route, if it has any. They count on where those of `before` are.
fn limits_of(
    route: &RouteConfig,
    config: &Config,
    before: Option<&ConfigSnapshot>,
) -> Option<Arc<RouteLimits>> {
    let wanted = route.limits.as_ref()?;
    let name = route.name();
    let mut all = before.iter().flat_map(|before| &before.route_limits);
    let kept = all.find(|kept| kept.name == name).map(|kept| &**kept);
    Some(Arc::new(RouteLimits::new(name, wanted, config.tenants.as_ref(), kept)))
}

/// The group of an upstream, if it names one: one of `groups`, or a new one.
fn group_of(
    upstream: &NamedUpstream,
    groups: &mut Vec<Arc<Group>>,
    process_state: &ProcessState,
) -> Option<Arc<Group>> {
    let name = upstream.group.as_ref()?;
    if let Some(group) = groups.iter().find(|group| group.has(upstream)) {
        return Some(Arc::clone(group));
    }
    let group = Arc::new(Group::new(name, upstream, process_state.journal.as_ref()));
    groups.push(Arc::clone(&group));
    Some(group)
}

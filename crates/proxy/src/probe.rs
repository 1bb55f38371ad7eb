//! Probes: a root asks a leaf for its load, over the connections that carry requests.

use crate::driver::{Effects, Upstream};
use crate::leaf_headers;
use crate::worker::Worker;
use curtail_http::head::Known;
use curtail_http::outbound_request::OutboundRequest;
use curtail_policy::{Effect, ReplicaId, UpstreamEvent};
use curtail_units::Duration;
use std::sync::Arc;

/// The path at which a leaf reports its load.
pub(crate) const PATH: &str = "/.curtail/load";

/// Sends a probe in a task of its own, which hands its result to the machine.
///
/// # Errors
/// The defect, when the balancing rule sends no probes.
pub(crate) fn send(
    worker: &Arc<Worker>,
    upstream: &Arc<Upstream>,
    replica: ReplicaId,
) -> Result<(), &'static str> {
    let timeout = upstream.policy.balance.probe_timeout();
    let timeout = timeout.ok_or("a rule without a timeout for probes sends one")?;
    let (worker, upstream) = (Arc::clone(worker), Arc::clone(upstream));
    tokio::spawn(async move {
        let begun = upstream.clock.now();
        let Some((event, is_connected)) = probe(&worker, &upstream, replica, timeout).await else {
            return;
        };
        let mut effects = Effects::new();
        if is_connected && matches!(event, UpstreamEvent::ProbeSucceeded { .. }) {
            // The time of a probe and its response is that of two short messages, unless the probe opened a connection.
            let round_trip = upstream.clock.now().since(begun);
            let one_way = Duration::from_ns(round_trip.as_ns() / 2);
            upstream.handle(UpstreamEvent::MessageTimed { one_way }, &mut effects);
        }
        let generation = upstream.handle(event, &mut effects);
        carry_out(&worker, &upstream, generation, effects);
    });
    Ok(())
}

/// Carries out effects that do not concern a request, up to the first impossible one. The machine of `generation` has
/// decided the effects.
pub(crate) fn carry_out(
    worker: &Arc<Worker>,
    upstream: &Arc<Upstream>,
    generation: u64,
    effects: Effects,
) {
    for decided in effects {
        let carried_out = match decided.effect {
            Effect::Probe { replica } => send(worker, upstream, replica),
            Effect::SetRemedy { state } => {
                let auto = upstream.auto.as_ref().ok_or("a remedy is switched that is not auto");
                auto.map(|auto| auto.decided(&upstream.name, state, decided.reason))
            }
            Effect::Send { .. }
            | Effect::Cancel { .. }
            | Effect::Respond { .. }
            | Effect::Fail { .. }
            | Effect::Skip => Err("an event without a request decides about a request"),
        };
        if let Err(impossible) = carried_out {
            return upstream.report_defect(generation, impossible);
        }
        upstream.metrics.decided(&decided);
    }
}

/// Probes a replica; returns the result, if there is one in time, and whether the connection was open before.
async fn probe(
    worker: &Worker,
    upstream: &Upstream,
    replica: ReplicaId,
    timeout: Duration,
) -> Option<(UpstreamEvent, bool)> {
    let replicas = upstream.replicas.load_full();
    // The replica may have left since the machine asked for the probe.
    let target = replicas.get(replica)?;
    let request = OutboundRequest::get(PATH, &target.authority);
    let exchange = target.pool(worker.index).exchange(request, &upstream.clock, false);
    let exchanged = tokio::time::timeout(timeout.into(), exchange).await.ok()?.ok()?;
    let load = exchanged.head.fields.get_text(Known::CurtailLoad).and_then(leaf_headers::read_load);
    let event = match load {
        Some(load) => UpstreamEvent::ProbeSucceeded { replica, load },
        // These may be from a leaf, or from a proxy in front of it. Any other response without a load is not.
        None if matches!(exchanged.head.status.as_u16(), 429 | 502 | 503 | 504) => return None,
        None => UpstreamEvent::ProbeUnsupported { replica },
    };
    Some((event, exchanged.phases.is_none()))
}

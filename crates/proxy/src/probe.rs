//! Probes: a root asks a leaf for its load, over the connections that carry requests.

use crate::driver::{Effects, Upstream};
use crate::leaf_headers;
use crate::worker::Worker;
use curtail_http::head::Known;
use curtail_http::outbound_request::OutboundRequest;
use curtail_policy::{Effect, ReplicaId, UpstreamEvent};
use curtail_units::Duration;
use http::StatusCode;
use std::sync::Arc;

/// The path at which a leaf reports its load.
pub(crate) const PATH: &str = "/.curtail/load";

/// Sends a probe in a task of its own and tells the machine what came of it.
pub(crate) fn send(worker: &Arc<Worker>, upstream: &Arc<Upstream>, replica: ReplicaId) {
    let (worker, upstream) = (Arc::clone(worker), Arc::clone(upstream));
    tokio::spawn(async move {
        let begun = upstream.clock.now();
        let event = probe(&worker, &upstream, replica).await;
        let mut effects = Effects::new();
        if matches!(event, UpstreamEvent::ProbeSucceeded { .. }) {
            // A probe and its response are two of the shortest messages there are.
            let round_trip = upstream.clock.now().since(begun);
            let one_way = Duration::from_ns(round_trip.as_ns() / 2);
            upstream.handle(UpstreamEvent::MessageTimed { one_way }, &mut effects);
        }
        upstream.handle(event, &mut effects);
        carry_out(&worker, &upstream, effects);
    });
}

/// Carries out the effects of an upstream that are not those of a request.
pub(crate) fn carry_out(worker: &Arc<Worker>, upstream: &Arc<Upstream>, effects: Effects) {
    for decided in effects {
        upstream.metrics.decided(&decided);
        match decided.effect {
            Effect::Probe { replica, .. } => send(worker, upstream, replica),
            Effect::Send { .. }
            | Effect::Cancel { .. }
            | Effect::Respond { .. }
            | Effect::Fail { .. }
            | Effect::Skip => {
                upstream.report_defect("an event without a request decides about a request");
            }
        }
    }
}

async fn probe(worker: &Worker, upstream: &Upstream, replica: ReplicaId) -> UpstreamEvent {
    let balance = &upstream.policy.balance;
    let Some(timeout) = balance.probe_timeout() else {
        upstream.report_defect("a rule without a timeout for probes sends one");
        return UpstreamEvent::ProbeTimedOut { replica };
    };
    let replicas = upstream.replicas.load_full();
    // It may have left since the machine asked for the probe.
    let Some(target) = replicas.get(replica) else {
        return UpstreamEvent::ProbeTimedOut { replica };
    };
    let request = OutboundRequest::get(PATH, &target.authority);
    let exchange = target.pool(worker.index).exchange(request, &upstream.clock, false);
    let Ok(Ok(exchanged)) = tokio::time::timeout(timeout.into(), exchange).await else {
        return UpstreamEvent::ProbeTimedOut { replica };
    };
    let load = exchanged.head.fields.get_text(Known::CurtailLoad).and_then(leaf_headers::read_load);
    match load {
        Some(load) => UpstreamEvent::ProbeSucceeded { replica, load },
        // Another success is not from a leaf; an error may be from one.
        None if exchanged.head.status != StatusCode::SERVICE_UNAVAILABLE => {
            UpstreamEvent::ProbeUnsupported { replica }
        }
        None => UpstreamEvent::ProbeTimedOut { replica },
    }
}

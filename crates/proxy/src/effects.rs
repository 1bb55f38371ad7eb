//! Sends the measured effects of remedies to the receiver of the spans, for the scorecard.
//!
//! **Decides** when an effect is sent: when it states more than before (a further percentile, another verdict), each ten
//! minutes, and when the proxy stops. An effect that the receiver does not accept waits for the next second; the proxy
//! keeps only the last one.
//! Upstreams that are shards of a route with a holdout are not sent: the route has the effect on whole requests.

use crate::StartError;
use crate::config::SpansConfig;
use crate::holdout::Holdout;
use crate::snapshot::ConfigSnapshot;
use crate::spans::receiver::{Receiver, Verdict};
use crate::switchback::Switchback;
use crate::trace_context::entropy_rng;
use crate::worker::Shared;
use curtail_http::clock::Clock;
use curtail_otlp::{Signal, events};
use curtail_policy::UpstreamConfig;
use curtail_units::{Duration, Instant};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The interval at which effects are looked at.
const EVERY: Duration = Duration::from_secs(1);

/// The interval at which an effect is sent that states nothing new.
const SENT_EVERY: Duration = Duration::from_secs(600);

const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends the effects of a proxy.
#[derive(Debug)]
pub(crate) struct EffectSender {
    shared: Arc<Shared>,
    receiver: Receiver,
    /// The attributes of the resource, as JSON.
    resource: String,
    /// When the effect of each upstream or route was sent, and what it stated.
    sent: HashMap<String, (Instant, Value)>,
    has_failed: bool,
}

/// An effect that is due.
struct Due {
    name: String,
    statement: Value,
    body: String,
}

impl EffectSender {
    /// # Errors
    /// When the TLS configuration or the token cannot be used.
    pub(crate) fn new(config: &SpansConfig, shared: &Arc<Shared>) -> Result<Self, StartError> {
        let resource = json!({
            "service.name": config.service_name,
            "service.version": env!("CARGO_PKG_VERSION"),
            "service.instance.id": format!("{:016x}", entropy_rng().next_u64()),
        });
        Ok(Self {
            shared: Arc::clone(shared),
            receiver: Receiver::new(config, Signal::Logs)?,
            resource: resource.to_string(),
            sent: HashMap::new(),
            has_failed: false,
        })
    }

    /// Sends the effects that are due, without end.
    pub(crate) async fn run(&mut self) {
        loop {
            tokio::time::sleep(EVERY.into()).await;
            self.send(SENT_EVERY).await;
        }
    }

    /// Sends the effects that state something new, or were not sent for this time.
    pub(crate) async fn send(&mut self, every: Duration) {
        let now = self.shared.process_state.clock.now();
        let due = self.due(&self.shared.snapshot.load(), now, every);
        if due.is_empty() {
            return;
        }
        let unix_ns = self.shared.process_state.clock.unix_ns(now);
        let bodies: Vec<String> = due.iter().map(|due| due.body.clone()).collect();
        let batch = events::batch(&self.resource, unix_ns, events::EFFECT, &bodies);
        let batch = batch.expect("the resource is an object");
        match self.receiver.send_message(batch, TIMEOUT).await {
            Verdict::Accepted { .. } => self.has_failed = false,
            Verdict::RetryLater { why, .. } => return self.log_failure(&why),
            // It would be rejected again.
            Verdict::Rejected { why } => self.log_failure(&why),
        }
        self.sent.extend(due.into_iter().map(|due| (due.name, (now, due.statement))));
    }

    fn log_failure(&mut self, why: &str) {
        if !std::mem::replace(&mut self.has_failed, true) {
            let endpoint = self.receiver.endpoint();
            tracing::warn!(endpoint, why, "the receiver does not accept effects of remedies");
        }
    }

    fn due(&self, snapshot: &ConfigSnapshot, now: Instant, every: Duration) -> Vec<Due> {
        let clock = self.shared.process_state.clock;
        let mut due = Vec::new();
        let mut shards = BTreeSet::new();
        for route in &snapshot.fan_outs {
            let Some(holdout) = &route.holdout else { continue };
            let names: Vec<&str> = route.upstreams().map(|upstream| &*upstream.name).collect();
            let policy = route.upstreams().next().map(|upstream| &upstream.policy);
            due.extend(policy.and_then(|policy| {
                let name = format!("route {}", route.name);
                self.if_due(name, holdout, (now, every), |effect| {
                    effect["route"] = json!(route.name);
                    set_remedy(effect, &names, policy);
                    set_switchback(effect, route.switchback.as_deref(), (now, clock));
                })
            }));
            shards.extend(names.into_iter().map(str::to_owned));
        }
        for upstream in snapshot.upstreams.iter().filter(|of| !shards.contains(&of.name)) {
            let Some(holdout) = &upstream.holdout else { continue };
            let name = format!("upstream {}", upstream.name);
            due.extend(self.if_due(name, holdout, (now, every), |effect| {
                set_remedy(effect, &[&upstream.name], &upstream.policy);
                set_switchback(effect, upstream.switchback.as_ref(), (now, clock));
            }));
        }
        due
    }

    /// The effect of one holdout, if it states a percentile and is due.
    fn if_due(
        &self,
        name: String,
        holdout: &Holdout,
        (now, every): (Instant, Duration),
        complete: impl FnOnce(&mut Value),
    ) -> Option<Due> {
        let clock = self.shared.process_state.clock;
        let mut effect = holdout.read(now).statement(clock)?;
        let percentiles = effect["percentiles"].as_array()?.iter();
        let verdicts = percentiles.map(|of| json!([of["percentile"], of["verdict"]]));
        let statement = json!([effect["period"], effect["complete"], verdicts.collect::<Vec<_>>()]);
        if let Some((at, stated)) = self.sent.get(&name)
            && *stated == statement
            && now.since(*at) < every
        {
            return None;
        }
        effect["schema"] = json!("curtail.effect/1");
        complete(&mut effect);
        Some(Due { name, statement, body: effect.to_string() })
    }
}

fn set_remedy(effect: &mut Value, upstreams: &[&str], policy: &UpstreamConfig) {
    effect["upstreams"] = json!(upstreams);
    effect["policy"] = json!(policy);
}

/// Adds the effect on the load of all requests, as far as a switchback states it.
fn set_switchback(
    effect: &mut Value,
    switchback: Option<&Switchback>,
    (now, clock): (Instant, Clock),
) {
    if let Some(statement) = switchback.and_then(|of| of.read(now).statement(clock)) {
        effect["switchback"] = statement;
    }
}

#[cfg(test)]
mod tests;

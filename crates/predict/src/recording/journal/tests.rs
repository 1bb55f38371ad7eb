use super::*;
use curtail_policy::journal::{Checksum, SCHEMA};
use curtail_policy::{AttemptId, BalanceConfig, Class, HedgeConfig, ReplicaId, Request};
use curtail_units::{Quantile, Rng};
use serde_json::{Value, json};

/// A journal of one upstream, `search`.
#[derive(Default)]
struct Journal {
    checksum: Checksum,
    lines: Vec<u8>,
    calls: u64,
}

impl Journal {
    fn new(policy: UpstreamConfig) -> Self {
        let mut journal = Self::default();
        journal.write(&Entry::Journal { schema: SCHEMA.to_owned() });
        journal.upstream(0, policy);
        journal
    }

    fn write(&mut self, entry: &Entry<Value>) {
        let entry = serde_json::to_vec(entry).expect("JSON");
        self.lines.extend(self.checksum.seal(&entry));
    }

    fn upstream(&mut self, machine: u32, config: UpstreamConfig) {
        let replicas = vec![(ReplicaId(0), "10.0.0.1:80".to_owned())];
        let (name, rng) = ("search".to_owned(), Rng::new(1));
        self.write(&Entry::Upstream { machine, name, config, replicas, group: None, rng });
    }

    /// A request with a good response after a time.
    fn request(&mut self, machine: u32, is_holdout: bool, ms: u64) {
        let call = self.calls;
        self.calls += 1;
        let request = Request {
            class: Class::Interactive,
            repeatable: true,
            is_holdout,
            timeout: None,
            deadline: None,
            retries_max: None,
        };
        self.write(&Entry::Request { machine, call, request, eligible: None });
        let arrived = Instant::from_ns(1_000_000_000 * (1 + call));
        let attempt = AttemptId(0);
        let send = json!([{ "effect": { "send": { "attempt": 0, "replica": 0 } } }]);
        let respond = json!([{ "effect": { "respond": { "attempt": 0 } } }]);
        for (after, event, effects) in [
            (0, Event::Arrived, send),
            (ms, Event::Responded { attempt, outcome: Outcome::Good }, respond),
            (ms, Event::Ended { attempt, whole: true }, json!([])),
        ] {
            let now = arrived + Duration::from_ms(after);
            self.write(&Entry::Call { machine, call, now, event, effects });
        }
    }

    fn remedy(&mut self, state: &str) {
        let effects = json!([{ "effect": { "set_remedy": { "state": state } } }]);
        let (now, event) = (Instant::ZERO, UpstreamEvent::Woke);
        self.write(&Entry::UpstreamEvent { machine: 0, now, event, effects });
    }

    fn read(&self) -> Result<Recording, RecordingError> {
        Recording::from_journal(&*self.lines, None)
    }
}

fn hedged(remedy: RemedyMode) -> UpstreamConfig {
    let plain = UpstreamConfig::plain(BalanceConfig::Random);
    UpstreamConfig { hedge: Some(HedgeConfig::default()), remedy, ..plain }
}

#[test]
fn requests_of_a_holdout_are_load_but_their_latencies_do_not_count() {
    let mut journal = Journal::new(hedged(RemedyMode::On));
    for _ in 0..3 {
        journal.request(0, false, 10);
    }
    journal.request(0, true, 500);
    let recording = journal.read().expect("one policy");
    assert_eq!((recording.requests.len(), recording.holdout_ratio()), (4, 0.25));
    assert_eq!(recording.latencies().count(), 3);
    let max = recording.latency_at(Quantile::new(1.0).expect("it is a quantile"));
    assert_eq!(max, Some(Duration::from_ms(10)));
}

#[test]
fn a_reload_with_the_same_policy_changes_nothing_and_another_policy_is_rejected() {
    let mut journal = Journal::new(hedged(RemedyMode::On));
    journal.request(0, false, 10);
    journal.upstream(1, hedged(RemedyMode::On));
    journal.request(1, false, 10);
    // Without requests, a policy does not matter.
    journal.upstream(2, hedged(RemedyMode::Off));
    assert_eq!(journal.read().expect("one policy").requests.len(), 2);
    journal.request(2, false, 10);
    let error = journal.read().expect_err("two policies").to_string();
    assert!(error.starts_with("upstream search: expected one policy for all requests"), "{error}");
}

#[test]
fn a_dry_run_of_auto_is_a_dry_run_and_a_trial_is_another_policy() {
    let mut journal = Journal::new(hedged(RemedyMode::Auto));
    journal.request(0, false, 10);
    journal.remedy("dry_run");
    journal.request(0, false, 10);
    let recording = journal.read().expect("one policy");
    assert_eq!(recording.policy, Some(hedged(RemedyMode::DryRun)));
    journal.remedy("trial");
    journal.request(0, false, 10);
    let error = journal.read().expect_err("two policies").to_string();
    assert!(error.contains("remedy: auto changed it"), "{error}");
}

#[test]
fn effects_of_other_machines_are_skipped() {
    let mut journal = Journal::new(hedged(RemedyMode::On));
    journal.request(0, false, 10);
    let line = br#"{"entry":"gather_event","gather":0,"now":1,"event":"arrived","effects":[{"effect":{"start_call":{"call":0}}}]}"#;
    let sealed = journal.checksum.seal(line);
    journal.lines.extend(sealed);
    assert_eq!(journal.read().expect("one upstream").requests.len(), 1);
}

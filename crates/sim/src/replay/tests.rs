use super::{End, Replayed, Unreadable, replay};
use curtail_policy::journal::{Checksum, Entry, SCHEMA};
use curtail_policy::{
    AttemptId, BalanceConfig, BudgetConfig, Call, CallId, Class, Event, Failure, Gather,
    GatherConfig, GatherEvent, Leaf, LeafConfig, LeafEvent, LeafRequestId, Load, Outcome,
    PrequalConfig, RemedyEstimate, RemedyMode, ReplicaId, Request, RestMode, SlowCount, SlowShares,
    TieConfig, TieId, Upstream, UpstreamConfig, UpstreamEvent,
};
use curtail_units::{Duration, Instant, Quantile, Ratio, Rng};
use serde::Serialize;
use std::fmt::Write as _;

const REPLICAS: u32 = 5;

/// A driver that tells machines whatever comes to its mind, and keeps a journal of it.
struct Writer {
    text: String,
    rng: Rng,
    now: Instant,
    upstream: Upstream,
    calls: Vec<(u64, Call)>,
    leaf: Leaf,
    gathers: Vec<(u64, Gather)>,
    requests: u64,
    /// How many replicas have joined, and the ones that are present.
    joined: u32,
    present: Vec<u32>,
}

impl Writer {
    fn new(seed: u64, config: UpstreamConfig) -> Self {
        let rng = Rng::new(seed);
        let machine = rng.split("machine");
        let leaf = LeafConfig { concurrency: 2, queue_len_max: 3 };
        let mut writer = Self {
            text: String::new(),
            upstream: Upstream::new(config, REPLICAS as usize, &machine),
            calls: Vec::new(),
            leaf: Leaf::new(leaf),
            gathers: Vec::new(),
            requests: 0,
            joined: REPLICAS,
            present: (0..REPLICAS).collect(),
            now: Instant::ZERO,
            rng,
        };
        let name = "search".to_owned();
        writer.write(&Entry::<()>::Journal { schema: SCHEMA.to_owned() });
        let replicas = (0..REPLICAS).map(|id| (ReplicaId(id), format!("server {id}"))).collect();
        writer.write(&Entry::<()>::Upstream {
            machine: 0,
            name,
            config,
            replicas,
            group: None,
            rng: machine,
        });
        let name = "in front of search".to_owned();
        writer.write(&Entry::<()>::Leaf { machine: 1, name, config: leaf });
        writer
    }

    fn write<F: Serialize>(&mut self, entry: &Entry<F>) {
        let line = serde_json::to_string(entry).expect("an entry is plain data");
        writeln!(self.text, "{line}").expect("a String takes everything");
    }

    fn anything(&mut self) {
        self.now = self.now + Duration::from_us(self.rng.below(3_000) as u64);
        match self.rng.below(5) {
            4 if self.gathers.is_empty() || self.rng.chance(0.1) => self.gather(),
            4 => self.gather_event(),
            0 => self.request(),
            1 => self.upstream(),
            2 => self.leaf(),
            _ if self.calls.is_empty() => {}
            _ => {
                let nth = self.rng.below(self.calls.len());
                let event = self.call_event();
                self.call(nth, event);
            }
        }
    }

    fn request(&mut self) {
        self.requests += 1;
        let call = self.requests;
        let (repeatable, is_holdout) = (self.rng.chance(0.9), self.rng.chance(0.1));
        let request = Request { repeatable, is_holdout, ..Request::READ };
        let ids = (0..self.joined).map(ReplicaId);
        let eligible: Vec<ReplicaId> = ids.filter(|_| self.rng.chance(0.5)).collect();
        let eligible = self.rng.chance(0.3).then_some(eligible);
        let machine = Call::pinned(request, eligible.clone().map(Into::into));
        self.write(&Entry::<()>::Request { machine: 0, call, request, eligible });
        self.calls.push((call, machine));
        self.call(self.calls.len() - 1, Event::Arrived);
    }

    fn call_event(&mut self) -> Event {
        let attempt = AttemptId(u8::try_from(self.rng.below(3)).expect("small"));
        match self.rng.below(8) {
            0 => Event::Responded { attempt, outcome: Outcome::Bad },
            1 => Event::Responded { attempt, outcome: Outcome::Refused },
            2 => Event::Failed { attempt, failure: Failure::Broken },
            3 => Event::Ended { attempt, whole: true },
            4 => Event::Abandoned,
            5 => Event::Responded { attempt, outcome: Outcome::Good },
            _ => Event::Woke,
        }
    }

    fn call(&mut self, nth: usize, event: Event) {
        let (number, call) = &mut self.calls[nth];
        let (call_number, now) = (*number, self.now);
        call.handle(&mut self.upstream, now, event);
        let is_over = call.is_over();
        let effects: Vec<_> = std::iter::from_fn(|| self.upstream.poll_effect()).collect();
        self.write(&Entry::Call { machine: 0, call: call_number, now, event, effects });
        // News of some requests go on coming after they are over.
        if is_over && self.rng.chance(0.5) {
            self.calls.swap_remove(nth);
        }
    }

    fn upstream(&mut self) {
        // Also of replicas that have left.
        let replica =
            ReplicaId(u32::try_from(self.rng.below(self.joined as usize)).expect("small"));
        let latency = Duration::from_us(self.rng.below(9_000) as u64);
        let is_auto = self.upstream.config().remedy == RemedyMode::Auto;
        if is_auto && self.rng.chance(0.5) {
            let event = self.evidence();
            return self.upstream_event(event);
        }
        let event = match self.rng.below(7) {
            0 => UpstreamEvent::ProbeUnsupported { replica },
            1 => UpstreamEvent::MessageTimed { one_way: latency },
            2 => UpstreamEvent::Woke,
            3 => self.member_joins(),
            4 => self.member_leaves(),
            5 => UpstreamEvent::HealthChecked { replica, is_healthy: self.rng.chance(0.5) },
            _ => UpstreamEvent::ProbeSucceeded { replica, load: Load { in_flight: 3, latency } },
        };
        self.upstream_event(event);
    }

    fn upstream_event(&mut self, event: UpstreamEvent) {
        let now = self.now;
        self.upstream.handle(now, event);
        let effects: Vec<_> = std::iter::from_fn(|| self.upstream.poll_effect()).collect();
        self.write(&Entry::UpstreamEvent { machine: 0, now, event, effects });
    }

    /// Evidence for the remedies, or the end of the time for which they are off.
    fn evidence(&mut self) -> UpstreamEvent {
        let time = Duration::from_us(self.rng.below(9_000) as u64);
        // Any digits, to be read as they were written.
        let ratio_low = self.rng.unit();
        let ratio_high = self.rng.chance(0.8).then(|| 2.0 * self.rng.unit());
        let count = SlowCount { slow: 3, requests: 5_000 };
        match self.rng.below(3) {
            0 => UpstreamEvent::RemedyEstimated {
                estimate: RemedyEstimate {
                    requests: 50_000,
                    quantile: Quantile::P999,
                    without: time,
                    with: Duration::from_ns(time.as_ns() / 2),
                    threshold: time,
                    slow_without: 40,
                    slow_with: 2,
                    ratio_high: ratio_low,
                },
            },
            1 => UpstreamEvent::RemedyMeasured {
                shares: SlowShares {
                    threshold: time,
                    without: count,
                    with: count,
                    ratio_low,
                    ratio_high,
                },
            },
            _ => {
                self.now = self.upstream.poll_timeout().unwrap_or(self.now).max(self.now);
                UpstreamEvent::Woke
            }
        }
    }

    fn member_joins(&mut self) -> UpstreamEvent {
        let replica = ReplicaId(self.joined);
        self.present.push(self.joined);
        self.joined += 1;
        self.write(&Entry::<()>::Replica { machine: 0, replica, name: "another".to_owned() });
        UpstreamEvent::ReplicaJoined { replica }
    }

    fn member_leaves(&mut self) -> UpstreamEvent {
        let replica = match self.present.len() {
            0 => ReplicaId(0),
            len => ReplicaId(self.present.swap_remove(self.rng.below(len))),
        };
        UpstreamEvent::ReplicaLeft { replica }
    }

    fn gather(&mut self) {
        self.requests += 1;
        let calls = 1 + u32::try_from(self.rng.below(12)).expect("small");
        let needed = 1 + u32::try_from(self.rng.below(calls as usize)).expect("small");
        let canaries = u32::from(self.rng.chance(0.3));
        let deadline = self.rng.chance(0.3).then_some(Duration::from_ms(9));
        let rest = if self.rng.chance(0.5) { RestMode::Finish } else { RestMode::Cancel };
        let config = GatherConfig { calls, needed, canaries, deadline, rest };
        let (gather, name) = (self.requests, "/all".to_owned());
        self.write(&Entry::<()>::Gather { gather, name, config });
        self.gathers.push((gather, Gather::new(config)));
        self.tell_gather(self.gathers.len() - 1, GatherEvent::Arrived);
    }

    fn gather_event(&mut self) {
        let nth = self.rng.below(self.gathers.len());
        let call = CallId(u32::try_from(self.rng.below(12)).expect("small"));
        let event = match self.rng.below(20) {
            0 => GatherEvent::Abandoned,
            1 => GatherEvent::RestRejected,
            2 => GatherEvent::Woke,
            _ => GatherEvent::CallEnded { call, success: self.rng.chance(0.7) },
        };
        self.tell_gather(nth, event);
    }

    fn tell_gather(&mut self, nth: usize, event: GatherEvent) {
        let (number, gather) = &mut self.gathers[nth];
        let (gather_number, now) = (*number, self.now);
        gather.handle(now, event);
        let effects: Vec<_> = std::iter::from_fn(|| gather.poll_effect()).collect();
        let is_over = gather.is_over();
        self.write(&Entry::GatherEvent { gather: gather_number, now, event, effects });
        if is_over {
            self.gathers.swap_remove(nth);
        }
    }

    fn leaf(&mut self) {
        self.requests += 1;
        let known = LeafRequestId(self.requests.saturating_sub(self.rng.below(9) as u64));
        let tie = TieId(self.rng.below(6) as u64);
        let event = match self.rng.below(5) {
            0 => LeafEvent::Finished { request: known },
            1 => LeafEvent::Gone { request: known },
            2 => LeafEvent::TwinStarted { tie },
            _ => LeafEvent::Arrived {
                request: LeafRequestId(self.requests),
                class: Class::Batch,
                tie: self.rng.chance(0.5).then_some(tie),
            },
        };
        let now = self.now;
        self.leaf.handle(now, event);
        let effects: Vec<_> = std::iter::from_fn(|| self.leaf.poll_effect()).collect();
        self.write(&Entry::LeafEvent { machine: 1, now, event, effects });
    }
}

fn configs() -> [UpstreamConfig; 4] {
    let budget =
        BudgetConfig { ratio: Ratio::new(0.02).expect("a ratio"), ..BudgetConfig::default() };
    let hedged = UpstreamConfig { budget, ..UpstreamConfig::default() };
    let prequal = BalanceConfig::Prequal(PrequalConfig::default());
    [
        hedged,
        UpstreamConfig { tie: Some(TieConfig::default()), ..hedged },
        UpstreamConfig { balance: prequal, ..hedged },
        UpstreamConfig { remedy: RemedyMode::Auto, ..hedged },
    ]
}

/// The entries of a journal, without checksums.
fn journal(seed: u64, config: UpstreamConfig) -> String {
    let mut writer = Writer::new(seed, config);
    (0..5_000).for_each(|_| writer.anything());
    let entries = writer.text.lines().count() as u64;
    writer.write(&Entry::<()>::End { entries });
    writer.text
}

/// The lines of a journal with these entries.
fn sealed(entries: &str) -> String {
    let mut checksum = Checksum::default();
    let lines = entries.lines().flat_map(|entry| checksum.seal(entry.as_bytes()));
    String::from_utf8(lines.collect()).expect("it was text")
}

fn replayed(entries: &str) -> Replayed {
    replay(sealed(entries).as_bytes()).expect("a journal")
}

/// The error of a replay of this journal.
fn unreadable(journal: &str) -> String {
    match replay(journal.as_bytes()) {
        Err(unreadable @ Unreadable::Line { .. }) => unreadable.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn fresh_machines_decide_what_a_journal_says_byte_for_byte() {
    for (seed, config) in (1..).zip(configs()) {
        let journal = journal(seed, config);
        let Replayed { requests, events, effects, end } = replayed(&journal);
        assert_eq!(end, End::Complete, "seed {seed}");
        let joined = journal.matches("\"entry\":\"replica\"").count() as u64;
        let gathers = journal.matches("\"entry\":\"gather\"").count() as u64;
        assert!(gathers > 50, "seed {seed}: {gathers} requests fanned out");
        assert!(joined > 20, "seed {seed}: {joined} replicas joined");
        let lines = journal.lines().count() as u64;
        assert_eq!(4 + joined + gathers + requests + events, lines, "seed {seed}");
        assert!(requests > 500 && effects > 2_000, "seed {seed}: {requests} {effects}");
        let remedies =
            ["\"cancel\"", "\"budget_spent\"", "\"retry\"", "\"queue_full\"", "\"drop\""];
        let ends = ["\"enough\"", "\"too_many_failed\"", "\"deadline\"", "\"rest_rejected\""];
        for what in remedies.into_iter().chain(ends) {
            assert!(journal.contains(what), "seed {seed}: nothing was {what}");
        }
        let switched = ["\"gain_estimated\"", "\"gain_proven\"", "\"no_gain\"", "\"tries_again\""];
        for what in switched {
            let is_auto = config.remedy == RemedyMode::Auto;
            assert_eq!(journal.contains(what), is_auto, "seed {seed}: {what}");
        }
    }
}

#[test]
fn the_first_difference_names_its_line_its_event_and_both_effects() {
    let [config, ..] = configs();
    let journal = journal(1, config);
    let lines: Vec<&str> = journal.lines().collect();
    // A cancel is an effect of an event, and a word of a gather's configuration.
    let has_cancel = |l: &&str| l.contains("\"effects\"") && l.contains("\"cancel\"");
    let nth = 1_000 + lines[1_000..].iter().position(has_cancel).expect("one");
    let forged = lines[nth].replace("\"cancel\"", "\"respond\"");
    let text = [&lines[..nth], &[&forged], &lines[nth + 1..]].concat().join("\n");
    let End::Different(difference) = replayed(&text).end else {
        panic!("line {} was forged", nth + 1)
    };
    assert_eq!(difference.line, nth as u64 + 1);
    assert_eq!(difference.machine, "search");
    let whole = format!("{},\"effects\":{}}}", difference.event, difference.expected);
    assert_eq!(whole, forged);
    let whole = format!("{},\"effects\":{}}}", difference.event, difference.got);
    assert_eq!(whole, lines[nth]);
}

#[test]
fn a_machine_that_was_given_other_randomness_is_found_out() {
    let [config, ..] = configs();
    let (ours, theirs) = (journal(1, config), journal(2, config));
    let other = theirs.lines().nth(1).expect("the upstream");
    let own = ours.lines().nth(1).expect("the upstream");
    let replayed = replayed(&ours.replacen(own, other, 1));
    assert!(matches!(replayed.end, End::Different(_)), "{replayed:?}");
}

#[test]
fn a_cut_ends_the_replay() {
    let [config, ..] = configs();
    let journal = journal(1, config);
    let (entries, _) = journal.rsplit_once("{\"entry\":\"end\"").expect("its last line");
    let cut = format!("{entries}{{\"entry\":\"cut\",\"lost\":7}}\n");
    assert_eq!(replayed(&cut).end, End::Cut { lost: 7 });
    let nothing = "expected no entry after the last one";
    assert!(unreadable(&sealed(&(cut + "{}"))).contains(nothing));
}

#[test]
fn a_journal_without_its_last_line_is_equal_as_far_as_it_goes() {
    let [config, ..] = configs();
    let whole = sealed(&journal(1, config));
    let complete = replay(whole.as_bytes()).expect("a journal");
    assert_eq!(complete.end, End::Complete);
    // A killed proxy leaves any number of bytes, and its unfinished last line is ignored.
    for missing in [1, 2, 60, 1_000, 100_000] {
        let replayed = replay(&whole.as_bytes()[..whole.len() - missing]).expect("a journal");
        assert_eq!(replayed.end, End::Unfinished, "{missing} bytes");
        assert!(replayed.events <= complete.events);
    }
}

#[test]
fn a_line_that_was_changed_moved_or_removed_is_named() {
    let [config, ..] = configs();
    let whole = sealed(&journal(1, config));
    let lines: Vec<&str> = whole.lines().collect();
    let error = |lines: &[&str]| unreadable(&(lines.join("\n") + "\n"));
    for nth in (3..lines.len() - 1).step_by(101) {
        let expected = format!("line {} is not of a journal: checksum does not match", nth + 1);
        let mut swapped = lines.clone();
        swapped.swap(nth, nth + 1);
        assert!(error(&swapped).starts_with(&expected), "{}", error(&swapped));
        let mut shorter = lines.clone();
        shorter.remove(nth);
        assert!(error(&shorter).starts_with(&expected), "{}", error(&shorter));
        let Some((before, after)) = lines[nth].split_once("\"now\":") else { continue };
        let (now, after) = after.split_once(',').expect("the event follows");
        let later = now.parse::<u64>().expect("nanoseconds") + 1;
        let mut changed = lines.clone();
        let line = format!("{before}\"now\":{later},{after}");
        changed[nth] = &line;
        assert!(error(&changed).starts_with(&expected), "{}", error(&changed));
    }
}

#[test]
fn a_time_that_goes_back_is_an_error_of_its_line() {
    let [config, ..] = configs();
    let journal = journal(1, config);
    let lines: Vec<&str> = journal.lines().collect();
    for kind in ["call", "upstream_event", "leaf_event", "gather_event"] {
        let is_kind = |line: &&str| line.starts_with(&format!("{{\"entry\":\"{kind}\""));
        let nth = lines.iter().rposition(is_kind).expect("there is one");
        let (before, after) = lines[nth].split_once("\"now\":").expect("it has a time");
        let (_, after) = after.split_once(',').expect("the event follows");
        let mut changed = lines.clone();
        let line = format!("{before}\"now\":1,{after}");
        changed[nth] = &line;
        let text = unreadable(&sealed(&changed.join("\n")));
        let expected = format!("line {} is not of a journal: now goes back to 1 from ", nth + 1);
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.ends_with(": expected the times of a machine in order"), "{text}");
    }
}

#[test]
fn errors_in_a_journal_name_their_line() {
    let [config, ..] = configs();
    let journal = journal(1, config);
    let lines: Vec<&str> = journal.lines().collect();
    let replay_error = |entries: &str| unreadable(&sealed(entries));
    assert_eq!(replay_error(""), "line 1 is not of a journal: the journal is empty");
    assert_eq!(replay_error(lines[1]), "line 1 is not of a journal: expected the schema first");
    let newer = lines[0].replace("/4", "/5");
    let expected =
        "line 1 is not of a journal: schema is curtail.journal/5: expected curtail.journal/4";
    assert_eq!(replay_error(&newer), expected);
    let older = format!("{}\n", lines[0].replace("/4", "/2"));
    assert_eq!(unreadable(&older), expected.replace("journal/5", "journal/2"), "without checksums");
    let short = [lines[0], "{\"entry\":\"end\",\"entries\":7}"].join("\n");
    assert_eq!(
        replay_error(&short),
        "line 2 is not of a journal: expected 7 entries before this line"
    );
    let twice = [lines[0], lines[1], lines[1]].join("\n");
    assert_eq!(replay_error(&twice), "line 3 is not of a journal: machine 0 is here a second time");
    let orphan = [
        lines[0],
        "{\"entry\":\"request\",\"machine\":9,\"call\":1,\"request\":{\"class\":\"batch\",\"repeatable\":true}}",
    ];
    let unsorted = "{\"entry\":\"request\",\"machine\":0,\"call\":1,\"request\":{\"class\":\"batch\",\"repeatable\":true},\"eligible\":[2,1]}";
    assert_eq!(
        replay_error(&[lines[0], lines[1], unsorted].join("\n")),
        "line 3 is not of a journal: expected at most 4096 replicas in ascending order"
    );
    assert_eq!(
        replay_error(&orphan.join("\n")),
        "line 2 is not of a journal: unknown upstream 9: expected its entry first"
    );
    let probe = "{\"entry\":\"upstream_event\",\"machine\":0,\"now\":1,\"event\":{\"probe_unsupported\":{\"replica\":5}},\"effects\":[]}";
    assert_eq!(
        replay_error(&[lines[0], lines[1], probe].join("\n")),
        "line 3 is not of a journal: unknown replica 5: expected its entry first"
    );
    assert!(
        replay_error(&[lines[0], "{\"entry\":"].join("\n"))
            .starts_with("line 2 is not of a journal: ")
    );
    let gather = lines.iter().find(|line| line.contains("\"gather\"")).expect("there is one");
    let twice = replay_error(&[lines[0], gather, gather].join("\n"));
    assert!(twice.starts_with("line 3 is not of a journal: gather "), "{twice}");
    assert!(twice.ends_with(" is here a second time"), "{twice}");
    let orphan =
        "{\"entry\":\"gather_event\",\"gather\":7,\"now\":1,\"event\":\"arrived\",\"effects\":[]}";
    assert_eq!(
        replay_error(&[lines[0], orphan].join("\n")),
        "line 2 is not of a journal: unknown gather 7: expected its entry first"
    );
    let large = "{\"entry\":\"gather\",\"gather\":0,\"name\":\"/\",\"config\":{\"calls\":100000,\"needed\":1,\"canaries\":0,\"deadline\":null,\"rest\":\"cancel\"}}";
    let large = (0..700).map(|n| large.replace("\"gather\":0", &format!("\"gather\":{n}")));
    let large: Vec<String> = std::iter::once(lines[0].to_owned()).chain(large).collect();
    assert!(
        replay_error(&large.join("\n")).ends_with("expected at most 1000000 requests at a time")
    );
    let long = format!("{{{}", "x".repeat(16 << 20));
    assert_eq!(
        replay_error(&[lines[0], &long].join("\n")),
        "line 2 is not of a journal: expected at most 16777216 bytes"
    );
}

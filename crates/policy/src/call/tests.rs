use super::{Call, Event, Failure, Outcome, Request};
use crate::budget::Purpose;
use crate::{
    AttemptId, BalanceConfig, BudgetConfig, HedgeConfig, QuantileDelay, RemedyMode, ReplicaId,
    RetryConfig, TieConfig, Upstream, UpstreamConfig,
};
use alloc::format;
use alloc::string::String;
use core::fmt::Write;
use curtail_units::{Duration, Instant, Quantile, Ratio, Rng};
use expect_test::{Expect, expect};

/// One request whose events and effects are written down, an event a paragraph.
struct RecordedCall {
    upstream: Upstream,
    call: Call,
    begin: Instant,
    now: Instant,
    text: String,
}

impl RecordedCall {
    /// After 1,000 requests whose latencies were 1 ms to 1,000 ms.
    fn new(config: UpstreamConfig, replicas: usize, request: Request) -> Self {
        let mut upstream = Upstream::new(config, replicas, &Rng::new(7));
        let begin = Instant::ZERO + Duration::from_secs(2);
        for ms in 1..=1_000 {
            let earlier = Instant::ZERO + Duration::from_ms(1_000 - ms);
            upstream.budget().request(earlier);
            upstream.latency_known(begin, Duration::from_ms(ms));
        }
        Self { upstream, call: Call::new(request), begin, now: begin, text: String::new() }
    }

    fn after(&mut self, ms: u64, event: Event) {
        self.now = self.now + Duration::from_ms(ms);
        self.handle(event);
    }

    fn handle(&mut self, event: Event) {
        let at = self.now.since(self.begin);
        writeln!(self.text, "{at}: {event:?}").expect("a string takes everything");
        self.call.handle(&mut self.upstream, self.now, event);
        while let Some(decided) = self.upstream.poll_effect() {
            let (effect, why) = (decided.effect, decided.reason);
            writeln!(self.text, "    {effect:?}\n        {} ({why})", why.name())
                .expect("as above");
        }
    }

    fn wakes(&mut self) {
        self.now = self.call.poll_timeout().expect("there is something to wait for");
        self.handle(Event::Woke);
    }

    fn responded(&mut self, attempt: u8, outcome: Outcome) {
        self.after(1, Event::Responded { attempt: AttemptId(attempt), outcome });
    }

    fn failed(&mut self, attempt: u8, failure: Failure) {
        self.after(1, Event::Failed { attempt: AttemptId(attempt), failure });
    }

    fn ended(&mut self, attempt: u8) {
        self.after(1, Event::Ended { attempt: AttemptId(attempt), whole: true });
    }

    fn broken_off(&mut self, attempt: u8) {
        self.after(1, Event::Ended { attempt: AttemptId(attempt), whole: false });
    }

    fn check(&self, expected: &Expect) {
        expected.assert_eq(&self.text);
    }
}

fn plain() -> UpstreamConfig {
    UpstreamConfig::plain(BalanceConfig::RoundRobin)
}

fn hedged() -> UpstreamConfig {
    UpstreamConfig { hedge: Some(HedgeConfig::default()), ..plain() }
}

fn retried() -> UpstreamConfig {
    let overdue = QuantileDelay { quantile: Quantile::P90, ..RetryConfig::OVERDUE };
    let retry = RetryConfig { overdue: Some(overdue), ..RetryConfig::default() };
    UpstreamConfig { retry: Some(retry), ..plain() }
}

fn tied() -> UpstreamConfig {
    UpstreamConfig { tie: Some(TieConfig::default()), ..plain() }
}

/// No extra attempt at all.
fn broke(config: UpstreamConfig) -> UpstreamConfig {
    let budget = BudgetConfig { ratio: Ratio::ZERO, reserve: 0, ..BudgetConfig::default() };
    UpstreamConfig { budget, ..config }
}

#[test]
fn a_quick_response_is_the_response() {
    let mut call = RecordedCall::new(hedged(), 3, Request::READ);
    call.handle(Event::Arrived);
    call.responded(0, Outcome::Good);
    call.ended(0);
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: None }
                first (first attempt)
        1 ms: Responded { attempt: AttemptId(0), outcome: Good }
            Respond { attempt: AttemptId(0) }
                first_accepted (first accepted response)
        2 ms: Ended { attempt: AttemptId(0), whole: true }
    "#]]);
}

#[test]
fn a_dry_run_counts_the_hedge_that_it_does_not_send() {
    let dry_run = UpstreamConfig { remedy: RemedyMode::DryRun, ..hedged() };
    let mut call = RecordedCall::new(dry_run, 3, Request::READ);
    let other = call.upstream.attempt_sent(ReplicaId(2), call.now);
    call.now = call.now + Duration::from_ms(40);
    call.upstream.latency_observed(other, call.now);
    call.handle(Event::Arrived);
    call.wakes();
    call.responded(0, Outcome::Good);
    call.ended(0);
    call.check(&expect![[r#"
        40 ms: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: None }
                first (first attempt)
        1.031 s: Woke
            Skip
                dry_run (dry run: waited 991.952 ms, longer than 991.952 ms; another replica has just taken 40 ms)
        1.032 s: Responded { attempt: AttemptId(0), outcome: Good }
            Respond { attempt: AttemptId(0) }
                first_accepted (first accepted response)
        1.033 s: Ended { attempt: AttemptId(0), whole: true }
    "#]]);
}

#[test]
fn a_dry_run_needs_a_response_of_another_replica_and_sends_no_tie() {
    let dry_run =
        UpstreamConfig { remedy: RemedyMode::DryRun, tie: Some(TieConfig::default()), ..hedged() };
    let mut call = RecordedCall::new(dry_run, 3, Request::READ);
    // Its own replica is no other one.
    let own = call.upstream.attempt_sent(ReplicaId(0), call.now);
    call.upstream.latency_observed(own, call.now);
    call.handle(Event::Arrived);
    call.wakes();
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: None }
                first (first attempt)
        991.952 ms: Woke
            Skip
                no_other_replica (no other replica)
    "#]]);
}

#[test]
fn a_slow_request_is_hedged_and_the_hedge_wins() {
    let mut call = RecordedCall::new(hedged(), 3, Request::READ);
    call.handle(Event::Arrived);
    call.wakes();
    call.responded(1, Outcome::Good);
    call.ended(1);
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: None }
                first (first attempt)
        991.952 ms: Woke
            Send { attempt: AttemptId(1), replica: ReplicaId(1), choice: Turn, class: Batch, tie: None }
                slower_than_quantile (waited 991.952 ms, longer than 991.952 ms (quantile 0.99))
        992.952 ms: Responded { attempt: AttemptId(1), outcome: Good }
            Cancel { attempt: AttemptId(0) }
                lost (attempt 1 responded first)
            Respond { attempt: AttemptId(1) }
                first_accepted (first accepted response)
        993.952 ms: Ended { attempt: AttemptId(1), whole: true }
    "#]]);
}

#[test]
fn a_hedge_that_the_budget_does_not_grant_is_held_back() {
    let mut call = RecordedCall::new(broke(hedged()), 3, Request::READ);
    call.handle(Event::Arrived);
    call.wakes();
    call.responded(0, Outcome::Good);
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: None }
                first (first attempt)
        991.952 ms: Woke
            Skip
                budget_spent (budget spent: 0 extra of 1001 requests, allowed 0)
        992.952 ms: Responded { attempt: AttemptId(0), outcome: Good }
            Respond { attempt: AttemptId(0) }
                first_accepted (first accepted response)
    "#]]);
}

#[test]
fn there_is_no_hedge_without_another_replica_nor_of_what_may_not_be_repeated() {
    let mut call = RecordedCall::new(hedged(), 1, Request::READ);
    call.handle(Event::Arrived);
    call.wakes();
    call.responded(0, Outcome::Good);
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Only, class: Interactive, tie: None }
                first (first attempt)
        991.952 ms: Woke
            Skip
                no_other_replica (no other replica)
        992.952 ms: Responded { attempt: AttemptId(0), outcome: Good }
            Respond { attempt: AttemptId(0) }
                first_accepted (first accepted response)
    "#]]);
    let mut write = RecordedCall::new(hedged(), 3, Request { repeatable: false, ..Request::READ });
    write.handle(Event::Arrived);
    write.wakes();
    write.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: None }
                first (first attempt)
        60 s: Woke
            Cancel { attempt: AttemptId(0) }
                request_timeout (no response within 60 s)
            Fail { why: TimedOut }
                request_timeout (no response within 60 s)
    "#]]);
}

#[test]
fn good_beats_fast_error() {
    let mut call = RecordedCall::new(hedged(), 3, Request::READ);
    call.handle(Event::Arrived);
    call.wakes();
    call.responded(1, Outcome::Bad);
    call.responded(0, Outcome::Good);
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: None }
                first (first attempt)
        991.952 ms: Woke
            Send { attempt: AttemptId(1), replica: ReplicaId(1), choice: Turn, class: Batch, tie: None }
                slower_than_quantile (waited 991.952 ms, longer than 991.952 ms (quantile 0.99))
        992.952 ms: Responded { attempt: AttemptId(1), outcome: Bad }
        993.952 ms: Responded { attempt: AttemptId(0), outcome: Good }
            Cancel { attempt: AttemptId(1) }
                lost (attempt 0 responded first)
            Respond { attempt: AttemptId(0) }
                first_accepted (first accepted response)
    "#]]);
}

#[test]
fn failures_are_retried_until_the_retries_are_spent() {
    let mut call = RecordedCall::new(retried(), 2, Request::READ);
    call.handle(Event::Arrived);
    call.failed(0, Failure::Broken);
    // Backoff starts only after both replicas were tried.
    call.failed(1, Failure::NotSent);
    call.wakes();
    call.responded(2, Outcome::Bad);
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: None }
                first (first attempt)
        1 ms: Failed { attempt: AttemptId(0), failure: Broken }
            Send { attempt: AttemptId(1), replica: ReplicaId(1), choice: Turn, class: Interactive, tie: None }
                retry (retry 1 after 0 ns: no complete and valid response)
        2 ms: Failed { attempt: AttemptId(1), failure: NotSent }
        9.661 ms: Woke
            Send { attempt: AttemptId(2), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: None }
                retry (retry 2 after 7.661 ms: was not executed)
        10.661 ms: Responded { attempt: AttemptId(2), outcome: Bad }
            Skip
                attempts_spent (all 3 attempts spent)
            Respond { attempt: AttemptId(2) }
                nothing_better (no better response can come)
    "#]]);
}

#[test]
fn an_error_says_not_sent_only_if_no_server_may_have_executed_the_request() {
    for (failures, expected) in [
        ([Failure::Broken, Failure::NotSent, Failure::NotSent], Failure::Broken),
        ([Failure::NotSent, Failure::Broken, Failure::NotSent], Failure::Broken),
        ([Failure::Broken, Failure::TwinLost, Failure::NotSent], Failure::TwinLost),
        ([Failure::NotSent, Failure::NotSent, Failure::Broken], Failure::Broken),
        ([Failure::NotSent; 3], Failure::NotSent),
    ] {
        let mut call = RecordedCall::new(retried(), 2, Request::READ);
        call.handle(Event::Arrived);
        call.failed(0, failures[0]);
        call.failed(1, failures[1]);
        call.wakes();
        call.failed(2, failures[2]);
        let fails = format!("Fail {{ why: Failed({expected:?}) }}");
        assert!(call.text.contains(&fails), "{failures:?}: {}", call.text);
    }
}

#[test]
fn attempts_beyond_a_limit_of_connections_are_retried_and_eject_no_replica() {
    for (failure, is_ejected) in
        [(Failure::ConnectionLimit, false), (Failure::Unprocessed, false), (Failure::NotSent, true)]
    {
        let write = Request { repeatable: false, ..Request::READ };
        let mut call = RecordedCall::new(broke(retried()), 1, write);
        call.handle(Event::Arrived);
        for attempt in 0..2 {
            call.failed(attempt, failure);
            call.wakes();
        }
        call.failed(2, failure);
        let fails = format!("Fail {{ why: Failed({failure:?}) }}");
        assert!(call.text.contains(&fails), "{}", call.text);
        assert_eq!(call.upstream.is_ejected(ReplicaId(0), call.now), is_ejected, "{failure:?}");
    }
}

#[test]
fn what_a_server_may_have_executed_is_not_sent_twice_unless_that_is_safe() {
    let mut call = RecordedCall::new(retried(), 3, Request { repeatable: false, ..Request::READ });
    call.handle(Event::Arrived);
    call.responded(0, Outcome::Refused);
    call.failed(1, Failure::Broken);
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: None }
                first (first attempt)
        1 ms: Responded { attempt: AttemptId(0), outcome: Refused }
            Send { attempt: AttemptId(1), replica: ReplicaId(1), choice: Turn, class: Interactive, tie: None }
                retry (retry 1 after 0 ns: was refused for lack of room)
        2 ms: Failed { attempt: AttemptId(1), failure: Broken }
            Cancel { attempt: AttemptId(0) }
                may_not_repeat (the request may not be sent twice)
            Fail { why: Failed(Broken) }
                may_not_repeat (the request may not be sent twice)
    "#]]);
}

#[test]
fn an_overdue_attempt_stays_in_the_race_with_the_next_one() {
    let mut call = RecordedCall::new(retried(), 3, Request::READ);
    call.handle(Event::Arrived);
    call.wakes();
    call.responded(0, Outcome::Good);
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: None }
                first (first attempt)
        899.678 ms: Woke
            Send { attempt: AttemptId(1), replica: ReplicaId(1), choice: Turn, class: Batch, tie: None }
                overdue (no response for 899.678 ms; overdue after 899.678 ms)
        900.678 ms: Responded { attempt: AttemptId(0), outcome: Good }
            Cancel { attempt: AttemptId(1) }
                lost (attempt 0 responded first)
            Respond { attempt: AttemptId(0) }
                first_accepted (first accepted response)
    "#]]);
}

#[test]
fn with_two_replicas_a_slow_read_runs_twice_at_most() {
    let mut call = RecordedCall::new(retried(), 2, Request::READ);
    call.handle(Event::Arrived);
    call.wakes();
    call.wakes();
    call.responded(0, Outcome::Good);
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: None }
                first (first attempt)
        899.678 ms: Woke
            Send { attempt: AttemptId(1), replica: ReplicaId(1), choice: Turn, class: Batch, tie: None }
                overdue (no response for 899.678 ms; overdue after 899.678 ms)
        1.799 s: Woke
            Skip
                no_other_replica (no other replica)
        1.8 s: Responded { attempt: AttemptId(0), outcome: Good }
            Cancel { attempt: AttemptId(1) }
                lost (attempt 0 responded first)
            Respond { attempt: AttemptId(0) }
                first_accepted (first accepted response)
    "#]]);
}

#[test]
fn an_overdue_attempt_is_followed_by_one_to_a_replica_that_failed_before() {
    let mut call = RecordedCall::new(retried(), 2, Request::READ);
    call.handle(Event::Arrived);
    call.failed(0, Failure::Broken);
    call.wakes();
    call.responded(2, Outcome::Good);
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: None }
                first (first attempt)
        1 ms: Failed { attempt: AttemptId(0), failure: Broken }
            Send { attempt: AttemptId(1), replica: ReplicaId(1), choice: Turn, class: Interactive, tie: None }
                retry (retry 1 after 0 ns: no complete and valid response)
        900.678 ms: Woke
            Send { attempt: AttemptId(2), replica: ReplicaId(0), choice: Turn, class: Batch, tie: None }
                overdue (no response for 899.678 ms; overdue after 899.678 ms)
        901.678 ms: Responded { attempt: AttemptId(2), outcome: Good }
            Cancel { attempt: AttemptId(1) }
                lost (attempt 2 responded first)
            Respond { attempt: AttemptId(2) }
                first_accepted (first accepted response)
    "#]]);
}

#[test]
fn a_replica_whose_overdue_attempts_lose_is_ejected_like_a_failing_one() {
    // Three overdue attempts in a row eject it for longer than the other requests take.
    assert_eq!(requests_each(BalanceConfig::RoundRobin, hang), [3, 17]);
}

#[test]
fn a_replica_whose_attempt_was_overtaken_is_suspect_if_replicas_are_compared() {
    assert_eq!(requests_each(BalanceConfig::LEAST_REQUEST, hang), [1, 19]);
}

#[test]
fn a_replica_whose_connections_are_full_is_avoided_if_replicas_are_compared() {
    // Within 100 ms: each request ends before its retry.
    let first = |failure| {
        let fail = |call: &mut RecordedCall| call.failed(0, failure);
        requests_each(BalanceConfig::LEAST_REQUEST, fail)
    };
    assert_eq!(first(Failure::ConnectionLimit), [1, 19]);
    // The server has ended the connection, and may have room.
    assert_eq!(first(Failure::Unprocessed), [19, 1]);
}

/// Plays a first replica that hangs.
fn hang(call: &mut RecordedCall) {
    call.wakes();
    call.responded(1, Outcome::Good);
    call.ended(1);
}

/// Sends 20 requests, one after the other, to two replicas; `first` plays the first replica. Returns how many requests
/// each replica got first.
fn requests_each(balance: BalanceConfig, first: impl Fn(&mut RecordedCall)) -> [u32; 2] {
    let mut call = RecordedCall::new(UpstreamConfig { balance, ..retried() }, 2, Request::READ);
    let mut first_requests = [0; 2];
    for _ in 0..20 {
        call.call = Call::new(Request::READ);
        call.after(1, Event::Arrived);
        let is_first = call.upstream.in_flight(ReplicaId(0)) > 0;
        first_requests[usize::from(!is_first)] += 1;
        if is_first {
            first(&mut call);
        } else {
            call.responded(0, Outcome::Good);
            call.ended(0);
        }
    }
    first_requests
}

#[test]
fn a_replica_whose_responses_break_off_is_ejected() {
    let break_off = |call: &mut RecordedCall| {
        call.responded(0, Outcome::Good);
        call.broken_off(0);
    };
    // After three in a row, for longer than the other requests take.
    assert_eq!(requests_each(BalanceConfig::RoundRobin, break_off), [3, 17]);
}

#[test]
fn a_client_that_stops_reading_does_not_count_against_the_replica() {
    let leave = |call: &mut RecordedCall| {
        call.responded(0, Outcome::Good);
        call.after(1, Event::Abandoned);
    };
    assert_eq!(requests_each(BalanceConfig::RoundRobin, leave), [10, 10]);
    // It makes good for failures before: streams often end only because their clients leave.
    let nth = core::cell::Cell::new(0);
    let every_other = |call: &mut RecordedCall| {
        nth.set(nth.get() + 1);
        if nth.get() % 2 == 0 {
            leave(call);
        } else {
            call.responded(0, Outcome::Good);
            call.broken_off(0);
        }
    };
    assert_eq!(requests_each(BalanceConfig::RoundRobin, every_other), [10, 10]);
}

#[test]
fn without_budget_an_overdue_attempt_waits_alone() {
    let mut call = RecordedCall::new(broke(retried()), 3, Request::READ);
    call.handle(Event::Arrived);
    while !call.call.is_over() {
        call.wakes();
    }
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: None }
                first (first attempt)
        899.678 ms: Woke
            Skip
                budget_spent (budget spent: 0 extra of 1001 requests, allowed 0)
        1.799 s: Woke
        3.598 s: Woke
        7.197 s: Woke
        14.394 s: Woke
        28.789 s: Woke
        57.579 s: Woke
        60 s: Woke
            Cancel { attempt: AttemptId(0) }
                request_timeout (no response within 60 s)
            Fail { why: TimedOut }
                request_timeout (no response within 60 s)
    "#]]);
}

#[test]
fn a_hedge_and_an_overdue_attempt_that_the_budget_refuses_are_sent_once_it_recovers() {
    for config in [hedged(), retried()] {
        let budget = BudgetConfig { reserve: 0, ..BudgetConfig::default() };
        let mut call = RecordedCall::new(UpstreamConfig { budget, ..config }, 2, Request::READ);
        // The budget's share of the requests before is spent.
        while call.upstream.budget().withdraw(call.now, Purpose::Retry).is_ok() {}
        call.handle(Event::Arrived);
        call.wakes();
        assert_eq!(call.call.attempts.len(), 1, "{}", call.text);
        (0..100).for_each(|_| call.upstream.budget().request(call.now));
        call.wakes();
        assert_eq!(call.call.attempts.len(), 2, "{}", call.text);
    }
}

#[test]
fn a_tie_is_two_copies_and_the_one_that_is_dropped_is_not_missed() {
    let mut call = RecordedCall::new(tied(), 3, Request::READ);
    call.handle(Event::Arrived);
    call.wakes();
    call.responded(1, Outcome::TwinStarted);
    call.responded(0, Outcome::Good);
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: Some(Tie { id: TieId(18406247986336626055), twin: ReplicaId(1), role: First }) }
                tie_first (first copy of a tie)
        1 ms: Woke
            Send { attempt: AttemptId(1), replica: ReplicaId(1), choice: Turn, class: Interactive, tie: Some(Tie { id: TieId(18406247986336626055), twin: ReplicaId(0), role: Second }) }
                tie_second (second copy of a tie after 1 ms)
        2 ms: Responded { attempt: AttemptId(1), outcome: TwinStarted }
        3 ms: Responded { attempt: AttemptId(0), outcome: Good }
            Respond { attempt: AttemptId(0) }
                first_accepted (first accepted response)
    "#]]);
}

#[test]
fn a_dropped_copy_is_sent_again_when_the_twin_that_started_is_lost() {
    let mut call = RecordedCall::new(broke(tied()), 3, Request::READ);
    call.handle(Event::Arrived);
    call.wakes();
    call.responded(1, Outcome::TwinStarted);
    call.failed(0, Failure::Broken);
    call.responded(2, Outcome::Good);
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: Some(Tie { id: TieId(18406247986336626055), twin: ReplicaId(1), role: First }) }
                tie_first (first copy of a tie)
        1 ms: Woke
            Send { attempt: AttemptId(1), replica: ReplicaId(1), choice: Turn, class: Interactive, tie: Some(Tie { id: TieId(18406247986336626055), twin: ReplicaId(0), role: Second }) }
                tie_second (second copy of a tie after 1 ms)
        2 ms: Responded { attempt: AttemptId(1), outcome: TwinStarted }
        3 ms: Failed { attempt: AttemptId(0), failure: Broken }
            Send { attempt: AttemptId(2), replica: ReplicaId(2), choice: Turn, class: Interactive, tie: None }
                tie_started_lost (dropped copy again: its twin no complete and valid response)
        4 ms: Responded { attempt: AttemptId(2), outcome: Good }
            Respond { attempt: AttemptId(2) }
                first_accepted (first accepted response)
    "#]]);
}

#[test]
fn the_second_copy_goes_out_at_once_and_untied_when_the_first_is_lost() {
    let mut call = RecordedCall::new(tied(), 3, Request::READ);
    call.handle(Event::Arrived);
    call.now = call.begin;
    call.handle(Event::Failed { attempt: AttemptId(0), failure: Failure::NotSent });
    call.responded(1, Outcome::Good);
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: Some(Tie { id: TieId(18406247986336626055), twin: ReplicaId(1), role: First }) }
                tie_first (first copy of a tie)
        0 ns: Failed { attempt: AttemptId(0), failure: NotSent }
            Send { attempt: AttemptId(1), replica: ReplicaId(1), choice: Turn, class: Interactive, tie: None }
                tie_first_lost (second copy at once: first was not executed)
        1 ms: Responded { attempt: AttemptId(1), outcome: Good }
            Respond { attempt: AttemptId(1) }
                first_accepted (first accepted response)
    "#]]);
}

#[test]
fn a_body_that_cannot_be_kept_ends_what_was_planned() {
    let mut call = RecordedCall::new(retried(), 1, Request::READ);
    call.handle(Event::Arrived);
    call.responded(0, Outcome::Bad);
    call.handle(Event::ReplayLost);
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Only, class: Interactive, tie: None }
                first (first attempt)
        1 ms: Responded { attempt: AttemptId(0), outcome: Bad }
        1 ms: ReplayLost
            Skip
                may_not_repeat (the request may not be sent twice)
            Respond { attempt: AttemptId(0) }
                nothing_better (no better response can come)
    "#]]);
}

#[test]
fn at_the_timeout_a_buffered_response_is_sent() {
    let config = UpstreamConfig { timeout: Duration::from_ms(995), ..hedged() };
    let mut call = RecordedCall::new(config, 3, Request::READ);
    call.handle(Event::Arrived);
    call.wakes();
    call.responded(1, Outcome::Refused);
    call.wakes();
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: None }
                first (first attempt)
        991.952 ms: Woke
            Send { attempt: AttemptId(1), replica: ReplicaId(1), choice: Turn, class: Batch, tie: None }
                slower_than_quantile (waited 991.952 ms, longer than 991.952 ms (quantile 0.99))
        992.952 ms: Responded { attempt: AttemptId(1), outcome: Refused }
        995 ms: Woke
            Skip
                request_timeout (no response within 995 ms)
            Cancel { attempt: AttemptId(0) }
                lost (attempt 1 responded first)
            Respond { attempt: AttemptId(1) }
                nothing_better (no better response can come)
    "#]]);
}

#[test]
fn a_request_has_a_timeout_of_its_own_or_that_of_the_upstream() {
    let config = UpstreamConfig {
        timeout: Duration::from_ms(300),
        ..UpstreamConfig::plain(BalanceConfig::RoundRobin)
    };
    for (timeout, expected_ms) in [(None, 300), (Some(100), 100), (Some(900), 900)] {
        let request = Request { timeout: timeout.map(Duration::from_ms), ..Request::READ };
        let mut call = RecordedCall::new(config, 3, request);
        call.handle(Event::Arrived);
        call.wakes();
        assert_eq!(call.now.since(call.begin), Duration::from_ms(expected_ms));
        assert!(call.call.is_over(), "{}", call.text);
    }
}

#[test]
fn a_deadline_of_the_client_ends_a_request_and_says_nothing_about_the_replicas() {
    let config = UpstreamConfig {
        timeout: Duration::from_ms(300),
        ..UpstreamConfig::plain(BalanceConfig::RoundRobin)
    };
    let replica = ReplicaId(0);
    for (deadline, expected_ms, is_ejected) in
        [(100, 100, false), (0, 0, false), (300, 300, true), (900, 300, true)]
    {
        let request = Request { deadline: Some(Duration::from_ms(deadline)), ..Request::READ };
        let mut call = RecordedCall::new(config, 1, request);
        // Three failures in a row eject a replica.
        for _ in 0..3 {
            (call.call, call.begin) = (Call::new(request), call.now);
            call.handle(Event::Arrived);
            call.wakes();
            assert_eq!(call.now.since(call.begin), Duration::from_ms(expected_ms));
            assert!(call.call.is_over(), "{}", call.text);
        }
        assert_eq!(call.upstream.is_ejected(replica, call.now), is_ejected, "{deadline} ms");
        assert_eq!(call.upstream.in_flight(replica), 0);
    }
}

#[test]
fn a_request_has_at_most_the_retries_of_its_own_and_of_the_upstream() {
    for (own, expected) in [(None, 2), (Some(0), 0), (Some(1), 1), (Some(9), 2)] {
        let request = Request { retries_max: own, ..Request::READ };
        let mut call = RecordedCall::new(retried(), 5, request);
        call.handle(Event::Arrived);
        for attempt in 0..=expected {
            assert!(!call.call.is_over(), "{own:?}: {}", call.text);
            call.responded(attempt, Outcome::Bad);
        }
        assert!(call.call.is_over(), "{own:?}: {}", call.text);
    }
}

#[test]
fn a_client_that_goes_away_takes_everything_with_it() {
    let mut call = RecordedCall::new(hedged(), 3, Request::READ);
    call.handle(Event::Arrived);
    call.wakes();
    call.after(1, Event::Abandoned);
    call.check(&expect![[r#"
        0 ns: Arrived
            Send { attempt: AttemptId(0), replica: ReplicaId(0), choice: Turn, class: Interactive, tie: None }
                first (first attempt)
        991.952 ms: Woke
            Send { attempt: AttemptId(1), replica: ReplicaId(1), choice: Turn, class: Batch, tie: None }
                slower_than_quantile (waited 991.952 ms, longer than 991.952 ms (quantile 0.99))
        992.952 ms: Abandoned
            Cancel { attempt: AttemptId(0) }
                client_gone (the client has gone)
            Cancel { attempt: AttemptId(1) }
                client_gone (the client has gone)
    "#]]);
}

#[test]
fn an_upstream_without_replicas_fails() {
    let mut call = RecordedCall::new(hedged(), 0, Request::READ);
    call.handle(Event::Arrived);
    call.check(&expect![[r#"
        0 ns: Arrived
            Fail { why: NoReplica }
                no_replica (the upstream has no replica)
    "#]]);
}

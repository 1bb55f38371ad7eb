use super::{Leaf, LeafConfig, LeafEvent, LeafRequestId};
use crate::{Class, TieId};
use Class::{Background, Batch, Interactive};
use alloc::string::String;
use core::fmt::Write;
use curtail_units::{Duration, Instant};
use expect_test::{Expect, expect};

/// A leaf whose events and effects are written down, one event a paragraph.
struct RecordedLeaf {
    leaf: Leaf,
    now: Instant,
    text: String,
}

impl RecordedLeaf {
    fn new(concurrency: u32, queue_len_max: u32) -> Self {
        let leaf = Leaf::new(LeafConfig { concurrency, queue_len_max });
        Self { leaf, now: Instant::ZERO, text: String::new() }
    }

    fn handle(&mut self, event: LeafEvent, title: core::fmt::Arguments<'_>) {
        self.now = self.now + Duration::from_ms(1);
        writeln!(self.text, "{title}").expect("a string takes everything");
        self.leaf.handle(self.now, event);
        while let Some(decided) = self.leaf.poll_effect() {
            let (effect, why) = (decided.effect, decided.reason);
            writeln!(self.text, "    {effect:?}: {} ({why})", why.name()).expect("as above");
        }
    }

    fn arrives(&mut self, number: u64, class: Class, tie: Option<u64>) {
        let (request, tie) = (LeafRequestId(number), tie.map(TieId));
        let event = LeafEvent::Arrived { request, class, tie };
        self.handle(event, format_args!("{number} arrives, {}", class.name()));
    }

    fn finishes(&mut self, number: u64) {
        let event = LeafEvent::Finished { request: LeafRequestId(number) };
        self.handle(event, format_args!("{number} finishes"));
    }

    fn client_leaves(&mut self, number: u64) {
        let event = LeafEvent::Gone { request: LeafRequestId(number) };
        self.handle(event, format_args!("{number} is gone"));
    }

    fn twin_starts(&mut self, tie: u64) {
        let event = LeafEvent::TwinStarted { tie: TieId(tie) };
        self.handle(event, format_args!("the twin of tie {tie} has started"));
    }

    fn check(&self, expected: &Expect) {
        expected.assert_eq(&self.text);
    }
}

#[test]
fn class_order_and_first_come_first_served_within_a_class() {
    let mut leaf = RecordedLeaf::new(1, 8);
    leaf.arrives(1, Background, None);
    leaf.arrives(2, Background, None);
    leaf.arrives(3, Batch, None);
    leaf.arrives(4, Interactive, None);
    leaf.arrives(5, Interactive, None);
    [1, 4, 5, 3, 2].into_iter().for_each(|number| leaf.finishes(number));
    leaf.check(&expect![[r#"
        1 arrives, background
            Start { request: LeafRequestId(1) }: below_limit (the server has room: 1 of 1 in service)
        2 arrives, background
        3 arrives, batch
        4 arrives, interactive
        5 arrives, interactive
        1 finishes
            Start { request: LeafRequestId(4) }: next_in_class (next of class interactive after waiting 2 ms)
        4 finishes
            Start { request: LeafRequestId(5) }: next_in_class (next of class interactive after waiting 2 ms)
        5 finishes
            Start { request: LeafRequestId(3) }: next_in_class (next of class batch after waiting 5 ms)
        3 finishes
            Start { request: LeafRequestId(2) }: next_in_class (next of class background after waiting 7 ms)
        2 finishes
    "#]]);
}

#[test]
fn a_full_queue_refuses_the_newcomer_or_pushes_out_the_youngest_less_urgent() {
    let mut leaf = RecordedLeaf::new(1, 2);
    leaf.arrives(1, Interactive, None);
    leaf.arrives(2, Batch, None);
    leaf.arrives(3, Batch, None);
    leaf.arrives(4, Batch, None);
    leaf.arrives(5, Interactive, None);
    leaf.arrives(6, Background, None);
    leaf.finishes(1);
    leaf.check(&expect![[r#"
        1 arrives, interactive
            Start { request: LeafRequestId(1) }: below_limit (the server has room: 1 of 1 in service)
        2 arrives, batch
        3 arrives, batch
        4 arrives, batch
            Refuse { request: LeafRequestId(4) }: queue_full (queue full: 2 of 2 wait)
        5 arrives, interactive
            Refuse { request: LeafRequestId(3) }: pushed_out (queue full: made room for class interactive after 2 ms)
        6 arrives, background
            Refuse { request: LeafRequestId(6) }: queue_full (queue full: 2 of 2 wait)
        1 finishes
            Start { request: LeafRequestId(5) }: next_in_class (next of class interactive after waiting 2 ms)
    "#]]);
}

#[test]
fn a_copy_that_starts_tells_its_twin_and_one_that_waits_is_dropped() {
    let mut leaf = RecordedLeaf::new(1, 8);
    leaf.arrives(1, Interactive, Some(100));
    leaf.arrives(2, Interactive, Some(200));
    leaf.twin_starts(200);
    leaf.twin_starts(100);
    leaf.finishes(1);
    leaf.check(&expect![[r#"
        1 arrives, interactive
            Start { request: LeafRequestId(1) }: below_limit (the server has room: 1 of 1 in service)
            TellTwin { request: LeafRequestId(1), tie: TieId(100) }: tie_started (a copy of a tie starts)
        2 arrives, interactive
        the twin of tie 200 has started
            Drop { request: LeafRequestId(2) }: twin_started (the twin started; waited 1 ms)
        the twin of tie 100 has started
        1 finishes
    "#]]);
}

#[test]
fn news_that_overtakes_its_copy_drops_it_on_arrival() {
    let mut leaf = RecordedLeaf::new(1, 8);
    leaf.twin_starts(100);
    leaf.twin_starts(100);
    leaf.arrives(1, Interactive, Some(100));
    leaf.arrives(2, Interactive, Some(200));
    leaf.arrives(3, Interactive, Some(200));
    leaf.check(&expect![[r#"
        the twin of tie 100 has started
        the twin of tie 100 has started
        1 arrives, interactive
            Drop { request: LeafRequestId(1) }: twin_started_before (the twin had started before)
        2 arrives, interactive
            Start { request: LeafRequestId(2) }: below_limit (the server has room: 1 of 1 in service)
            TellTwin { request: LeafRequestId(2), tie: TieId(200) }: tie_started (a copy of a tie starts)
        3 arrives, interactive
            Drop { request: LeafRequestId(3) }: twin_is_here (the twin is at this leaf)
    "#]]);
}

#[test]
fn a_root_that_goes_away_frees_its_place_in_the_queue_or_in_service() {
    let mut leaf = RecordedLeaf::new(1, 8);
    leaf.arrives(1, Interactive, None);
    leaf.arrives(2, Interactive, None);
    leaf.arrives(3, Interactive, Some(300));
    leaf.client_leaves(2);
    leaf.client_leaves(1);
    leaf.finishes(1);
    leaf.client_leaves(3);
    leaf.client_leaves(3);
    leaf.check(&expect![[r#"
        1 arrives, interactive
            Start { request: LeafRequestId(1) }: below_limit (the server has room: 1 of 1 in service)
        2 arrives, interactive
        3 arrives, interactive
        2 is gone
        1 is gone
            Start { request: LeafRequestId(3) }: next_in_class (next of class interactive after waiting 2 ms)
            TellTwin { request: LeafRequestId(3), tie: TieId(300) }: tie_started (a copy of a tie starts)
        1 finishes
        3 is gone
        3 is gone
    "#]]);
    assert_eq!((leaf.leaf.in_service(), leaf.leaf.queue_len()), (0, 0));
    assert_eq!(leaf.leaf.load(leaf.now).in_flight, 0);
}

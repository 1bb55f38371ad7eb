//! A leaf against the plainest leaf that can be written: a list, searched from end to end each time.

use super::{Leaf, LeafConfig, LeafEffect, LeafEvent, LeafRequestId};
use crate::{Class, TieId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use curtail_units::{Duration, Instant, Rng};

#[derive(Clone, Copy, Debug, PartialEq)]
struct Listed {
    request: LeafRequestId,
    class: Class,
    tie: Option<TieId>,
    in_service: bool,
}

/// The requests at the leaf in the order of arrival, and what the machine must decide.
struct List {
    config: LeafConfig,
    all: Vec<Listed>,
    started: Vec<TieId>,
    effects: Vec<LeafEffect>,
}

impl List {
    fn handle(&mut self, event: LeafEvent) {
        match event {
            LeafEvent::Arrived { request, class, tie } => {
                let here = |tie: TieId| self.all.iter().any(|listed| listed.tie == Some(tie));
                if tie.is_some_and(|tie| self.started.contains(&tie) || here(tie)) {
                    self.effects.push(LeafEffect::Drop { request });
                } else {
                    self.all.push(Listed { request, class, tie, in_service: false });
                    self.start_queued();
                    self.refuse_one_too_many();
                }
            }
            LeafEvent::TwinStarted { tie } => {
                match self.all.iter().position(|listed| listed.tie == Some(tie)) {
                    Some(place) if self.all[place].in_service => {}
                    Some(place) => {
                        let Listed { request, .. } = self.all.remove(place);
                        self.effects.push(LeafEffect::Drop { request });
                    }
                    None => self.started.push(tie),
                }
            }
            LeafEvent::Finished { request } => {
                self.all.retain(|listed| listed.request != request || !listed.in_service);
                self.start_queued();
            }
            LeafEvent::Gone { request } => {
                self.all.retain(|listed| listed.request != request);
                self.start_queued();
            }
        }
    }

    fn in_service(&self) -> usize {
        self.all.iter().filter(|listed| listed.in_service).count()
    }

    /// The places of those that wait, in the order in which they start.
    fn queue(&self) -> Vec<usize> {
        let mut queue: Vec<usize> = (0..self.all.len()).collect();
        queue.retain(|place| !self.all[*place].in_service);
        queue.sort_by_key(|place| self.all[*place].class);
        queue
    }

    fn start_queued(&mut self) {
        while self.in_service() < self.config.concurrency as usize {
            let Some(&first) = self.queue().first() else { return };
            let Listed { request, tie, .. } = self.all[first];
            self.all[first].in_service = true;
            self.effects.push(LeafEffect::Start { request });
            self.effects.extend(tie.map(|tie| LeafEffect::TellTwin { request, tie }));
        }
    }

    fn refuse_one_too_many(&mut self) {
        let queue = self.queue();
        if queue.len() > self.config.queue_len_max as usize {
            let last = queue.last().expect("longer than its bound");
            let Listed { request, .. } = self.all.remove(*last);
            self.effects.push(LeafEffect::Refuse { request });
        }
    }
}

/// What has been decided of each request that arrived: one of start, drop and refuse.
fn note_ends(ends: &mut BTreeMap<LeafRequestId, u32>, effects: &[LeafEffect]) {
    for effect in effects {
        match effect {
            LeafEffect::Start { request }
            | LeafEffect::Drop { request }
            | LeafEffect::Refuse { request } => *ends.entry(*request).or_default() += 1,
            LeafEffect::TellTwin { .. } => {}
        }
    }
}

fn event(rng: &mut Rng, list: &List, next: &mut u64) -> LeafEvent {
    let any = |rng: &mut Rng| match list.all.len() {
        0 => LeafRequestId(u64::MAX),
        len => list.all[rng.below(len)].request,
    };
    match rng.below(10) {
        0..5 => {
            *next += 1;
            let class = Class::ALL[rng.below(3)];
            let tie = rng.chance(0.5).then(|| TieId(rng.below(200) as u64));
            LeafEvent::Arrived { request: LeafRequestId(*next), class, tie }
        }
        5..8 => LeafEvent::Finished { request: any(rng) },
        8 => LeafEvent::Gone { request: any(rng) },
        _ => LeafEvent::TwinStarted { tie: TieId(rng.below(200) as u64) },
    }
}

#[test]
fn it_decides_as_the_list_does() {
    let mut counts = [0_u32; 4];
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let concurrency = u32::try_from(1 + rng.below(3)).expect("at most 3");
        let queue_len_max = u32::try_from(rng.below(5)).expect("at most 4");
        let config = LeafConfig { concurrency, queue_len_max };
        let (all, started, effects) = (Vec::new(), Vec::new(), Vec::new());
        let mut list = List { config, all, started, effects };
        let mut leaf = Leaf::new(config);
        let (mut now, mut next, mut ends) = (Instant::ZERO, 0, BTreeMap::new());
        for step in 0..500 {
            now = now + Duration::from_us(rng.below(1_000) as u64);
            let event = event(&mut rng, &list, &mut next);
            list.handle(event);
            leaf.handle(now, event);
            let mut decided: Vec<_> =
                core::iter::from_fn(|| leaf.poll_effect()).map(|decided| decided.effect).collect();
            let mut expected = core::mem::take(&mut list.effects);
            // Only the sets of refused and started requests matter, not the order of the effects.
            let order = |effect: &LeafEffect| alloc::format!("{effect:?}");
            decided.sort_by_key(order);
            expected.sort_by_key(order);
            assert_eq!(decided, expected, "class-order: seed {seed}, step {step}, {event:?}");

            note_ends(&mut ends, &decided);
            let once = ends.values().all(|count| *count == 1);
            assert!(once, "started-once-dropped-or-refused: seed {seed}, step {step}, {event:?}");
            let (in_service, len) = (leaf.in_service(), leaf.queue_len());
            assert!(
                in_service <= concurrency,
                "leaf-concurrency-bounded: seed {seed}, step {step}"
            );
            assert!(len <= queue_len_max, "leaf-queue-bounded: seed {seed}, step {step}");
            assert_eq!(
                (in_service as usize, len as usize),
                (list.in_service(), list.queue().len())
            );
            assert_eq!(leaf.load(now).in_flight as usize, list.all.len());
            assert_eq!(leaf.ties.len(), list.all.iter().filter(|l| l.tie.is_some()).count());
            for effect in decided {
                counts[match effect {
                    LeafEffect::Start { .. } => 0,
                    LeafEffect::TellTwin { .. } => 1,
                    LeafEffect::Drop { .. } => 2,
                    LeafEffect::Refuse { .. } => 3,
                }] += 1;
            }
        }
    }
    assert!(counts.iter().all(|count| *count > 1_000), "each effect is met: {counts:?}");
}

//! The replicas that an attempt may go to.
//!
//! A replica that is ejected is chosen only if all candidates are, and an unhealthy one only if no replica is healthy: a
//! policy must not take a site down. An excluded replica is never chosen, nor a replica outside the set that the call is
//! pinned to, nor one that is drained, unless the call is pinned to drained replicas alone. A further attempt excludes the
//! replicas of the earlier ones, so it does not go to an unhealthy replica when these were healthy.
//!
//! Replicas are drawn by their shares: a draw is uniform, and accepted with the share of the replica as its probability.

use super::Replicas;
use crate::ReplicaId;
use curtail_units::{Instant, Rng};

/// The number of draws by share before the walk over all replicas. It suffices nearly always if the largest share is at
/// most four times the mean.
const UNEVEN_DRAWS: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidates<'a> {
    pub(super) replicas: &'a Replicas,
    pub(super) now: Instant,
    /// The replicas that the call is pinned to, in ascending order, also those that have left; absent: all replicas.
    pub(super) eligible: Option<&'a [ReplicaId]>,
    pub(super) exclude: &'a [ReplicaId],
    /// Whether no replica is healthy, including the excluded ones.
    admits_unhealthy: bool,
    /// Whether the call is pinned to drained replicas.
    admits_drained: bool,
    /// Whether the shares of the replicas differ.
    is_uneven: bool,
    side: Option<ZoneSide>,
}

/// The replicas in the zone of the root, or those in others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZoneSide {
    Near,
    Far,
}

impl<'a> Candidates<'a> {
    pub(super) fn new(
        replicas: &'a Replicas,
        now: Instant,
        eligible: Option<&'a [ReplicaId]>,
        exclude: &'a [ReplicaId],
    ) -> Self {
        let this = Self {
            replicas,
            now,
            eligible,
            exclude,
            admits_unhealthy: false,
            admits_drained: false,
            is_uneven: replicas.is_uneven(now),
            side: None,
        };
        let may_be_drained = replicas.weights.has_zero && eligible.is_some();
        let admits_drained = may_be_drained && this.ids().all(|id| replicas.is_drained(id));
        let this = Self { admits_drained, is_uneven: this.is_uneven && !admits_drained, ..this };
        // The first replica is nearly always healthy.
        let admits_unhealthy = !this.ids().any(|id| this.is_healthy(id) && !this.is_left_out(id));
        Self { admits_unhealthy, ..this }
    }

    /// Whether a replica gets no attempts because it is drained.
    fn is_left_out(&self, id: ReplicaId) -> bool {
        self.replicas.weights.has_zero && !self.admits_drained && self.replicas.is_drained(id)
    }

    /// The candidates on one side.
    pub(crate) const fn on(self, side: ZoneSide) -> Self {
        Self { side: Some(side), ..self }
    }

    /// Whether near replicas are preferred: for first attempts, while one of them is eligible, neither suspect nor full, and carries
    /// enough. Further attempts do not stay in a zone that may have failed as a whole.
    pub(crate) fn prefers_near(&self) -> bool {
        let near = self.on(ZoneSide::Near);
        self.replicas.weights.has_far
            && self.exclude.is_empty()
            && near.eligible_from(ReplicaId(0)).any(|id| !self.is_avoided(id))
            && near.avoids_any()
    }

    pub(crate) fn is_far(&self, id: ReplicaId) -> bool {
        self.replicas.get(id).is_some_and(super::Replica::is_far)
    }

    fn is_on_side(&self, id: ReplicaId) -> bool {
        self.side.is_none_or(|side| (side == ZoneSide::Far) == self.is_far(id))
    }

    /// Whether the shares of the replicas differ.
    pub(crate) const fn is_uneven(&self) -> bool {
        self.is_uneven
    }

    /// The share of a replica, at most 1.
    pub(crate) fn share(&self, id: ReplicaId) -> f64 {
        if self.is_uneven { self.replicas.share(id, self.now) } else { 1.0 }
    }

    /// True with the share of a replica as its probability.
    pub(crate) fn accepts(&self, id: ReplicaId, rng: &mut Rng) -> bool {
        !self.is_uneven || rng.chance(self.share(id))
    }

    fn is_healthy(&self, id: ReplicaId) -> bool {
        self.replicas.get(id).is_some_and(|replica| !replica.is_unhealthy())
    }

    pub(crate) const fn now(&self) -> Instant {
        self.now
    }

    /// Attempts in flight as balancing counts them.
    pub(crate) fn in_flight(&self, id: ReplicaId) -> u32 {
        self.replicas.in_flight(id, self.now)
    }

    /// Attempts in flight that a replica of the largest weight would have under the same load.
    pub(crate) fn relative_in_flight(&self, id: ReplicaId) -> f64 {
        f64::from(self.in_flight(id)) / self.share(id)
    }

    /// Whether a replica is present, not excluded, not drained, not ejected and not unhealthy.
    pub(crate) fn is_eligible(&self, id: ReplicaId) -> bool {
        let is_usable =
            |replica: &super::Replica| !replica.is_ejected(self.now) && !replica.is_unhealthy();
        self.is_included(id) && self.replicas.get(id).is_some_and(is_usable)
    }

    /// Whether a replica may be chosen when none is eligible. Only a pinned set can name a replica that is not present.
    fn is_included(&self, id: ReplicaId) -> bool {
        let is_pinned = |eligible: &[ReplicaId]| {
            eligible.binary_search(&id).is_ok() && self.replicas.get(id).is_some()
        };
        !self.exclude.contains(&id)
            && self.eligible.is_none_or(is_pinned)
            && (self.admits_unhealthy || self.is_healthy(id))
            && !self.is_left_out(id)
            && self.is_on_side(id)
    }

    /// The number of replicas that the call may use, including the excluded ones.
    pub(crate) fn len(&self) -> usize {
        self.eligible.map_or(self.replicas.len(), <[ReplicaId]>::len)
    }

    /// The first replica that may be chosen.
    pub(crate) fn first(&self) -> Option<ReplicaId> {
        self.ids().find(|id| self.is_included(*id))
    }

    fn ids(&self) -> impl Iterator<Item = ReplicaId> {
        (0..self.len()).map(|place| self.id_at(place))
    }

    /// The replica at `place` modulo the number of replicas.
    fn id_at(&self, place: usize) -> ReplicaId {
        match self.eligible {
            Some(eligible) => eligible[place % eligible.len()],
            None => self.replicas.all.id_at(place),
        }
    }

    /// Whether a replica is suspect or full.
    pub(super) fn is_avoided(&self, id: ReplicaId) -> bool {
        self.replicas.get(id).is_some_and(|replica| replica.is_avoided(self.now))
    }

    /// Whether draws avoid suspect and full replicas: while the other eligible ones together have at least the share of the largest.
    /// Otherwise a light replica, such as a canary, would get the requests of a heavy one.
    fn avoids_any(&self) -> bool {
        if !self.is_uneven || self.replicas.avoided_until <= self.now {
            return true;
        }
        let eligible = || self.eligible_from(ReplicaId(0));
        let mut others = 0.0;
        // No share is above 1, so the walk usually ends early.
        let is_enough = |id| {
            others += self.share(id);
            others >= 1.0
        };
        eligible().filter(|id| !self.is_avoided(*id)).any(is_enough)
            || others >= eligible().map(|id| self.share(id)).fold(0.0, f64::max)
    }

    /// The replicas in the ring from `next` on.
    fn ring_from(&self, next: ReplicaId) -> impl Iterator<Item = ReplicaId> {
        let start = match self.eligible {
            Some(eligible) => eligible.partition_point(|id| *id < next),
            None => self.replicas.all.place_from(next),
        };
        (start..start + self.len()).map(|place| self.id_at(place))
    }

    /// The eligible replicas in the ring from `next` on.
    pub(crate) fn eligible_from(&self, next: ReplicaId) -> impl Iterator<Item = ReplicaId> {
        self.ring_from(next).filter(|id| self.is_eligible(*id))
    }

    /// The first eligible replica in the ring from `next` on. If none is, the first one that is not excluded.
    pub(crate) fn next_from(&self, next: ReplicaId) -> Option<ReplicaId> {
        let mut eligible = self.eligible_from(next);
        eligible.next().or_else(|| self.ring_from(next).find(|id| self.is_included(*id)))
    }

    /// An eligible replica, drawn by share. If none is, one that is not excluded.
    pub(crate) fn draw(&self, rng: &mut Rng) -> Option<ReplicaId> {
        self.draw_where(rng, |id| self.is_eligible(id))
            .or_else(|| self.draw_where(rng, |id| self.is_included(id)))
    }

    /// Two different replicas, suspect or full only if all are or the others are too light; one if there is no second. The
    /// first is drawn like [`Self::draw`]. The second is drawn uniformly; one with less share than the first is kept only with
    /// the quotient of both shares as its probability. Every pair is then as often drawn in one order as in the other, as by
    /// Metropolis and Hastings: replicas that win half of their comparisons get exactly their shares, and none gets more than
    /// twice its share.
    pub(crate) fn draw_two(&self, rng: &mut Rng) -> Option<(ReplicaId, Option<ReplicaId>)> {
        let is_trusted = |id| self.is_eligible(id) && !self.is_avoided(id);
        let trusted = self.avoids_any().then(|| self.draw_two_where(rng, is_trusted));
        trusted
            .flatten()
            .or_else(|| self.draw_two_where(rng, |id| self.is_eligible(id)))
            // Replicas that are not eligible are not compared: one that refuses connections has the fewest attempts in flight.
            .or_else(|| Some((self.draw(rng)?, None)))
    }

    /// A replica drawn from all, if it is suspect, not full, and eligible, and [`Self::draw_two`] avoids it.
    pub(crate) fn draw_suspect(&self, rng: &mut Rng) -> Option<ReplicaId> {
        let has_avoided = self.replicas.avoided_until > self.now && self.len() > 0;
        if !has_avoided || !self.avoids_any() {
            return None;
        }
        let id = self.id_at(rng.below(self.len()));
        let is_full = self.replicas.get(id).is_some_and(|replica| replica.is_full(self.now));
        (self.is_avoided(id) && !is_full && self.is_eligible(id) && self.accepts(id, rng))
            .then_some(id)
    }

    fn draw_two_where(
        &self,
        rng: &mut Rng,
        is_wanted: impl Fn(ReplicaId) -> bool,
    ) -> Option<(ReplicaId, Option<ReplicaId>)> {
        let first = self.draw_where(rng, &is_wanted)?;
        let second = self.draw_uniform(rng, |id| id != first && is_wanted(id));
        let is_compared =
            |id: &ReplicaId| !self.is_uneven || rng.chance(self.share(*id) / self.share(first));
        Some((first, second.filter(is_compared)))
    }

    fn draw_where(
        &self,
        rng: &mut Rng,
        is_wanted: impl Fn(ReplicaId) -> bool,
    ) -> Option<ReplicaId> {
        if !self.is_uneven {
            return self.draw_uniform(rng, is_wanted);
        }
        for _ in 0..UNEVEN_DRAWS {
            if self.len() == 0 {
                return None;
            }
            let id = self.id_at(rng.below(self.len()));
            if is_wanted(id) && self.accepts(id, rng) {
                return Some(id);
            }
        }
        let wanted = || self.ids().filter(|id| is_wanted(*id));
        let mut rest = rng.unit() * wanted().map(|id| self.share(id)).sum::<f64>();
        let is_drawn = |id: &ReplicaId| {
            rest -= self.share(*id);
            rest < 0.0
        };
        // Rounding may leave a rest after the last.
        wanted().find(is_drawn).or_else(|| wanted().last())
    }

    fn draw_uniform(
        &self,
        rng: &mut Rng,
        is_wanted: impl Fn(ReplicaId) -> bool,
    ) -> Option<ReplicaId> {
        // An early draw is nearly always wanted. The exact way walks over all replicas.
        for _ in 0..4 {
            if self.len() == 0 {
                return None;
            }
            let id = self.id_at(rng.below(self.len()));
            if is_wanted(id) {
                return Some(id);
            }
        }
        let wanted = || self.ids().filter(|id| is_wanted(*id));
        let count = wanted().count();
        (count > 0).then(|| wanted().nth(rng.below(count))).flatten()
    }
}

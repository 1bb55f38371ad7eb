//! The replicas that an attempt may go to.
//!
//! A replica that is ejected is chosen only if all candidates are, and an unhealthy one only if no replica is healthy: a
//! policy must not take a site down. An excluded replica is never chosen, nor a replica outside the set that the call is
//! pinned to. A further attempt excludes the replicas of the earlier ones, so it does not go to an unhealthy replica when
//! these were healthy.

use super::Replicas;
use crate::ReplicaId;
use curtail_units::{Instant, Rng};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidates<'a> {
    pub(super) replicas: &'a Replicas,
    pub(super) now: Instant,
    /// The replicas that the call is pinned to, in ascending order, also those that have left; absent: all replicas.
    pub(super) eligible: Option<&'a [ReplicaId]>,
    pub(super) exclude: &'a [ReplicaId],
    /// Whether no replica is healthy, including the excluded ones.
    admits_unhealthy: bool,
}

impl<'a> Candidates<'a> {
    pub(super) fn new(
        replicas: &'a Replicas,
        now: Instant,
        eligible: Option<&'a [ReplicaId]>,
        exclude: &'a [ReplicaId],
    ) -> Self {
        let this = Self { replicas, now, eligible, exclude, admits_unhealthy: false };
        // The first replica is nearly always healthy.
        let admits_unhealthy = !this.ids().any(|id| this.is_healthy(id));
        Self { admits_unhealthy, ..this }
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

    /// Whether a replica is present, not excluded, not ejected and not unhealthy.
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

    pub(super) fn is_suspect(&self, id: ReplicaId) -> bool {
        self.replicas.get(id).is_some_and(|replica| self.now < replica.suspect_until)
    }

    /// The first eligible replica in the ring from `next` on. If none is, the first one that is not excluded.
    pub(crate) fn next_from(&self, next: ReplicaId) -> Option<ReplicaId> {
        let start = match self.eligible {
            Some(eligible) => eligible.partition_point(|id| *id < next),
            None => self.replicas.all.place_from(next),
        };
        let ring = || (start..start + self.len()).map(|place| self.id_at(place));
        ring().find(|id| self.is_eligible(*id)).or_else(|| ring().find(|id| self.is_included(*id)))
    }

    /// An eligible replica, drawn uniformly. If none is, one that is not excluded.
    pub(crate) fn draw(&self, rng: &mut Rng) -> Option<ReplicaId> {
        self.draw_where(rng, |id| self.is_eligible(id))
            .or_else(|| self.draw_where(rng, |id| self.is_included(id)))
    }

    /// Two different replicas drawn like [`Self::draw`], suspect only if all are suspect; one if there is no second.
    pub(crate) fn draw_two(&self, rng: &mut Rng) -> Option<(ReplicaId, Option<ReplicaId>)> {
        self.draw_two_where(rng, |id| self.is_eligible(id) && !self.is_suspect(id))
            .or_else(|| self.draw_two_where(rng, |id| self.is_eligible(id)))
            // Replicas that are not eligible are not compared: one that refuses connections has the fewest attempts in flight.
            .or_else(|| Some((self.draw(rng)?, None)))
    }

    /// A replica drawn from all, if it is suspect and eligible.
    pub(crate) fn draw_suspect(&self, rng: &mut Rng) -> Option<ReplicaId> {
        if self.replicas.suspect_until <= self.now || self.len() == 0 {
            return None;
        }
        let id = self.id_at(rng.below(self.len()));
        (self.is_suspect(id) && self.is_eligible(id)).then_some(id)
    }

    fn draw_two_where(
        &self,
        rng: &mut Rng,
        is_wanted: impl Fn(ReplicaId) -> bool,
    ) -> Option<(ReplicaId, Option<ReplicaId>)> {
        let first = self.draw_where(rng, &is_wanted)?;
        Some((first, self.draw_where(rng, |id| id != first && is_wanted(id))))
    }

    fn draw_where(
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

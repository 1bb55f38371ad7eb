//! The tiers of servers: the indices of their upstreams and servers, and the calls that an execution makes.
//!
//! The first tier is that of the model's own keys, called by the clients. Each server of a tier is a client of the next
//! one. It holds no place of its leaf while it waits for its own calls, as servers that do not block a thread.

use super::World;
use super::leaf::LeafPlace;
use super::request::{Ending, Owner, Stage};
use super::root::{RequestKind, RequestPlace, gather_of};
use crate::model::{Model, Tier};
use crate::slab::Key;
use curtail_model::{Cores, Fault, Faults};
use curtail_policy::{Gather, GatherEvent, LeafConfig, Outcome, ReplicaId};
use curtail_units::Rng;

/// The keys of a tier, and the indices of its first upstream, client and server among all.
#[derive(Clone, Copy, Debug)]
pub(super) struct TierPlace<'m> {
    pub(super) fan_out: u32,
    pub(super) shards: u32,
    pub(super) replicas: u32,
    pub(super) servers: u32,
    pub(super) clients: u32,
    pub(super) leaf: LeafConfig,
    cores: Option<Cores>,
    faults: &'m [Fault],
    first_upstream: u32,
    first_client: u32,
    first_server: u32,
    /// The first pair of an upstream and one of its replicas.
    first_pair: usize,
}

impl<'m> TierPlace<'m> {
    pub(super) fn all_of(model: &'m Model) -> Vec<Self> {
        let mut tiers = vec![Self {
            fan_out: model.fan_out,
            shards: model.shards,
            replicas: model.replicas,
            servers: model.servers,
            clients: model.clients,
            leaf: model.leaf,
            cores: model.cores,
            faults: &model.faults,
            first_upstream: 0,
            first_client: 0,
            first_server: 0,
            first_pair: 0,
        }];
        for Tier { fan_out, shards, replicas, servers, leaf, cores, faults, .. } in &model.tiers {
            let before = tiers[tiers.len() - 1];
            tiers.push(Self {
                fan_out: *fan_out,
                shards: *shards,
                replicas: *replicas,
                servers: *servers,
                clients: before.servers,
                leaf: *leaf,
                cores: *cores,
                faults,
                first_upstream: before.first_upstream + before.clients * before.shards,
                first_client: before.first_client + before.clients,
                first_server: before.first_server + before.servers,
                first_pair: before.first_pair + before.pairs_count(),
            });
        }
        tiers
    }

    /// The index of the upstream of a client of this tier and a shard.
    pub(super) const fn upstream(&self, client: u32, shard: u32) -> u32 {
        self.first_upstream + client * self.shards + shard
    }

    /// The shard and the client of an upstream of this tier, the latter among the clients of all tiers.
    pub(super) const fn shard_and_client(&self, upstream: u32) -> (u32, u32) {
        let nth = upstream - self.first_upstream;
        (nth % self.shards, self.first_client + nth / self.shards)
    }

    const fn pairs_count(&self) -> usize {
        self.clients as usize * self.shards as usize * self.replicas as usize
    }

    /// The number of pairs of an upstream and one of its replicas, in all tiers.
    pub(super) fn pairs(tiers: &[Self]) -> usize {
        tiers.iter().map(Self::pairs_count).sum()
    }

    /// The index of an upstream of this tier and one of its replicas among all pairs.
    pub(super) const fn pair(&self, upstream: u32, replica: ReplicaId) -> usize {
        let nth = (upstream - self.first_upstream) as usize;
        self.first_pair + nth * self.replicas as usize + replica.0 as usize
    }

    /// The index of the server of a replica.
    fn server(&self, shard: u32, replica: u32) -> u32 {
        let nth = u64::from(shard) * u64::from(self.replicas) + u64::from(replica);
        let nth = u32::try_from(nth % u64::from(self.servers)).expect("less than a u32");
        self.first_server + nth
    }

    pub(super) fn leaves(self, tier: u32) -> impl Iterator<Item = LeafPlace> {
        let nth = 0..self.servers;
        nth.map(move |nth| LeafPlace::new((tier, nth), self.leaf, self.cores))
    }

    pub(super) fn faults(&self, tier: u32, rng: &Rng) -> Faults {
        let rng = match tier {
            0 => rng.clone(),
            _ => rng.split("tiers").split_index(u64::from(tier)),
        };
        Faults::new(self.faults, self.servers, self.cores, &rng)
    }

    /// The index among all servers of a server of this tier.
    pub(super) const fn server_index(&self, nth: u32) -> u32 {
        self.first_server + nth
    }
}

impl World<'_> {
    /// The server of a replica of an upstream.
    pub(super) fn server_of(&self, upstream: u32, replica: ReplicaId) -> u32 {
        let tier = &self.tiers[self.upstreams[upstream as usize].tier as usize];
        tier.server(tier.shard_and_client(upstream).0, replica.0)
    }

    /// An attempt was executed: its response goes back, or its server first calls the next tier.
    pub(super) fn executed(&mut self, server: u32, key: Key, ending: Ending) {
        let attempt = self.attempts.get_mut(key).expect("an attempt that ends exists");
        let (tier, nth) = self.leaves[server as usize].tier_and_number;
        let is_good = ending == Ending::Responded(Outcome::Good);
        if !is_good
            || attempt.owner == Owner::NoisyNeighbor
            || tier as usize + 1 >= self.tiers.len()
        {
            self.end(key, ending);
            return;
        }
        let class = attempt.class;
        let kind = RequestKind {
            tier: tier + 1,
            class,
            repeatable: self.model.repeatable,
            of_type: None,
            recorded: None,
        };
        let first_shard = self.draw_first_shard(tier + 1);
        let calls = self.tiers[tier as usize + 1].fan_out;
        let gather = Gather::new(gather_of(None, calls));
        let request = RequestPlace::of_server(key, kind, (nth, first_shard), gather, self.now);
        let request = self.requests.insert(request);
        let attempt = self.attempts.get_mut(key).expect("it has been executed");
        attempt.stage = Stage::Calls(request);
        self.check_in_flight();
        self.request_event(request, GatherEvent::Arrived);
    }
}

//! The endpoints that follow from a source's responses: when they leave, and when the source is asked again.
//!
//! | response | effect on the endpoints | next lookup |
//! |---|---|---|
//! | has endpoints | they replace the previous ones | when the response expires (`refresh_min` to `refresh_max`) |
//! | a part of it failed | those of this part stay, up to `stale_max` after its last response | as a failure, or when another part expires |
//! | failed | all stay, up to `stale_max` after the last response | after 1 s or `refresh_min`, doubled with each failure in a row, up to 30 s, or 5 s without endpoints |
//! | has none | the last ones stay until there are none for `empty_max` | when the response expires, at most after 5 s |
//!
//! A failure says nothing about the endpoints, so it removes none for a day. An empty response says that there are
//! none. But name servers that restart, or whose zone is broken, respond so too, and the last endpoints are worth more
//! than no endpoint, so these responses have to last.
//!
//! A source that reports its changes ([`super::feed`]) is asked again only after a failure. What it said last is valid
//! until it fails, and [`EndpointList::confirm`] renews it until then.
//! **Limits**: time is an argument. An endpoint leaves with a response or a failure, never between two lookups.

use crate::config::Placement;
use curtail_units::{Duration, Instant, Rng};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The wait after the first failure in a row.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest wait after a failure: a name server that recovers is found by then.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// The longest wait after a response without endpoints: a service that starts is found by then.
pub(super) const EMPTY_RETRY_MAX: Duration = Duration::from_secs(5);
/// Responses without endpoints that are further apart are not in a row: failures between them say nothing.
const EMPTY_GAP_MAX: Duration = Duration::from_secs(30);

/// A response of a source, by parts that can fail apart: the A records of a name, its AAAA records, those of the next
/// name. `Err`: the source as a whole failed, for this reason.
pub(crate) type SourceResponse = Result<Vec<(PartName, Result<Part, String>)>, String>;

/// The name of a part, by which the next response replaces it.
pub(crate) type PartName = String;

/// An endpoint of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) placement: Placement,
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self { address, placement: Placement::default() }
    }
}

/// A part of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) validity: Validity,
}

/// How long a part is valid from its response on, or from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Validity {
    /// No longer: the source has failed since then.
    Expired,
    /// For this time.
    For(Duration),
    /// Until the source fails: it reports changes.
    UntilFailure,
}

/// The limits of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListLimits {
    pub(crate) refresh_min: Duration,
    pub(crate) refresh_max: Duration,
    pub(crate) stale_max: Duration,
    pub(crate) empty_max: Duration,
}

#[derive(Debug)]
struct KeptPart {
    part: Part,
    received: Instant,
}

/// The result of a lookup, as a label of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupResult {
    /// The response has endpoints.
    Found,
    /// The response has endpoints, and a part of it failed.
    Partial,
    /// The response has no endpoints.
    Empty,
    /// There is no response, or the parts with endpoints failed.
    Failed,
}

curtail_units::labels!(LookupResult {
    Found => "found",
    Partial => "partial",
    Empty => "empty",
    Failed => "failed",
});

/// The endpoints of one source.
#[derive(Debug)]
pub(crate) struct EndpointList {
    parts: BTreeMap<PartName, KeptPart>,
    /// Sorted, each address once. [`None`] until a response has decided: the previous replicas stay so long.
    endpoints: Option<Vec<Endpoint>>,
    /// The last response with endpoints; at first, the start.
    last_found: Instant,
    /// The first and the last of the responses in a row without endpoints.
    empty: Option<(Instant, Instant)>,
    failures_in_row: u32,
    due: Instant,
}

impl EndpointList {
    /// A source that is to be asked at once.
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            parts: BTreeMap::new(),
            endpoints: None,
            last_found: now,
            empty: None,
            failures_in_row: 0,
            due: now,
        }
    }

    /// When the source is to be asked next.
    pub(crate) const fn due(&self) -> Instant {
        self.due
    }

    /// Asks the source at once, whatever it last said.
    pub(crate) fn make_due(&mut self, now: Instant) {
        self.due = self.due.min(now);
    }

    /// Asks the source later, after a defect that may repeat.
    pub(crate) fn postpone(&mut self, now: Instant) {
        self.due = now + RETRY_MAX;
    }

    pub(crate) fn endpoints(&self) -> Option<&[Endpoint]> {
        self.endpoints.as_deref()
    }

    /// The endpoints, each with the rest of the validity of its response.
    pub(crate) fn with_validity(&self, now: Instant) -> Vec<(SocketAddr, Validity)> {
        let mut validity = BTreeMap::new();
        for kept in self.parts.values() {
            for endpoint in &kept.part.endpoints {
                let longest = validity.entry(endpoint.address).or_insert(Validity::Expired);
                *longest = (*longest).max(kept.validity(now));
            }
        }
        let of = |at: &SocketAddr| validity.get(at).copied().unwrap_or(Validity::Expired);
        self.endpoints.iter().flatten().map(|at| (at.address, of(&at.address))).collect()
    }

    /// Notes that the source still says what it last said.
    pub(crate) fn confirm(&mut self, now: Instant) {
        let parts = self.parts.values_mut();
        for kept in parts.filter(|kept| kept.part.validity == Validity::UntilFailure) {
            kept.received = now;
            if !kept.part.endpoints.is_empty() {
                self.last_found = now;
            }
        }
        if let Some((_, last)) = &mut self.empty {
            *last = now;
        }
    }

    /// The failures in a row, which lengthen the wait for the next lookup or session.
    pub(crate) const fn failures_in_row(&self) -> u32 {
        self.failures_in_row
    }

    /// Sets the failures in a row to those before a response that does not end its session.
    pub(crate) const fn set_failures_in_row(&mut self, failures: u32) {
        self.failures_in_row = failures;
    }

    /// Notes that the source has worked for long enough.
    pub(crate) const fn forget_failures(&mut self) {
        self.failures_in_row = 0;
    }

    /// When the last endpoints leave because the source has none, if it then still has none.
    pub(crate) fn empty_end(&self, limits: &ListLimits) -> Option<Instant> {
        let (since, _) = self.empty?;
        let has_left = self.endpoints.as_ref().is_some_and(Vec::is_empty);
        (!has_left).then(|| since + limits.empty_max)
    }

    /// Takes a response of the source.
    pub(crate) fn take_response(
        &mut self,
        now: Instant,
        response: SourceResponse,
        limits: &ListLimits,
        rng: &mut Rng,
    ) -> LookupResult {
        let (has_found, has_failed) = self.merge(now, response, limits);
        self.failures_in_row = if has_failed { self.failures_in_row.saturating_add(1) } else { 0 };
        let mut endpoints: Vec<Endpoint> =
            self.parts.values().flat_map(|kept| &kept.part.endpoints).cloned().collect();
        // If an address is there twice, the larger weight counts.
        endpoints.sort_unstable_by(|one, other| {
            one.address.cmp(&other.address).then_with(|| other.placement.cmp(&one.placement))
        });
        endpoints.dedup_by_key(|endpoint| endpoint.address);
        let result = match (has_found, has_failed) {
            (true, false) => LookupResult::Found,
            (true, true) => LookupResult::Partial,
            (false, false) => LookupResult::Empty,
            (false, true) => LookupResult::Failed,
        };
        if has_found {
            self.last_found = now;
        }
        if result != LookupResult::Failed {
            let in_row = self.empty.filter(|(_, last)| now < *last + EMPTY_GAP_MAX);
            let first = in_row.map_or(now, |(first, _)| first);
            self.empty = (result == LookupResult::Empty).then_some((first, now));
        }
        let is_over = match (has_failed, self.empty) {
            (false, Some((since, _))) => now >= since + limits.empty_max,
            _ => now >= self.last_found + limits.stale_max,
        };
        if !endpoints.is_empty() || is_over {
            self.endpoints = Some(endpoints);
        }
        self.due = self.next_lookup(now, has_failed, limits, rng);
        result
    }

    /// Replaces the parts that have responses; returns whether one has endpoints, and whether one failed.
    fn merge(
        &mut self,
        now: Instant,
        response: SourceResponse,
        limits: &ListLimits,
    ) -> (bool, bool) {
        let is_kept = |kept: &KeptPart| now < kept.received + limits.stale_max;
        let mut before = std::mem::take(&mut self.parts);
        let Ok(response) = response else {
            before.retain(|_, kept| is_kept(kept));
            before.values_mut().for_each(KeptPart::end_confirmation);
            self.parts = before;
            return (false, true);
        };
        let (mut has_found, mut has_failed) = (false, false);
        for (name, part) in response {
            let kept = match part {
                Ok(part) => {
                    has_found |= !part.endpoints.is_empty();
                    Some(KeptPart { part, received: now })
                }
                Err(_) => {
                    has_failed = true;
                    let mut kept = before.remove(&name).filter(is_kept);
                    kept.iter_mut().for_each(KeptPart::end_confirmation);
                    kept
                }
            };
            self.parts.extend(kept.map(|kept| (name, kept)));
        }
        (has_found, has_failed)
    }

    fn next_lookup(
        &self,
        now: Instant,
        has_failed: bool,
        limits: &ListLimits,
        rng: &mut Rng,
    ) -> Instant {
        let valid = self.parts.values().filter(|kept| kept.received == now);
        let refresh = |kept: &KeptPart| match kept.part.validity {
            Validity::For(time) => Some(time.min(limits.refresh_max).max(limits.refresh_min)),
            Validity::Expired | Validity::UntilFailure => None,
        };
        let empty = self.empty.map(|_| EMPTY_RETRY_MAX);
        let retry = has_failed.then(|| {
            let doublings = self.failures_in_row.saturating_sub(1).min(5);
            let has_none = self.endpoints.as_ref().is_none_or(Vec::is_empty);
            let longest = if has_none { EMPTY_RETRY_MAX } else { RETRY_MAX };
            let wait = RETRY_MIN.mul_f64(f64::from(1_u32 << doublings)).min(longest);
            // Proxies that lost their name server together do not all ask it together.
            wait.mul_f64(1.0 - rng.unit() / 4.0).max(limits.refresh_min)
        });
        now + valid
            .filter_map(refresh)
            .chain(retry)
            .chain(empty)
            .min()
            .unwrap_or(limits.refresh_min)
    }
}

impl KeptPart {
    fn validity(&self, now: Instant) -> Validity {
        let Validity::For(time) = self.part.validity else { return self.part.validity };
        let expiry = self.received + time;
        if expiry > now { Validity::For(expiry.since(now)) } else { Validity::Expired }
    }

    /// The source has failed: it no longer says that its endpoints are the same.
    fn end_confirmation(&mut self) {
        if self.part.validity == Validity::UntilFailure {
            self.part.validity = Validity::Expired;
        }
    }
}

#[cfg(test)]
mod tests;

//! The limits of a route (`routes[].limits`): the driver of the [`RequestLimiter`]s of the route, its clients and tenants.
//!
//! A request starts if the limiters of its client, its tenant and the route all let it. They are asked under their locks,
//! so a request that one of them rejects counts at none. It counts as in flight until its [`LimitPermit`] is dropped with
//! its trail: at the end of the response, of the stream, or of the upgraded connection.
//! **Limits**: a [`LimiterTable`] has a fixed number of places for clients or tenants. A request whose client finds no
//! place is not limited by client (the route still limits it), and is counted.
//! **Cost**: a lock and a check for each configured kind of limit, and another lock at the end if requests in flight are
//! limited. A route without limits costs nothing.

mod table;

use crate::client::Client;
use crate::config::{RouteLimitsConfig, TenantsConfig};
use crate::metrics::{LimitReason, LimitTable, RouteLimitMetrics};
use curtail_http::clock::Clock;
use curtail_http::head::{RepeatedField, RequestHead};
use curtail_policy::{LimitRejection, RequestLimit, RequestLimiter};
use curtail_units::{Duration, Instant};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use table::{LimiterSet, LimiterTable};

/// The limits of one route.
#[derive(Debug)]
pub(crate) struct RouteLimits {
    /// The route in metrics.
    pub(crate) name: String,
    pub(crate) metrics: Arc<RouteLimitMetrics>,
    limit: RequestLimit,
    limiter: Arc<Mutex<RequestLimiter>>,
    clients: Option<PerKeyLimit>,
    tenants: Option<PerKeyLimit>,
}

/// The same limits for each client, or each tenant.
#[derive(Debug)]
struct PerKeyLimit {
    limit: RequestLimit,
    /// The header that names the client or tenant.
    header: Option<String>,
    table: Arc<LimiterTable>,
}

/// A request that counts as in flight until this is dropped.
#[derive(Debug)]
pub(crate) struct LimitPermit {
    route: Option<Arc<Mutex<RequestLimiter>>>,
    /// The hashes of its client and of its tenant, in their tables.
    each: [Option<(Arc<LimiterTable>, u64)>; 2],
}

/// A request that a limit rejects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitedRequest {
    pub(crate) reason: LimitReason,
    /// Absent: the request cannot succeed later.
    pub(crate) retry_after: Option<Duration>,
}

impl RouteLimits {
    /// The limits of a route. They count on where those of `before` are, as far as they count the same.
    pub(crate) fn new(
        name: String,
        config: &RouteLimitsConfig,
        tenants: Option<&TenantsConfig>,
        before: Option<&Self>,
    ) -> Self {
        let per_client = config.per_client.as_ref();
        let per_tenant = config.per_tenant.as_ref().zip(tenants);
        Self {
            clients: per_client.map(|each| {
                let kept = before.and_then(|before| before.clients.as_ref());
                PerKeyLimit::new((each.limit, each.max), each.header.clone(), kept)
            }),
            tenants: per_tenant.map(|(each, tenants)| {
                let kept = before.and_then(|before| before.tenants.as_ref());
                PerKeyLimit::new((each.limit, each.max), Some(tenants.header.clone()), kept)
            }),
            limit: config.route,
            limiter: before.map(|before| Arc::clone(&before.limiter)).unwrap_or_default(),
            metrics: before.map(|before| Arc::clone(&before.metrics)).unwrap_or_default(),
            name,
        }
    }

    /// The number of requests in flight and its maximum, if the route has one.
    pub(crate) fn in_flight(&self) -> Option<(u32, u32)> {
        self.limit.in_flight_max.map(|max| (lock(&self.limiter).in_flight(), max))
    }

    /// Starts a request. `head` has `x-forwarded-for` as the replicas get it. [`None`]: nothing counts it as in flight.
    ///
    /// # Errors
    /// When a limit rejects the request, or the request has the header of its client or tenant several times: it could
    /// otherwise count under one value while the server uses another one.
    pub(crate) fn admit(
        &self,
        clock: &Clock,
        head: &RequestHead,
        client: &Client,
    ) -> Result<Option<Arc<LimitPermit>>, LimitedRequest> {
        let by_address = |each: &PerKeyLimit| each.table.hash(client.origin(head).map(network));
        let unnamed = |each: &PerKeyLimit| each.table.hash(&b""[..]);
        let each = [
            self.hash_key(&self.clients, head, by_address, LimitReason::AmbiguousClient)?,
            self.hash_key(&self.tenants, head, unnamed, LimitReason::AmbiguousTenant)?,
        ];
        // Always in this order. All requests of the route take the last lock.
        let [mut clients, mut tenants] =
            each.map(|each| each.map(|(each, hash)| each.table.lock(hash)));
        let mut limiter = (!self.limit.is_unlimited()).then(|| lock(&self.limiter));
        let now = clock.now();
        let mut limiters = [
            find_limiter(clients.as_deref_mut(), each[0], now),
            find_limiter(tenants.as_deref_mut(), each[1], now),
            limiter.as_deref_mut().map(|limiter| (limiter, &self.limit)),
        ];
        for (nth, table) in [LimitTable::Client, LimitTable::Tenant].iter().enumerate() {
            if each[nth].is_some() && limiters[nth].is_none() {
                self.metrics.table_full.add(table, 1);
            }
        }
        let rejected = limiters.each_mut().map(|asked| {
            asked.as_mut().and_then(|(limiter, limit)| limiter.check(limit, now).err())
        });
        if let Some(rejected) = LimitedRequest::of(rejected) {
            return Err(self.reject(rejected));
        }
        let [client, tenant, route] = limiters
            .map(|started| started.is_some_and(|(limiter, limit)| limiter.start(limit, now)));
        let hash = |nth: usize, is_counted: bool| {
            each[nth].filter(|_| is_counted).map(|(each, hash)| (Arc::clone(&each.table), hash))
        };
        let permit = LimitPermit {
            route: route.then(|| Arc::clone(&self.limiter)),
            each: [hash(0, client), hash(1, tenant)],
        };
        Ok((client || tenant || route).then(|| Arc::new(permit)))
    }

    /// The hash of the client or tenant of a request, with its limit; [`None`] if clients or tenants have none.
    fn hash_key<'l>(
        &self,
        each: &'l Option<PerKeyLimit>,
        head: &RequestHead,
        without_header: impl Fn(&PerKeyLimit) -> u64,
        ambiguous: LimitReason,
    ) -> Result<Option<(&'l PerKeyLimit, u64)>, LimitedRequest> {
        let Some(each) = each else { return Ok(None) };
        let value = each.value(head).map_err(|RepeatedField| {
            self.reject(LimitedRequest { reason: ambiguous, retry_after: None })
        })?;
        let hash = value.map(|value| each.table.hash(value));
        Ok(Some((each, hash.unwrap_or_else(|| without_header(each)))))
    }

    fn reject(&self, rejected: LimitedRequest) -> LimitedRequest {
        self.metrics.rejected.add(&rejected.reason, 1);
        rejected
    }
}

impl PerKeyLimit {
    fn new(
        (limit, max): (RequestLimit, usize),
        header: Option<String>,
        before: Option<&Self>,
    ) -> Self {
        // Another header names other clients.
        let is_same = |before: &&Self| before.header == header && before.table.max() == max;
        let kept = before.filter(is_same).map(|before| Arc::clone(&before.table));
        Self { limit, header, table: kept.unwrap_or_else(|| Arc::new(LimiterTable::new(max))) }
    }

    /// The value of the header in a request.
    fn value<'h>(&self, head: &'h RequestHead) -> Result<Option<&'h [u8]>, RepeatedField> {
        self.header.as_ref().map_or(Ok(None), |header| head.fields.sole(header.as_bytes()))
    }
}

/// The limiter of a client or tenant, with its limits; [`None`] without one, or if its table is full.
fn find_limiter<'l>(
    set: Option<&'l mut LimiterSet>,
    each: Option<(&'l PerKeyLimit, u64)>,
    now: Instant,
) -> Option<(&'l mut RequestLimiter, &'l RequestLimit)> {
    let (each, hash) = each?;
    Some((set?.limiter(hash, now)?, &each.limit))
}

impl LimitedRequest {
    /// The rejection by the limiters of client, tenant and route. The first one is the reason, and the client waits for
    /// all of them.
    fn of(rejections: [Option<LimitRejection>; 3]) -> Option<Self> {
        const REASONS: [(LimitReason, LimitReason); 3] = [
            (LimitReason::ClientInFlight, LimitReason::ClientRate),
            (LimitReason::TenantInFlight, LimitReason::TenantRate),
            (LimitReason::RouteInFlight, LimitReason::RouteRate),
        ];
        let mut named = rejections.iter().zip(REASONS);
        let reason = named.find_map(|(rejection, (in_flight, rate))| match (*rejection)? {
            LimitRejection::InFlight { .. } => Some(in_flight),
            LimitRejection::Rate { .. } => Some(rate),
        })?;
        let waits = rejections.iter().flatten().map(|rejection| rejection.retry_after());
        Some(Self { reason, retry_after: waits.max() })
    }

    /// The value of `retry-after` (RFC 9110, section 10.2.3): whole seconds, rounded up, and at least one.
    pub(crate) fn retry_after_seconds(&self) -> Option<u64> {
        let seconds = self.retry_after?.as_ns().div_ceil(Duration::from_secs(1).as_ns());
        Some(seconds.max(1))
    }
}

impl Drop for LimitPermit {
    fn drop(&mut self) {
        for (table, hash) in self.each.iter().flatten() {
            table.lock(*hash).end(*hash);
        }
        if let Some(limiter) = &self.route {
            lock(limiter).end();
        }
    }
}

/// A limiter cannot panic; should it ever, counting goes on.
fn lock<T>(limiter: &Mutex<T>) -> MutexGuard<'_, T> {
    limiter.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The network of one client: its address, or the /64 of an IPv6 address, in which a host chooses its addresses freely.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests;

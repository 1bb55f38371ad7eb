//! The key `fan_out` of a route: one request to many upstreams, the shards, and one response from all of theirs.

use super::{Config, NamedUpstream, RouteConfig};
use curtail_config::{Section, expectation};
use curtail_policy::{GatherConfig, RestMode};
use curtail_units::{Bytes, Duration};

const RESPONSE_MAX: Bytes = Bytes::from_kib(16 << 10);

/// How the requests of a route fan out.
#[derive(Clone, Debug, PartialEq)]
pub struct FanOutConfig {
    /// How the bodies of the shards become one.
    pub merge: Merge,
    /// The shards that must respond; absent: all.
    pub needed: Option<u32>,
    /// The first shards, which must respond before the others get the request.
    pub canaries: u32,
    /// The time after which the client gets what has come.
    pub deadline: Option<Duration>,
    /// Maximum size of all bodies together.
    pub response_max: Bytes,
}

/// How the bodies of the shards become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// One after the other.
    Concatenate,
    /// The elements of JSON arrays in one array.
    JsonArray,
}

impl FanOutConfig {
    /// The policy's parameters for a request to `shards` shards.
    pub(crate) fn gather(&self, shards: u32) -> GatherConfig {
        GatherConfig {
            calls: shards,
            needed: self.needed.unwrap_or(shards),
            canaries: self.canaries,
            deadline: self.deadline,
            rest: RestMode::Cancel,
        }
    }
}

impl RouteConfig {
    /// The places of the upstreams that the route selects: one name, or all names with the prefix before a `*`.
    pub fn shards<'u>(
        &self,
        upstreams: &'u [NamedUpstream],
    ) -> impl Iterator<Item = usize> + use<'_, 'u> {
        let is_selected = |upstream: &NamedUpstream| match self.upstream.strip_suffix('*') {
            Some(prefix) => upstream.name.starts_with(prefix),
            None => upstream.name == self.upstream,
        };
        upstreams.iter().enumerate().filter(move |(_, u)| is_selected(u)).map(|(place, _)| place)
    }
}

pub(super) fn read(s: &mut Section<'_>) -> FanOutConfig {
    FanOutConfig {
        merge: s
            .choice(
                "merge",
                "Merge of the bodies. `concatenate`: one body after the other. `json_array`: the elements of the shards' JSON arrays, in one array.",
                &[("concatenate", Merge::Concatenate), ("json_array", Merge::JsonArray)],
            )
            .default(Merge::Concatenate),
        needed: s
            .field("needed", "Number of shards that must respond; absent: all shards.")
            .at_least(1)
            .optional(),
        canaries: s
            .field(
                "canaries",
                "Number of shards that get the request first. All other shards get the request after these shards have responded.",
            )
            .default(0),
        deadline: s
            .field(
                "deadline",
                "Time from the request after which the client gets only the responses that have arrived; absent: no deadline.",
            )
            .at_least(Duration::from_ms(1))
            .optional(),
        response_max: s
            .field("response_max", "Maximum size of a merged response: the bodies of all shards together.")
            .range(Bytes::from_kib(1)..=Bytes::from_kib(1 << 20))
            .default(RESPONSE_MAX),
    }
}

/// Checks the shards of each route, which was read from `s`.
pub(super) fn check(config: &Config, s: &mut Section<'_>) {
    for (index, route) in config.routes.iter().enumerate() {
        let Some(fan_out) = &route.fan_out else { continue };
        let count = u32::try_from(route.shards(&config.upstreams).count()).unwrap_or(u32::MAX);
        if count == 0 {
            let names: Vec<&str> = config.upstreams.iter().map(|u| &*u.name).collect();
            let expected = expectation(&route.upstream, &names, "no upstreams are defined");
            let text = format!("{:?} selects no upstream: {expected}", route.upstream);
            s.error(&format!("routes[{index}].upstream"), text);
            continue;
        }
        let needed = fan_out.needed.unwrap_or(1);
        for (key, value) in [("needed", needed), ("canaries", fan_out.canaries)] {
            if value > count {
                let text = format!("{value} of {count} shards: expected at most {count}");
                s.error(&format!("routes[{index}].fan_out.{key}"), text);
            }
        }
    }
}

#[cfg(test)]
mod tests;

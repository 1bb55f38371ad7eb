//! The key `fan_out` of a route: one request to many upstreams, the shards, or to every replica of one upstream, and
//! one response that merges all responses.

use super::{Config, NamedUpstream, RouteConfig};
use curtail_config::Section;
use curtail_policy::GatherRule;
use curtail_units::Bytes;

const RESPONSE_MAX: Bytes = Bytes::from_kib(16 << 10);

/// The fan-out of the requests of a route.
#[derive(Clone, Debug, PartialEq)]
pub struct FanOutConfig {
    /// The recipients of the calls of a request.
    pub to: FanOutTo,
    /// The merge of the bodies into one.
    pub merge: Merge,
    /// What a request waits for.
    pub rule: GatherRule,
    /// Maximum size of all bodies together.
    pub response_max: Bytes,
}

/// The recipients of the calls of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanOutTo {
    /// One call to each selected upstream, the shards.
    Upstreams,
    /// One call to each replica of the selected upstream.
    Replicas,
}

/// The merge of the shards' bodies into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// One body after the other.
    Concatenate,
    /// The elements of JSON arrays in one array.
    JsonArray,
}

impl FanOutTo {
    /// The noun for the recipients, in messages and headers.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Upstreams => "shards",
            Self::Replicas => "replicas",
        }
    }
}

impl RouteConfig {
    /// The indexes of the upstreams that the route selects: one name, or all names with the prefix before a `*`.
    pub fn shards<'u>(
        &self,
        upstreams: &'u [NamedUpstream],
    ) -> impl Iterator<Item = usize> + use<'_, 'u> {
        let is_selected = |upstream: &NamedUpstream| {
            self.upstream.as_deref().is_some_and(|selected| match selected.strip_suffix('*') {
                Some(prefix) => upstream.name.starts_with(prefix),
                None => upstream.name == selected,
            })
        };
        upstreams.iter().enumerate().filter(move |(_, u)| is_selected(u)).map(|(place, _)| place)
    }

    /// The number of calls of a request: one for each selected upstream, or for each of their replicas. [`None`]: it
    /// depends on the replicas that are discovered.
    #[must_use]
    pub fn calls(&self, upstreams: &[NamedUpstream]) -> Option<usize> {
        let to = self.fan_out.as_ref().map_or(FanOutTo::Upstreams, |fan_out| fan_out.to);
        let calls = |place: usize| match (to, &upstreams[place].discovery) {
            (FanOutTo::Upstreams, _) => Some(1),
            (FanOutTo::Replicas, None) => Some(upstreams[place].replicas.len()),
            (FanOutTo::Replicas, Some(_)) => None,
        };
        self.shards(upstreams).map(calls).sum()
    }
}

pub(super) fn read(s: &mut Section<'_>) -> FanOutConfig {
    FanOutConfig {
        to: s
            .choice(
                "to",
                "Recipients of each request. `upstreams`: one replica of each upstream that the key `upstream` selects (the shards). `replicas`: every replica of the one upstream that the key `upstream` names.",
                &[("upstreams", FanOutTo::Upstreams), ("replicas", FanOutTo::Replicas)],
            )
            .default(FanOutTo::Upstreams),
        merge: s
            .choice(
                "merge",
                "Merge of the bodies. `concatenate`: one body after the other. `json_array`: the elements of the JSON arrays, in one array.",
                &[("concatenate", Merge::Concatenate), ("json_array", Merge::JsonArray)],
            )
            .default(Merge::Concatenate),
        rule: curtail_config::policy::fan_out(s),
        response_max: s
            .field("response_max", "Maximum size of a merged response: all bodies together.")
            .range(Bytes::from_kib(1)..=Bytes::from_kib(1 << 20))
            .default(RESPONSE_MAX),
    }
}

/// Checks the shards of each route, which was read from `s`.
pub(super) fn check(config: &Config, s: &mut Section<'_>) {
    for (index, route) in config.routes.iter().enumerate() {
        let Some(fan_out) = &route.fan_out else { continue };
        let selected = route.shards(&config.upstreams).count();
        if fan_out.to == FanOutTo::Replicas && selected > 1 {
            let name = route.upstream.as_deref().unwrap_or_default();
            let text = format!(
                "{name:?} selects {selected} upstreams: expected one with fan_out.to: replicas"
            );
            s.conflict(
                &format!("routes[{index}].upstream"),
                &[&format!("routes[{index}].fan_out")],
                text,
            );
        }
        let calls = route.calls(&config.upstreams).and_then(|calls| u32::try_from(calls).ok());
        let count = calls.unwrap_or(u32::MAX);
        let needed = fan_out.rule.needed.unwrap_or(1);
        for (key, value) in [("needed", needed), ("canaries", fan_out.rule.canaries)] {
            if selected > 0 && value > count {
                let recipients = fan_out.to.noun();
                let text = format!("{value} of {count} {recipients}: expected at most {count}");
                let others = [&*format!("routes[{index}]"), "upstreams"];
                s.conflict(&format!("routes[{index}].fan_out.{key}"), &others, text);
            }
        }
    }
}

#[cfg(test)]
mod tests;

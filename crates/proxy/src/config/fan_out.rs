//! The key `fan_out` of a route: one request to many upstreams, the shards, or to every replica of one upstream, and one
//! response from all of theirs.

use super::{Config, NamedUpstream, RouteConfig};
use curtail_config::Section;
use curtail_policy::{GatherConfig, RestMode};
use curtail_units::{Bytes, Duration};

const RESPONSE_MAX: Bytes = Bytes::from_kib(16 << 10);

/// How the requests of a route fan out.
#[derive(Clone, Debug, PartialEq)]
pub struct FanOutConfig {
    /// What the calls of a request go to.
    pub to: FanOutTo,
    /// How the bodies become one.
    pub merge: Merge,
    /// The shards or replicas that must respond; absent: all.
    pub needed: Option<u32>,
    /// The first shards or replicas, which must respond before the others get the request.
    pub canaries: u32,
    /// The time after which the client gets what has come.
    pub deadline: Option<Duration>,
    /// The fate of the open calls when the request is done.
    pub rest: RestMode,
    /// Maximum size of all bodies together.
    pub response_max: Bytes,
}

/// What the calls of a request go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanOutTo {
    /// One to each selected upstream, the shards.
    Upstreams,
    /// One to each replica of the selected upstream.
    Replicas,
}

/// How the bodies of the shards become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// One after the other.
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

impl FanOutConfig {
    /// The policy's parameters for a request with this number of calls.
    pub(crate) fn gather(&self, calls: u32) -> GatherConfig {
        let needed = self.needed.unwrap_or(calls);
        let Self { canaries, deadline, rest, .. } = *self;
        GatherConfig { calls, needed, canaries, deadline, rest }
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

    /// The number of calls of a request: one for each selected upstream, or for each of their replicas.
    #[must_use]
    pub fn calls(&self, upstreams: &[NamedUpstream]) -> usize {
        let to = self.fan_out.as_ref().map_or(FanOutTo::Upstreams, |fan_out| fan_out.to);
        let calls = |place: usize| match to {
            FanOutTo::Upstreams => 1,
            FanOutTo::Replicas => upstreams[place].replicas.len(),
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
        needed: s
            .field("needed", "Number of shards or replicas that must respond; absent: all of them.")
            .at_least(1)
            .optional(),
        canaries: s
            .field(
                "canaries",
                "Number of shards or replicas that get the request first. All others get the request after these have responded.",
            )
            .default(0),
        deadline: s
            .field(
                "deadline",
                "Time from the request after which the client gets only the responses that have arrived; absent: no deadline.",
            )
            .at_least(Duration::from_ms(1))
            .optional(),
        rest: s
            .choice(
                "rest",
                "What happens to open calls when the client gets its response. `cancel`: the proxy cancels them. `finish`: they run to their end, even if the client disconnects then.",
                &[("cancel", RestMode::Cancel), ("finish", RestMode::Finish)],
            )
            .default(RestMode::Cancel),
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
            let text = format!("{:?} selects {selected} upstreams", route.upstream);
            let text = format!("{text}: expected one with fan_out.to: replicas");
            s.error(&format!("routes[{index}].upstream"), text);
        }
        let count = u32::try_from(route.calls(&config.upstreams)).unwrap_or(u32::MAX);
        let needed = fan_out.needed.unwrap_or(1);
        for (key, value) in [("needed", needed), ("canaries", fan_out.canaries)] {
            if selected > 0 && value > count {
                let recipients = fan_out.to.noun();
                let text = format!("{value} of {count} {recipients}: expected at most {count}");
                s.error(&format!("routes[{index}].fan_out.{key}"), text);
            }
        }
    }
}

#[cfg(test)]
mod tests;

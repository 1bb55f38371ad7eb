//! The shards or replicas that are missing from a response: they failed, or had no response at the deadline.
//!
//! A call that was cancelled for another reason is not missing: the request did not need it any more.
//! **Limits**: [`NAMES_MAX`] of them are named.

use super::FanOutRequest;

/// Maximum number of missing shards or replicas that a response and a line of the access log name.
const NAMES_MAX: usize = 20;

/// The reason of a shard without a response at the deadline; the error of a request for which none has succeeded by then.
pub(super) const DEADLINE: &str = "deadline";

#[derive(Debug, Default)]
pub(super) struct MissingShards {
    pub(super) count: u64,
    /// The first ones: their names and the reasons.
    named: Vec<(String, &'static str)>,
}

impl MissingShards {
    /// The names of the first ones, for a header; [`None`] if nothing is missing.
    pub(super) fn names(&self) -> Option<String> {
        let names: Vec<&str> = self.named.iter().map(|(name, _)| &**name).collect();
        (self.count > 0).then(|| names.join(", "))
    }

    /// The same with the reasons, for the access log.
    pub(super) fn detail(&self) -> Option<Box<str>> {
        let named = self.named.iter();
        let named: Vec<_> = named.map(|(name, reason)| format!("{name}: {reason}")).collect();
        (self.count > 0).then(|| named.join(", ").into_boxed_str())
    }
}

impl FanOutRequest {
    /// What is missing now; `is_deadline`: the request ended because the deadline has passed.
    pub(super) fn missing(&self, is_deadline: bool) -> MissingShards {
        let mut missing = MissingShards::default();
        for (call, result) in self.results.iter().enumerate() {
            let reason = match result {
                Some(Err(error)) => error.name,
                None if is_deadline => DEADLINE,
                Some(Ok(_)) | None => continue,
            };
            missing.count += 1;
            if missing.named.len() < NAMES_MAX {
                missing.named.extend(self.call_name(call).map(|name| (name, reason)));
            }
        }
        missing
    }
}

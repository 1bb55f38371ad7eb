//! The causes that a finding can name, each with its remedy.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// What makes requests slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Larger payloads take longer.
    LargePayload,
    /// Requests that were sent again take longer.
    Retries,
    /// Requests that make more calls take longer.
    MoreCalls,
    /// Requests wait for the slowest of many parallel calls.
    FanOut,
    /// Requests at all replicas take longer at the same time.
    SlowTogether,
    /// Requests at one replica, host or zone take longer.
    SlowReplica,
    /// Requests that wait for a queue or arrive at a busy server take longer.
    Queueing,
    /// Requests at a host without free processor time take longer.
    BusyProcessor,
    /// Requests during a pause of their server (garbage collection, compaction) take longer.
    Pause,
    /// Requests to a server that was idle take longer.
    WakeUp,
    /// Requests that wait for a storage device take longer.
    Storage,
    /// Requests that open a connection take longer.
    ColdConnection,
    /// Name lookups take longer.
    NameLookup,
    /// The network between two services takes longer.
    Network,
    /// The requests of one tenant take longer.
    Tenant,
    /// The requests for one key take longer.
    HotKey,
    /// One version takes longer.
    Version,
    /// Requests on a rare path of the code take longer.
    CodePath,
    /// A service takes longer.
    SlowService,
    /// A call of a service without spans takes longer: a database, a third party.
    Dependency,
    /// Another attribute.
    Attribute,
}

/// Words of attribute keys, in the order of their tests, each with the cause that they name.
const CAUSES_OF_KEYS: [(&str, Cause); 38] = [
    ("user agent", Cause::Attribute),
    ("protocol version", Cause::Attribute),
    ("resend count", Cause::Retries),
    ("retry", Cause::Retries),
    ("retries", Cause::Retries),
    ("attempt", Cause::Retries),
    ("attempts", Cause::Retries),
    ("gc", Cause::Pause),
    ("pause", Cause::Pause),
    ("compaction", Cause::Pause),
    ("cpu", Cause::BusyProcessor),
    ("queue", Cause::Queueing),
    ("queued", Cause::Queueing),
    ("in flight", Cause::Queueing),
    ("body size", Cause::LargePayload),
    ("bytes", Cause::LargePayload),
    ("content length", Cause::LargePayload),
    ("message size", Cause::LargePayload),
    ("payload", Cause::LargePayload),
    ("dns", Cause::NameLookup),
    ("lookup", Cause::NameLookup),
    ("connection", Cause::ColdConnection),
    ("tenant", Cause::Tenant),
    ("customer", Cause::Tenant),
    ("user", Cause::Tenant),
    ("version", Cause::Version),
    ("pod", Cause::SlowReplica),
    ("host", Cause::SlowReplica),
    ("hostname", Cause::SlowReplica),
    ("instance", Cause::SlowReplica),
    ("replica", Cause::SlowReplica),
    ("server address", Cause::SlowReplica),
    ("node", Cause::SlowReplica),
    ("peer", Cause::SlowReplica),
    ("zone", Cause::SlowReplica),
    ("region", Cause::SlowReplica),
    ("port", Cause::SlowReplica),
    ("key", Cause::HotKey),
];

/// Words of operations that only wait, each with the cause that it names.
const CAUSES_OF_WAITS: [(&str, Cause); 13] = [
    ("disk", Cause::Storage),
    ("fsync", Cause::Storage),
    ("ssd", Cause::Storage),
    ("gc", Cause::Pause),
    ("garbage", Cause::Pause),
    ("pause", Cause::Pause),
    ("compaction", Cause::Pause),
    ("queue", Cause::Queueing),
    ("lock", Cause::Queueing),
    ("dns", Cause::NameLookup),
    ("lookup", Cause::NameLookup),
    ("tls", Cause::ColdConnection),
    ("connect", Cause::ColdConnection),
];

impl Cause {
    /// The cause that the name of an operation stands for, if the operation only waits.
    #[must_use]
    pub fn of_wait(operation: &str) -> Option<Self> {
        let words = words(operation);
        let of_word = |word: &String| CAUSES_OF_WAITS.iter().find(|(wait, _)| word == wait);
        words.iter().find_map(of_word).map(|(_, cause)| *cause)
    }

    /// The order of causes that explain the same traces: zero names a cause, more is less specific.
    #[must_use]
    pub const fn rank(self) -> u8 {
        let is_vague = matches!(
            self,
            Self::MoreCalls | Self::FanOut | Self::CodePath | Self::SlowService | Self::Dependency
        );
        if matches!(self, Self::Attribute) { 2 } else { is_vague as u8 }
    }

    /// The cause that an attribute stands for.
    #[must_use]
    pub fn of_key(key: &str) -> Self {
        let key = format!(" {} ", words(key).join(" "));
        let has = |words: &str| key.contains(&format!(" {words} "));
        CAUSES_OF_KEYS
            .iter()
            .find(|(words, _)| has(words))
            .map_or(Self::Attribute, |(_, cause)| *cause)
    }

    /// The cause that small numbers of an attribute stand for. What makes requests slow by its amount is none of them.
    #[must_use]
    pub fn of_small_number(key: &str) -> Self {
        let cause = Self::of_key(key);
        let is_amount = matches!(
            cause,
            Self::LargePayload | Self::Retries | Self::Queueing | Self::BusyProcessor | Self::Pause
        );
        if is_amount { Self::Attribute } else { cause }
    }

    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LargePayload => "large_payload",
            Self::Retries => "retries",
            Self::MoreCalls => "more_calls",
            Self::FanOut => "fan_out",
            Self::SlowTogether => "slow_together",
            Self::SlowReplica => "slow_replica",
            Self::Queueing => "queueing",
            Self::BusyProcessor => "busy_processor",
            Self::Pause => "pause",
            Self::WakeUp => "wake_up",
            Self::Storage => "storage",
            Self::ColdConnection => "cold_connection",
            Self::NameLookup => "name_lookup",
            Self::Network => "network",
            Self::Tenant => "tenant",
            Self::HotKey => "hot_key",
            Self::Version => "version",
            Self::CodePath => "code_path",
            Self::SlowService => "slow_service",
            Self::Dependency => "dependency",
            Self::Attribute => "attribute",
        }
    }

    /// What to do about it.
    #[must_use]
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::LargePayload => {
                "Hedging does not help: each replica needs as long. Set timeouts by size, or page and compress the payload."
            }
            Self::Retries => {
                "Raise the timeout above the p99 of one attempt, and back off between retries."
            }
            Self::MoreCalls => {
                "Batch the calls or send them in parallel; hedge the calls of a fan-out."
            }
            Self::FanOut => {
                "Hedge the calls, respond without the last ones (a good-enough response), or make fewer calls."
            }
            Self::SlowTogether => {
                "Hedging does not help: other replicas are slow at the same time. Look for what they share: load, a job, a dependency, a switch."
            }
            Self::SlowReplica => {
                "Hedge, balance by latency, or take the replica out and look at its host."
            }
            Self::Queueing => {
                "Add replicas or shed load; balance by in-flight requests; tie requests in queues."
            }
            Self::BusyProcessor => "Add processors or replicas; hedging adds load to a busy host.",
            Self::Pause => {
                "Hedge: another replica is not paused at the same time. Tune the collector or schedule the work."
            }
            Self::WakeUp => {
                "Keep the server warm: connections open, a request now and then, no deep sleep of idle processors."
            }
            Self::Storage => {
                "Hedge: another replica has another device. Look at the device, its queue and its garbage collection."
            }
            Self::ColdConnection => {
                "Keep connections open (idle timeout, warm-up), and reuse them."
            }
            Self::NameLookup => "Cache lookups or refresh them ahead of need.",
            Self::Network => {
                "Look at the network and the queue between the two services; hedge if only some calls are slow."
            }
            Self::Tenant => {
                "Limit the tenant's share of the queue, or give it replicas of its own."
            }
            Self::HotKey => "Replicate or cache the key.",
            Self::Version => "Compare the versions' changes, and roll back.",
            Self::CodePath => "Look at the code of this path.",
            Self::SlowService => "Look at this service: its own work takes longer.",
            Self::Dependency => {
                "Look at this dependency, which has no spans of its own; hedge if only some calls are slow."
            }
            Self::Attribute => "Look at what these requests have in common.",
        }
    }
}

/// The words of a name in lower case: `http.request.body_size` and `bodySize` both end with `body`, `size`.
fn words(name: &str) -> Vec<String> {
    let (mut words, mut was_lower) = (Vec::<String>::new(), false);
    let mut is_new = true;
    for c in name.chars() {
        is_new |= was_lower && c.is_ascii_uppercase();
        was_lower = c.is_ascii_lowercase();
        if !c.is_ascii_alphanumeric() {
            is_new = true;
            continue;
        }
        if core::mem::take(&mut is_new) {
            words.push(String::new());
        }
        words.last_mut().expect("one was begun").push(c.to_ascii_lowercase());
    }
    words
}

/// Whether numbers under this key name something, and are no amounts: `http.response.status_code`, `server.port`.
pub(crate) fn is_name(key: &str) -> bool {
    let last = key.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or(key);
    ["code", "Code", "port", "Port"]
        .into_iter()
        .any(|word| last == word || last.ends_with(word) && word.starts_with(char::is_uppercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_causes_by_whole_words() {
        for (key, cause) in [
            ("k8s.pod.name", Cause::SlowReplica),
            ("serverAddress", Cause::SlowReplica),
            ("http.request.body.size", Cause::LargePayload),
            ("messaging.message.body_size", Cause::LargePayload),
            ("user.id", Cause::Tenant),
            ("service.version", Cause::Version),
            ("jvm.gc.duration", Cause::Pause),
            // No substring of another word, and no words that mean something else together.
            ("user_agent.original", Cause::Attribute),
            ("network.protocol.version", Cause::Attribute),
            ("network.transport", Cause::Attribute),
            ("monkey", Cause::Attribute),
        ] {
            assert_eq!(Cause::of_key(key), cause, "{key}");
        }
        assert_eq!(Cause::of_wait("GC pause"), Some(Cause::Pause));
        assert_eq!(Cause::of_wait("unlock account"), None);
    }

    #[test]
    fn numbers_that_name_something_are_no_amounts() {
        for key in ["http.response.status_code", "statusCode", "server.port", "code"] {
            assert!(is_name(key), "{key}");
        }
        for key in ["http.request.body.size", "barcode", "transport"] {
            assert!(!is_name(key), "{key}");
        }
    }
}

//! The keys of the policies. The proxy's configuration and scenarios share this reader, so a simulated section can be
//! copied into the proxy's configuration.
//!
//! The defaults are those of `curtail-policy`: an empty section reads as `Default`. `false` switches a technique off
//! (`hedge: false`).

use crate::Section;
use curtail_policy::{
    ATTEMPTS_MAX, BalanceConfig, BudgetConfig, Class, GatherRule, HedgeConfig, LeafConfig,
    PrequalConfig, QuantileDelay, RemedyMode, RestMode, RetryConfig, TieConfig, UpstreamConfig,
};
use curtail_units::{Duration, Ratio};

/// Reads the policy keys of an upstream.
pub fn upstream(s: &mut Section<'_>) -> UpstreamConfig {
    let default = UpstreamConfig::default();
    let config = UpstreamConfig {
        balance: s.section("balance", "Choice of the replica for an attempt.", balance),
        hedge: s.switch("hedge", "Second attempts for slow requests.", default.hedge, hedge),
        tie: s.switch(
            "tie",
            "Two copies of a request, queued at two replicas at once. The copy that starts first cancels the other copy.",
            default.tie,
            tie,
        ),
        retry: s.switch("retry", "Further attempts after failed and overdue attempts.", default.retry, retry),
        budget: s.section("budget", "Limit on hedges and retries together.", budget),
        timeout: s
            .field("timeout", "Maximum time from the headers of a request to its response, the upload included. Then the request fails.")
            .at_least(Duration::from_ms(1))
            .default(default.timeout),
        remedy: remedy(s),
        slow_start: s
            .field("slow_start", "Time for which a replica that has joined or become healthy gets fewer requests: the elapsed share of this time, and at least a tenth; absent: it gets all at once.")
            .range(Duration::from_ms(100)..=Duration::from_secs(3_600))
            .optional(),
    };
    if config.remedy == RemedyMode::Auto && config.hedge.is_none() {
        let text = "auto needs hedges, because a dry run estimates them: expected hedge: true";
        s.conflict("remedy", &["hedge"], text);
    }
    let hedges = config.hedge.map_or(0, |hedge| usize::from(hedge.hedges_max));
    let retries = config.retry.map_or(0, |retry| usize::from(retry.retries_max));
    let attempts = 1 + usize::from(config.tie.is_some()) + hedges + retries;
    if attempts > ATTEMPTS_MAX {
        let text = format!(
            "one request could become {attempts} attempts: expected hedges_max, retries_max and a tie \
             to make at most {ATTEMPTS_MAX} with the first"
        );
        s.conflict("retry", &["hedge.hedges_max", "tie"], text);
    }
    config
}

/// Reads the key for the mode of the remedies.
fn remedy(s: &mut Section<'_>) -> RemedyMode {
    s.choice(
        "remedy",
        "Whether hedges and ties are sent. `on`: they are sent. `off`: they are not sent. `dry_run`: hedges are counted and not sent, and the proxy estimates their effect. `auto`: the proxy tries them, and sends them as long as a holdout proves that they help.",
        &[
            ("on", RemedyMode::On),
            ("off", RemedyMode::Off),
            ("dry_run", RemedyMode::DryRun),
            ("auto", RemedyMode::Auto),
        ],
    )
    .default(RemedyMode::On)
}

/// Reads the key for the group of an upstream.
pub fn group(s: &mut Section<'_>) -> Option<String> {
    s.field("group", "Name of a group: its upstreams share one budget and their recent latencies; absent: no group.")
        .optional()
}

/// Reads the key for the holdout of an upstream.
///
/// # Panics
/// Never: one half is a ratio.
pub fn holdout(s: &mut Section<'_>) -> Option<Ratio> {
    let half = Ratio::new(0.5).expect("a ratio");
    s.field(
        "holdout",
        "Ratio of requests that go without hedges and ties, drawn at random, so that the proxy measures the effect of hedges and ties; absent: no measurement.",
    )
    .at_most(half)
    .optional()
}

/// Reads the key for the switchback of an upstream.
///
/// # Panics
/// Never: the bounds are ratios.
pub fn switchback(s: &mut Section<'_>) -> Option<Ratio> {
    let ratio = |ratio| Ratio::new(ratio).expect("a ratio");
    s.field(
        "switchback",
        "Ratio of time blocks of 30 s in which no request gets hedges and ties, drawn at random, so that the proxy measures what they do to the load of all requests; absent: no such blocks.",
    )
    .at_least(ratio(0.05))
    .at_most(ratio(0.5))
    .optional()
}

/// Reads the key for a class.
pub fn class(s: &mut Section<'_>, doc: &'static str, default: Class) -> Class {
    s.choice("class", doc, &Class::ALL.map(|class| (class.name(), class))).default(default)
}

/// Reads the keys of a leaf's queue.
pub fn leaf(s: &mut Section<'_>, default: LeafConfig) -> LeafConfig {
    LeafConfig {
        concurrency: s
            .field("concurrency", "Maximum number of requests that the server executes at once.")
            .at_least(1)
            .default(default.concurrency),
        queue_len_max: s
            .field(
                "queue_len_max",
                "Maximum number of queued requests; the leaf rejects further requests.",
            )
            .default(default.queue_len_max),
    }
}

/// Reads what a request with several calls waits for.
pub fn fan_out(s: &mut Section<'_>) -> GatherRule {
    GatherRule {
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
                "Time after which the client gets only the responses that have arrived, counted from the end of the request body; absent: no deadline.",
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
    }
}

/// Maximum number of random replicas that `least_request` compares.
const CHOICES_MAX: u8 = 100;

fn balance(s: &mut Section<'_>) -> BalanceConfig {
    let default = BalanceConfig::default().name();
    s.cases("policy", "Balancing rule.").default(default, |cases| {
        cases.case("round_robin", "each replica in turn.", |_| BalanceConfig::RoundRobin);
        cases.case("random", "a random replica.", |_| BalanceConfig::Random);
        cases.case(
            "least_request",
            "of two random replicas, or of more (`choices`), the one with the fewest requests in flight.",
            |s| BalanceConfig::LeastRequest {
                choices: s
                    .field("choices", "Number of random replicas to compare.")
                    .range(2..=CHOICES_MAX)
                    .default(2),
            },
        );
        cases.case(
            "peak_ewma",
            "as least_request, but compares the products of requests in flight and recent peak latency.",
            |s| BalanceConfig::PeakEwma {
                decay: s
                    .field("decay", "Time constant of the decay after a latency peak.")
                    .at_least(Duration::from_ms(1))
                    .default(Duration::from_secs(10)),
            },
        );
        cases.case("prequal", "by probes of load and latency.", |s| {
            BalanceConfig::Prequal(prequal(s))
        });
    })
}

fn prequal(s: &mut Section<'_>) -> PrequalConfig {
    let default = PrequalConfig::default();
    PrequalConfig {
        probes_per_request: s
            .field("probes_per_request", "Number of probes for each request; 0.5 is one probe for two requests.")
            .range(0.0..=16.0)
            .default(default.probes_per_request),
        pool_len_max: s
            .field("pool_len_max", "Maximum number of probe results to keep.")
            .range(1..=u8::MAX)
            .default(default.pool_len_max),
        age_max: s
            .field("age_max", "Maximum age of a probe result.")
            .default(default.age_max),
        hot_quantile: s
            .field(
                "hot_quantile",
                "A replica is hot when its requests in flight reach this quantile of recent probe results.",
            )
            .default(default.hot_quantile),
        removals_per_request: s
            .field("removals_per_request", "Number of probe results to remove for each request.")
            .range(0.0..=16.0)
            .default(default.removals_per_request),
        reuse_slack: s
            .field("reuse_slack", "Slack of the reuse budget (δ in the Prequal paper).")
            .at_least(0.0)
            .default(default.reuse_slack),
        idle_interval: s
            .field("idle_interval", "Time between probes while no requests arrive.")
            .at_least(Duration::from_ms(1))
            .default(default.idle_interval),
        probe_timeout: s
            .field("probe_timeout", "Timeout of a probe.")
            .default(default.probe_timeout),
    }
}

fn hedge(s: &mut Section<'_>) -> HedgeConfig {
    let default = HedgeConfig::default();
    HedgeConfig {
        delay: delay(s, "Hedge delay, as a quantile of recent latencies.", default.delay),
        hedges_max: s
            .field("hedges_max", "Maximum number of hedges of one request.")
            .range(1..=EXTRA_ATTEMPTS_MAX)
            .default(default.hedges_max),
    }
}

/// Reads the keys of a delay; `doc` describes its quantile.
fn delay(s: &mut Section<'_>, doc: &'static str, default: QuantileDelay) -> QuantileDelay {
    let delay = QuantileDelay {
        quantile: s.field("quantile", doc).default(default.quantile),
        min: s.field("delay_min", "Minimum delay.").default(default.min),
        max: s
            .field("delay_max", "Maximum delay; also the delay while too few latencies are known.")
            .default(default.max),
    };
    s.check_order(("delay_min", delay.min), ("delay_max", delay.max));
    delay
}

fn tie(s: &mut Section<'_>) -> TieConfig {
    let default = TieConfig::default();
    TieConfig {
        delay: s
            .field(
                "delay",
                "Time between the two copies; absent: twice the measured message delay.",
            )
            .optional()
            .or(default.delay),
        message_delay: s
            .field("message_delay", "Message delay to assume before the first measurement.")
            .default(default.message_delay),
    }
}

fn retry(s: &mut Section<'_>) -> RetryConfig {
    let default = RetryConfig::default();
    let config = RetryConfig {
        retries_max: s
            .field("retries_max", "Maximum number of retries of one request, for failed and overdue attempts together; `retry: false` for none.")
            .range(1..=EXTRA_ATTEMPTS_MAX)
            .default(default.retries_max),
        backoff: s
            .field("backoff", "Maximum wait before the first retry after all replicas were tried. Each further retry doubles the maximum.")
            .default(default.backoff),
        backoff_max: s
            .field("backoff_max", "Maximum wait before any retry.")
            .default(default.backoff_max),
        overdue: s.switch(
            "overdue",
            "Further attempts for overdue attempts: after a delay without a response, the proxy also sends the request to another replica, and forwards the first response.",
            default.overdue,
            |s| {
                let doc = "Delay after which an attempt is overdue, as a quantile of recent latencies.";
                delay(s, doc, RetryConfig::OVERDUE)
            },
        ),
    };
    s.check_order(("backoff", config.backoff), ("backoff_max", config.backoff_max));
    config
}

fn budget(s: &mut Section<'_>) -> BudgetConfig {
    let default = BudgetConfig::default();
    BudgetConfig {
        ratio: s
            .field("ratio", "Maximum ratio of extra attempts to requests.")
            .default(default.ratio),
        window: s
            .field("window", "Time window over which the proxy counts requests and extra attempts.")
            .at_least(Duration::from_ms(10))
            .default(default.window),
        reserve: s
            .field("reserve", "Number of retries that each window allows even where `ratio` allows fewer attempts.")
            .default(default.reserve),
    }
}

/// Maximum number of attempts of one request after its first attempt.
#[expect(clippy::cast_possible_truncation, reason = "ATTEMPTS_MAX is far below 256")]
pub const EXTRA_ATTEMPTS_MAX: u8 = ATTEMPTS_MAX as u8 - 1;

#[cfg(test)]
mod tests;

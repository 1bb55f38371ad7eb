//! The keys of a fault: `{recipe: stall, servers_ratio: 0.1, every: {…}, lasts: {…}}`.

use super::{Affected, Fault, Recipe};
use crate::distribution::Distribution;
use curtail_config::policy::class;
use curtail_config::{Cases, Section};
use curtail_policy::Class;
use curtail_units::{Duration, Ratio};

/// Minimum mean time between two changes of a fault; more frequent changes leave no time for requests.
const PERIOD_MIN: Duration = Duration::from_us(1);

impl Fault {
    /// Reads the keys of a fault.
    pub fn read(s: &mut Section<'_>) -> Self {
        let recipe = s.cases("recipe", "Kind of the fault.").required(|cases| {
            pauses(cases);
            slowness(cases);
            crash(cases);
            errors(cases);
            others(cases);
        });
        let first =
            s.field("servers_first", "Number of affected servers, from the first on.").optional();
        let share: Option<Ratio> =
            s.field("servers_ratio", "Share of affected servers, drawn once.").optional();
        if first.is_some() && share.is_some() {
            s.error("servers_first", "expected either this or servers_ratio");
        }
        let servers = first.map_or(Affected::Share(share.unwrap_or(Ratio::ONE)), Affected::First);
        Self { servers, recipe }
    }
}

fn pauses(cases: &mut Cases<'_, '_, Recipe>) {
    cases.case("stall", "the server stops for a while.", |s| Recipe::Stall {
        every: period(s, "Time from one stall to the next."),
        lasts: s.section("lasts", "Duration of a stall.", Distribution::read),
    });
    cases.case("garbage_collection", "the server stops after a number of executions.", |s| {
        Recipe::GarbageCollection {
            executions: s
                .field("executions", "Number of executions from one pause to the next.")
                .at_least(1)
                .required(),
            lasts: s.section("lasts", "Duration of a pause.", Distribution::read),
        }
    });
}

fn slowness(cases: &mut Cases<'_, '_, Recipe>) {
    cases.case("background_job", "the server does something else as well.", |s| {
        Recipe::BackgroundJob {
            every: s
                .field("every", "Time from one start to the next.")
                .at_least(PERIOD_MIN)
                .required(),
            lasts: s.section("lasts", "Duration of the job, at most `every`.", Distribution::read),
            slowdown: slowdown(s),
            synchronized: s
                .field("synchronized", "Whether all servers run the job at the same time.")
                .default(false),
        }
    });
    cases.case("slow_replica", "the server is always slower.", |s| Recipe::SlowReplica {
        slowdown: slowdown(s),
    });
}

fn crash(cases: &mut Cases<'_, '_, Recipe>) {
    cases.case("crash", "the server loses its requests, and accepts none for a while.", |s| {
        let every = period(s, "Time from the end of one crash to the next.");
        let lasts = s.section("lasts", "Time without the server.", Distribution::read);
        if lasts.mean_ns() <= 0.0 {
            s.error("lasts", "the mean is zero: expected a duration above zero");
        }
        Recipe::Crash { every, lasts }
    });
}

fn errors(cases: &mut Cases<'_, '_, Recipe>) {
    cases.case("errors", "a share of the executions fails.", |s| {
        let share = |s: &mut Section<'_>, key, doc| s.field(key, doc).default(Ratio::ZERO);
        let broken = share(s, "broken_ratio", "Share that ends with a broken connection.");
        let bad = share(s, "bad_ratio", "Share that ends with a bad response (503).");
        let silent = share(s, "silent_ratio", "Share without a response, which ends with a timeout.");
        let sum = broken.get() + bad.get() + silent.get();
        if sum <= 0.0 || sum > 1.0 {
            let text = "expected broken_ratio, bad_ratio and silent_ratio to have a sum above 0 and at most 1";
            s.error("recipe", format!("the sum of the shares is {sum}: {text}"));
        }
        Recipe::Errors { broken, bad, silent }
    });
}

fn others(cases: &mut Cases<'_, '_, Recipe>) {
    cases.case("noisy_neighbor", "requests of others wait in the same queue.", |s| {
        Recipe::NoisyNeighbor {
            per_second: s
                .field(
                    "requests_per_second",
                    "Requests of the neighbor per second, at each server.",
                )
                .range(0.001..=1e7)
                .required(),
            service: s.section(
                "service",
                "Service time of the neighbor's requests.",
                Distribution::read,
            ),
            class: class(s, "Class of the neighbor's requests.", Class::Interactive),
        }
    });
    cases.case("antagonist", "others use cores of the same machine.", |s| {
        let cores_min = s
            .field("cores_min", "Minimum number of cores that the others use.")
            .range(0.0..=1e6)
            .default(0.0);
        let cores_max = s
            .field("cores_max", "Maximum number of cores that the others use.")
            .range(0.0..=1e6)
            .required();
        s.check_order(("cores_min", cores_min), ("cores_max", cores_max));
        let every = period(s, "Time until the demand changes.");
        let cores_left_min = s
            .field("cores_left_min", "Minimum number of cores that remain for the server.")
            .range(0.01..=1e6)
            .required();
        Recipe::Antagonist { cores_min, cores_max, cores_left_min, every }
    });
}

fn period(s: &mut Section<'_>, doc: &'static str) -> Distribution {
    let every = s.section("every", doc, Distribution::read);
    // A distribution with an error of its own may have no mean, and is reported already.
    if every.mean_ns() < PERIOD_MIN.as_ns_f64() {
        let mean = Duration::from_ns_f64(every.mean_ns());
        let text = format!("the mean {mean} is too short: expected at least {PERIOD_MIN}");
        s.error("every", text);
    }
    every
}

fn slowdown(s: &mut Section<'_>) -> f64 {
    s.field("slowdown", "Factor on all service times.").range(1.0..=1e6).required()
}

//! The keys of a workload.

use super::{REQUESTS_MAX, TENANTS_MAX};
use crate::expect::Expect;
use curtail_config::Section;
use curtail_units::Duration;
use std::path::PathBuf;

/// The configuration of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadConfig {
    /// Requests.
    pub requests: Vec<RequestConfig>,
    /// Without journeys, each request is sent independently.
    pub(super) journeys: Vec<JourneyConfig>,
    pub(super) tenants: Vec<TenantConfig>,
}

/// The configuration of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestConfig {
    /// The name in reports.
    pub name: String,
    /// The relative frequency of the request.
    pub weight: f64,
    /// The method.
    pub method: String,
    /// The path and the query; those of the target if absent.
    pub path: Option<String>,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// The body, if there is one.
    pub body: Option<BodyConfig>,
    /// The file with rows of values for placeholders.
    pub data: Option<PathBuf>,
    /// The expected response.
    pub expect: Expect,
}

/// The source of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyConfig {
    /// A text, with placeholders.
    Text(String),
    /// The bytes of a file.
    File(PathBuf),
}

/// The configuration of a journey.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JourneyConfig {
    pub(super) weight: f64,
    pub(super) steps: Vec<StepConfig>,
}

/// The configuration of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StepConfig {
    pub(super) request: String,
    pub(super) think: Duration,
    /// Whether the think time varies, exponentially.
    pub(super) is_think_random: bool,
}

/// The configuration of a tenant.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TenantConfig {
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) weight: f64,
}

const WEIGHT_MAX: f64 = 1e6;

impl WorkloadConfig {
    /// Reads the keys of a workload.
    pub fn read(s: &mut Section<'_>) -> Self {
        let requests = s.list("requests", "Requests to send.", RequestConfig::read);
        let journeys = s.list(
            "journeys",
            "Sequences of requests with think times. With journeys, requests are only sent as their steps. Without journeys, each request is sent independently.",
            JourneyConfig::read,
        );
        let tenants = s.list(
            "tenants",
            "Tenants of the requests; `{tenant}` in a request stands for the name of the tenant.",
            TenantConfig::read,
        );
        if requests.is_empty() {
            s.error("requests", "there is none: expected at least one request");
        }
        s.check_len("requests", requests.len(), REQUESTS_MAX);
        s.check_len("journeys", journeys.len(), REQUESTS_MAX);
        s.check_len("tenants", tenants.len(), TENANTS_MAX);
        check_names(s, "requests", requests.iter().map(|request| request.name.as_str()));
        check_names(s, "tenants", tenants.iter().map(|tenant| tenant.name.as_str()));
        for step in journeys.iter().flat_map(|journey| &journey.steps) {
            let names = requests.iter().map(|request| &*request.name);
            s.check_known(("journeys", "request"), &step.request, names);
        }
        Self { requests, journeys, tenants }
    }

    /// A workload of a single request.
    #[must_use]
    pub fn of_one(request: RequestConfig) -> Self {
        Self { requests: vec![request], journeys: Vec::new(), tenants: Vec::new() }
    }
}

fn check_names<'n>(s: &mut Section<'_>, key: &str, names: impl Iterator<Item = &'n str>) {
    let mut seen = Vec::new();
    for name in names {
        if seen.contains(&name) {
            s.error(key, format!("{name:?} is there twice: expected names that differ"));
        }
        seen.push(name);
    }
}

impl RequestConfig {
    /// A `GET` of the path of the target.
    #[must_use]
    pub fn get(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            weight: 1.0,
            method: "GET".to_owned(),
            path: None,
            headers: Vec::new(),
            body: None,
            data: None,
            expect: Expect::default(),
        }
    }

    fn read(s: &mut Section<'_>) -> Self {
        let name = s.field("name", "Name of the request in reports.").required();
        let weight = weight(s, "Relative frequency.");
        let path = s
            .field(
                "path",
                "Path and query, in which `{name}` is a column of `data`; absent: path and query of the target.",
            )
            .optional();
        let headers = s.map("headers", "Additional headers.", |name, s| {
            (
                name.to_owned(),
                s.field("value", "Value of the header; may contain `{name}`.").alone().required(),
            )
        });
        let text: Option<String> = s.field("body", "Body; may contain `{name}`.").optional();
        let file: Option<PathBuf> =
            s.field("body_file", "File of the body, sent unchanged.").optional();
        let body = match (text, file) {
            (Some(_), Some(_)) => {
                s.error("body_file", "there is a body as well: expected one of the two");
                None
            }
            (Some(text), None) => Some(BodyConfig::Text(text)),
            (None, Some(file)) => Some(BodyConfig::File(file)),
            (None, None) => None,
        };
        let default = if body.is_some() { "POST" } else { "GET" };
        let method = s
            .field("method", "HTTP method; by default GET without a body, POST with a body.")
            .default(default.to_owned());
        let data = s
            .field("data", "CSV file with a header line. Each request takes the values of its `{name}`s from one row.")
            .optional();
        let expect = s.section("expect", "The expected response.", Expect::read);
        Self { name, weight, method, path, headers, body, data, expect }
    }
}

impl JourneyConfig {
    fn read(s: &mut Section<'_>) -> Self {
        let weight = weight(s, "Relative frequency.");
        let words = [("exponential", true), ("constant", false)];
        let steps =
            s.list("steps", "Requests of the journey, in order; a failed step ends it.", |s| {
                StepConfig {
                    request: s.field("request", "Name of a request.").required(),
                    think: s
                        .field(
                            "think",
                            "Mean think time: from the previous response to this request.",
                        )
                        .at_most(Duration::from_secs(3_600))
                        .default(Duration::ZERO),
                    is_think_random: s
                        .choice("think_shape", "Distribution of the think time.", &words)
                        .default(true),
                }
            });
        if steps.is_empty() {
            s.error("steps", "there is none: expected at least one step");
        }
        Self { weight, steps }
    }
}

impl TenantConfig {
    fn read(s: &mut Section<'_>) -> Self {
        Self {
            name: s.field("name", "Name of the tenant, the value of `{tenant}`.").required(),
            size: s
                .field(
                    "size",
                    "Size of the tenant, in any unit. Tables sort tenants by their size.",
                )
                .default(0),
            weight: weight(s, "Relative share of the requests."),
        }
    }
}

fn weight(s: &mut Section<'_>, doc: &'static str) -> f64 {
    s.field("weight", doc).range(1e-6..=WEIGHT_MAX).default(1.0)
}

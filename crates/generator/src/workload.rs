//! The workload: requests by weight, in journeys, for tenants.
//!
//! The seed and the number of an arrival in the plan decide its request, its tenant and its row of data. An arrival
//! is therefore the same request in every arm, whichever generator sends it.
//! **Limits**: [`REQUESTS_MAX`] requests and [`TENANTS_MAX`] tenants, which bound the recordings.

mod config;
mod prepare;
#[cfg(test)]
mod tests;

pub use config::{BodyConfig, RequestConfig, WorkloadConfig};
pub use prepare::PrepareError;

use crate::expect::Expect;
use crate::flight::RequestFailure;
use crate::template::{PlaceholderValues, Template};
use bytes::Bytes;
use curtail_report::results::Series;
use curtail_units::{Duration, Rng};
use http::{HeaderName, HeaderValue};
use std::sync::Arc;

/// Maximum number of requests of a workload.
pub const REQUESTS_MAX: usize = 64;

/// Maximum number of tenants of a workload.
pub const TENANTS_MAX: usize = 64;

/// The workload.
#[derive(Clone, Debug)]
pub struct Workload {
    pub(crate) requests: Vec<Request>,
    /// A lone request is a journey of one step.
    journeys: Vec<Journey>,
    /// A tenant without a name if the workload has no tenants.
    tenants: Vec<Tenant>,
    rng: Rng,
}

/// A request without the values of its placeholders.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The name in reports.
    name: String,
    pub(crate) method: http::Method,
    pub(crate) path: Template,
    /// Headers in addition to those that the protocol needs.
    pub(crate) headers: Vec<(HeaderName, Template)>,
    pub(crate) body: Body,
    /// Values of the placeholders.
    rows: Arc<Vec<Vec<String>>>,
    pub(crate) expect: Expect,
}

/// A body; an empty text for none.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Text(Template),
    /// The bytes of a file.
    Bytes(Arc<[u8]>),
}

#[derive(Clone, Debug)]
struct Journey {
    /// The sum of the weights of the journeys up to and including this one.
    weight_until: f64,
    steps: Vec<Step>,
}

/// A step of a journey.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    request: usize,
    /// Mean think time: from the previous response to this request.
    think: Duration,
    is_think_random: bool,
}

#[derive(Clone, Debug)]
struct Tenant {
    name: String,
    size: u64,
    weight_until: f64,
}

/// An arrival at one step of its journey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The number of the arrival in the plan.
    pub(crate) nth: u64,
    journey: usize,
    step: usize,
    tenant: usize,
}

impl Workload {
    /// Whether a request can lead to further requests.
    pub(crate) fn has_journeys(&self) -> bool {
        self.journeys.iter().any(|journey| journey.steps.len() > 1)
    }

    /// The same workload with another source of randomness.
    pub(crate) fn seeded(&self, rng: &Rng) -> Self {
        Self { rng: rng.split("workload"), ..self.clone() }
    }

    /// The first step of the arrival with this number in the plan.
    pub(crate) fn choose(&self, nth: u64) -> Choice {
        let mut rng = self.rng.split_index(nth);
        let journey = by_weight(&self.journeys, |journey| journey.weight_until, &mut rng);
        let tenant = by_weight(&self.tenants, |tenant| tenant.weight_until, &mut rng);
        Choice { nth, journey, step: 0, tenant }
    }

    /// The next step of the same arrival, with the think time before it; [`None`] after the last.
    pub(crate) fn after(&self, choice: Choice) -> Option<(Duration, Choice)> {
        let next = Choice { step: choice.step + 1, ..choice };
        let step = self.journeys[next.journey].steps.get(next.step)?;
        let think = if step.is_think_random {
            let mut rng =
                self.rng.split("think").split_index(next.nth).split_index(next.step as u64);
            step.think.mul_f64(rng.exponential())
        } else {
            step.think
        };
        Some((think, next))
    }

    /// The request of a choice.
    pub(crate) fn request(&self, choice: Choice) -> &Request {
        &self.requests[self.request_of(choice)]
    }

    /// The values of the placeholders of a choice.
    pub(crate) fn values(&self, choice: Choice) -> PlaceholderValues<'_> {
        let rows = &self.request(choice).rows;
        let row: &[String] = match rows.len() {
            0 => &[],
            1 => &rows[0],
            // One arrival has one row, whichever step it is at.
            len => &rows[self.rng.split("row").split_index(choice.nth).below(len)],
        };
        PlaceholderValues { row, tenant: &self.tenants[choice.tenant].name, nth: choice.nth }
    }

    /// The index of a choice's series in [`Self::series`].
    pub(crate) fn series_of(&self, choice: Choice) -> usize {
        self.request_of(choice) * self.tenants.len() + choice.tenant
    }

    /// The kinds of requests that results distinguish.
    #[must_use]
    pub fn series(&self) -> Vec<Series> {
        let of_request = |request: &Request| {
            let query = request.name.clone();
            self.tenants.iter().map(move |tenant| Series {
                query: query.clone(),
                tenant: tenant.name.clone(),
                tenant_size: tenant.size,
            })
        };
        self.requests.iter().flat_map(of_request).collect()
    }

    /// The index of the request of a choice.
    pub(crate) fn request_of(&self, choice: Choice) -> usize {
        self.journeys[choice.journey].steps[choice.step].request
    }
}

impl Request {
    /// Whether path and headers are the same each time.
    pub(crate) fn is_head_fixed(&self) -> bool {
        self.path.is_fixed() && self.headers.iter().all(|(_, value)| value.is_fixed())
    }

    /// The headers with their values, which may be invalid in a header.
    pub(crate) fn filled_headers<'a>(
        &'a self,
        values: &'a PlaceholderValues<'_>,
    ) -> impl Iterator<Item = Result<(&'a HeaderName, HeaderValue), RequestFailure>> {
        self.headers.iter().map(|(name, value)| {
            let value = HeaderValue::from_maybe_shared(Bytes::from(value.filled(values)));
            Ok((name, value.map_err(RequestFailure::not_a_request)?))
        })
    }
}

impl Body {
    /// The bytes of the body, with its values.
    pub(crate) fn filled(&self, values: &PlaceholderValues<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        self.fill(values, &mut out);
        out
    }

    /// Appends the bytes of the body, with its values, to `out`.
    pub(crate) fn fill(&self, values: &PlaceholderValues<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Text(template) => template.fill(values, out),
            Self::Bytes(bytes) => out.extend_from_slice(bytes),
        }
    }
}

/// Draws the index of one of `all` by weight; a single one takes no random number.
fn by_weight<T>(all: &[T], weight_until: impl Fn(&T) -> f64, rng: &mut Rng) -> usize {
    let Some(last) = all.len().checked_sub(1).filter(|last| *last > 0) else { return 0 };
    let drawn = rng.unit() * weight_until(&all[last]);
    all.partition_point(|each| weight_until(each) <= drawn).min(last)
}

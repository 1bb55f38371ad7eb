//! The access log: one line for each request of a client, in JSON or in a format of the user.
//!
//! A line is written when the request has ended. **Decides** which requests are logged: errors always, slow requests if
//! `slower_than` is set, and a share of all others (`sample`), drawn from the trace ID. So the proxies that a request passes
//! draw alike.
//! The lines of finished requests ([`crate::finished`]) are encoded into a buffer of the worker ([`buffers`]); a thread
//! writes the buffers to the file
//! ([`writer`]). No request waits for the file.
//! **Limits**: those of the buffers. Texts are cut off after [`line::TEXT_BYTES_MAX`] bytes.
//! **Hurts when** the file cannot keep up: the latest lines are dropped, and counted.
//!
//! The journal has a file and a thread of its own ([`crate::journal`]), because it ends at its first lost line.

pub(crate) mod buffers;
mod field;
pub(crate) mod format;
mod line;
pub(crate) mod writer;

pub(crate) use line::PreparedText;

use crate::client::Client;
use crate::config::{AccessLogConfig, Config};
use crate::trail::{RequestEnd, Trail};
use buffers::LineBuffers;
use curtail_http::clock::Clock;
use curtail_units::{Duration, Rng};
use format::Format;
use std::sync::Arc;

/// The access log of a configuration.
#[derive(Debug)]
pub(crate) struct AccessLog {
    config: AccessLogConfig,
    /// The request header that names the tenant of a request, in lower case.
    tenant_header: Option<Box<str>>,
    buffers: Arc<LineBuffers>,
}

/// The facts of one line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AccessRecord<'a> {
    client: &'a Client,
    /// Absent: the request is malformed, so nothing is known of it.
    trail: Option<&'a Trail>,
    end: RequestEnd,
    /// The explanation of the error; absent: the name of the error says all.
    error_detail: Option<&'a str>,
    /// The number that decides whether the request is in the sample.
    draw: u64,
}

impl AccessLog {
    /// The access log of `config`, if it has one.
    pub(crate) fn new(config: &Config, buffers: &Arc<LineBuffers>) -> Option<Self> {
        Some(Self {
            tenant_header: config.tenants.as_ref().map(|tenants| (*tenants.header).into()),
            buffers: Arc::clone(buffers),
            config: config.access_log.clone()?,
        })
    }

    /// [`Self::record`] of a request, unless it is a call of a fan-out, which is a part of a client's request.
    pub(crate) fn record_request(&self, worker: usize, trail: &Trail, clock: &Clock) {
        if !trail.is_call {
            let end = trail.end_or_unfinished(clock.now());
            self.record(worker, &AccessRecord::of_request(trail, end), clock);
        }
    }

    /// Writes the line of a request that is over, unless it is not wanted or there is no room.
    pub(crate) fn record(&self, worker: usize, record: &AccessRecord<'_>, clock: &Clock) {
        if !record.is_wanted(self.config.slower_than, self.config.sample.get()) {
            return;
        }
        let facts = field::Facts { log: self, record, clock };
        self.buffers.append(worker, |out, second| {
            match &self.config.format {
                Format::Json => line::write_json((out, second), &facts, &self.config.headers),
                Format::Text(parts) => line::write_text((out, second), &facts, parts),
            }
            #[cfg(test)]
            record.trail.iter().for_each(|trail| {
                crate::guard::planted::strike_encoder(&trail.request_head);
            });
        });
    }
}

impl<'a> AccessRecord<'a> {
    pub(crate) fn of_request(trail: &'a Trail, end: RequestEnd) -> Self {
        let (halves, _) = trail.context.trace_id.as_chunks::<8>();
        let draw = halves.iter().fold(0, |draw, half| draw ^ u64::from_be_bytes(*half));
        let error_detail = trail.error_detail.as_deref();
        Self { client: &trail.client, trail: Some(trail), end, error_detail, draw }
    }

    /// A request that is malformed for the reason `why`.
    pub(crate) const fn of_malformed(
        client: &'a Client,
        end: RequestEnd,
        (why, draw): (&'a str, u64),
    ) -> Self {
        let error_detail = if why.is_empty() { None } else { Some(why) };
        Self { client, trail: None, end, error_detail, draw }
    }

    /// The time from the headers of the request to its end.
    fn duration(&self) -> Option<Duration> {
        Some(self.end.at.since(self.trail?.started))
    }

    fn is_wanted(&self, slower_than: Option<Duration>, sample: f64) -> bool {
        sample >= 1.0
            || self.is_error()
            || slower_than.is_some_and(|limit| self.duration() > Some(limit))
            || Rng::new(self.draw).chance(sample)
    }

    fn is_error(&self) -> bool {
        let cancelled = self.trail.and_then(|trail| trail.cancelled(&self.end));
        let end = &self.end;
        let is_failure = self.trail.map_or_else(|| end.is_failure(), |trail| trail.is_failure(end));
        is_failure && cancelled.is_none()
    }
}

#[cfg(test)]
mod tests;

//! The changes that a route makes to a request before it goes to a replica, and to its response.

use super::rewrite::PrefixRewrite;
use crate::client::Client;
use crate::config::{HeaderChanges, HeaderValue, RouteConfig, ValueField, ValuePart};
use crate::trace_context::{TraceId, write_hex};
use curtail_http::head::{Fault, Fields, Known, RequestHead, Target};

/// The changes of a route that has some.
#[derive(Clone, Debug)]
pub(crate) struct MessageChanges {
    request_headers: HeaderChanges,
    response_headers: HeaderChanges,
    rewrite: Option<PrefixRewrite>,
}

/// The properties of a request that its headers can carry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestFacts<'a> {
    pub(crate) client: &'a Client,
    /// The head before the changes of the route.
    pub(crate) head: &'a RequestHead,
    pub(crate) trace_id: &'a TraceId,
}

impl MessageChanges {
    /// [`None`] if the route changes nothing.
    pub(crate) fn new(config: &RouteConfig) -> Option<Self> {
        let changes = &config.changes;
        let rewrite = changes.rewrite_prefix.as_deref();
        let made = Self {
            request_headers: changes.request_headers.clone(),
            response_headers: changes.response_headers.clone(),
            rewrite: rewrite.map(|prefix| PrefixRewrite::new(&config.path_prefix, prefix)),
        };
        let is_none = made.request_headers.is_empty()
            && made.response_headers.is_empty()
            && made.rewrite.is_none();
        (!is_none).then_some(made)
    }

    /// The target for replicas; [`None`]: it stays unchanged.
    ///
    /// # Errors
    /// When the path prefix cannot be replaced.
    pub(crate) fn rewrite(&self, target: &Target) -> Result<Option<Target>, Fault> {
        // `OPTIONS *` asks about the server as a whole.
        let rewrite = self.rewrite.as_ref().filter(|_| target.as_str() != "*");
        rewrite.map(|rewrite| target.with_path(&rewrite.apply(target.path())?)).transpose()
    }

    /// The head for replicas, with the rewritten target; [`None`]: it stays unchanged.
    pub(crate) fn change_request(
        &self,
        facts: RequestFacts<'_>,
        rewritten: Option<Target>,
    ) -> Option<RequestHead> {
        if rewritten.is_none() && self.request_headers.is_empty() {
            return None;
        }
        let mut head = facts.head.clone();
        if let Some(target) = rewritten {
            head.target = target;
        }
        self.request_headers.apply(&mut head.fields, facts);
        // HTTP/1.1 allows one field of cookies (RFC 9112 with RFC 6265, section 5.4).
        head.fields.join(Known::Cookie, b"; ");
        // The field has the host, which may be another one than in the client's target.
        head.authority = None;
        Some(head)
    }

    pub(crate) fn change_response(&self, fields: &mut Fields, facts: RequestFacts<'_>) {
        self.response_headers.apply(fields, facts);
    }
}

impl HeaderChanges {
    fn apply(&self, fields: &mut Fields, facts: RequestFacts<'_>) {
        for name in &self.removed {
            fields.remove_named(name.as_bytes());
        }
        let mut text = Vec::new();
        for (name, value) in &self.added {
            text.clear();
            write_value(&mut text, value, facts);
            fields.append(name.as_bytes(), &text);
        }
    }
}

/// Appends a value. A field without a value is empty.
fn write_value(text: &mut Vec<u8>, value: &HeaderValue, facts: RequestFacts<'_>) {
    for part in value {
        match part {
            ValuePart::Literal(literal) => text.extend_from_slice(literal.as_bytes()),
            ValuePart::Field(ValueField::Client) => {
                text.extend_from_slice(facts.client.origin_text(facts.head).as_bytes());
            }
            ValuePart::Field(ValueField::Host) => {
                text.extend_from_slice(facts.head.host().unwrap_or_default().as_bytes());
            }
            ValuePart::Field(ValueField::Scheme) => {
                let scheme = facts.client.scheme(facts.head);
                text.extend_from_slice(scheme.name().as_bytes());
            }
            ValuePart::Field(ValueField::TraceId) => {
                let mut digits = [0; 32];
                write_hex(&mut digits, facts.trace_id);
                text.extend_from_slice(&digits);
            }
        }
    }
}

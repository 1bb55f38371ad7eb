//! The origins whose web pages may send data (cross-origin resource sharing).
//!
//! Before a page of another origin sends a request, its browser sends a preflight (`OPTIONS`), and continues if the
//! response names the origin. A preflight has no token and needs none; the request itself needs a token.
//!
//! **Source**: the Fetch standard, section 3.3, "CORS protocol".

use crate::rejection::{RejectReason, Rejection};
use crate::response::ResponseBody;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, request};

/// The seconds for which a browser may cache the response to a preflight; no browser caches longer than this.
const MAX_AGE_S: u64 = 7_200;

/// The allowed origins.
#[derive(Clone, Debug)]
pub(crate) struct Origins(pub(crate) Vec<String>);

impl Origins {
    /// The origin of a request, if it is allowed.
    pub(crate) fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        let is_it = |known: &String| known == "*" || known.as_bytes() == origin.as_bytes();
        self.0.iter().any(is_it).then(|| origin.clone())
    }

    /// Rejects a preflight of an origin that is not allowed.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Rejection> {
        if self.allowed(headers).is_some() {
            return Ok(());
        }
        let origin = headers.get(ORIGIN).map_or(&[][..], HeaderValue::as_bytes);
        let origin = String::from_utf8_lossy(origin);
        Err(RejectReason::Forbidden.reject(format!(
            "origin {origin} is not allowed; add it to otlp.allow_origins of the server"
        )))
    }
}

/// Whether a request is a preflight.
pub(crate) fn is_preflight(head: &request::Parts) -> bool {
    head.method == Method::OPTIONS
        && head.headers.contains_key(ORIGIN)
        && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The response to a preflight of an allowed origin.
pub(crate) fn preflight_response(headers: &HeaderMap) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let fields = response.headers_mut();
    fields.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST"));
    fields.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(MAX_AGE_S));
    if let Some(names) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        fields.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    response
}

/// Allows pages of an origin to read a response.
pub(crate) fn allow(response: &mut Response<ResponseBody>, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("retry-after"));
    headers.append(VARY, HeaderValue::from_static("origin"));
}

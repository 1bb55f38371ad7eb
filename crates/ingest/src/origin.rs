//! Pages in browsers that may send: cross-origin resource sharing.
//!
//! A browser asks before it sends for a page of another origin (a preflight: `OPTIONS`), and lets the page send where the
//! response names its origin. The preflight carries no token, so none is asked for; the request that follows
//! needs one as every other does.
//!
//! **Source**: the Fetch standard, section 3.3, "CORS protocol".

use crate::answer::AnswerBody;
use crate::refusal::{Kind, Refusal};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, request};

/// For so many seconds a browser does not ask again; none keeps it for longer.
const MAX_AGE_S: u64 = 7_200;

/// Origins whose pages may send.
#[derive(Clone, Debug)]
pub(crate) struct Origins(pub(crate) Vec<String>);

impl Origins {
    /// The origin that a request names, if its pages may send.
    pub(crate) fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        let is_it = |known: &String| known == "*" || known.as_bytes() == origin.as_bytes();
        self.0.iter().any(is_it).then(|| origin.clone())
    }

    /// Refuses a preflight of an origin that is not allowed.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        if self.allowed(headers).is_some() {
            return Ok(());
        }
        let origin = headers.get(ORIGIN).map_or(&[][..], HeaderValue::as_bytes);
        let origin = String::from_utf8_lossy(origin);
        Err(Kind::Forbidden.refuse(format!(
            "pages of {origin} may not send here; start the server with --allow-origin {origin}"
        )))
    }
}

/// Whether a browser asks what a page may send.
pub(crate) fn is_preflight(head: &request::Parts) -> bool {
    head.method == Method::OPTIONS
        && head.headers.contains_key(ORIGIN)
        && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The response to a preflight whose origin is allowed: it may send what it has asked for.
pub(crate) fn preflight_response(headers: &HeaderMap) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let fields = response.headers_mut();
    fields.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST"));
    fields.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(MAX_AGE_S));
    if let Some(asked) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        fields.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    response
}

/// Lets pages of an origin read a response.
pub(crate) fn allow(response: &mut Response<AnswerBody>, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("retry-after"));
    headers.append(VARY, HeaderValue::from_static("origin"));
}

//! Access to a server: bearer tokens (RFC 6750), and the tenant of a request.
//!
//! A token file has one token a line, optionally with the tenant to which it is bound. Empty lines and lines that begin
//! with `#` are ignored.
//!
//! | token | requests |
//! |---|---|
//! | not bound | any tenant: the tenant in `X-Scope-OrgID`, or the default tenant |
//! | bound | only the token's tenant, with or without `X-Scope-OrgID` |
//!
//! **Invariant**: a check takes the same time for wrong and right tokens of the same length. No message contains a
//! token.

use crate::small_file::read_small_text;
use arc_swap::ArcSwap;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The header of a request's tenant, as in Tempo, Loki and Mimir.
pub const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");

/// Maximum length of the name of a tenant.
const TENANT_BYTES_MAX: usize = 255;

/// The tokens that a server accepts; a server without tokens accepts all requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Token>);

#[derive(Clone, PartialEq, Eq)]
struct Token {
    secret: String,
    tenant: Option<String>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

/// Why a request is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The request has no bearer token.
    #[error("expected authorization: Bearer <token>")]
    NoToken,
    /// The token of the request is unknown.
    #[error("the bearer token is not known")]
    UnknownToken,
    /// The token of the request is bound to another tenant.
    #[error("the bearer token is bound to the tenant {0}")]
    OtherTenant(String),
    /// The token of the request is bound to a tenant, and the page is about the whole process.
    #[error("the bearer token is bound to a tenant: expected one that is not")]
    BoundToTenant,
    /// The tenant of the request is not a valid name.
    #[error("x-scope-orgid: expected 1 to 255 characters of ASCII")]
    BadTenant,
    /// The request has several tokens or tenants. Another server on its way may have checked another one.
    #[error("{0}: expected one header, found several")]
    Repeated(HeaderName),
}

impl Tokens {
    /// Parses a file of tokens. A file without tokens is an error, because it would allow all clients.
    ///
    /// # Errors
    /// A text with the line and the expected input.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tokens = Vec::new();
        for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines().map(str::trim))
        {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.split_ascii_whitespace();
            let (secret, tenant) = (words.next().unwrap_or_default(), words.next());
            // A header has no other characters, so no client could send them. The token is secret, so it is not printed.
            let is_visible = |word: &str| word.bytes().all(|byte| byte.is_ascii_graphic());
            let is_tenant = |tenant: &str| is_visible(tenant) && !tenant.starts_with('#');
            if !is_visible(secret) || !tenant.is_none_or(is_tenant) || words.next().is_some() {
                return Err(format!(
                    "line {number}: expected a token of visible ASCII characters, and after a space the tenant to \
                     which it is bound, if it is; a comment is a line of its own that begins with #"
                ));
            }
            tokens.push(Token { secret: secret.to_owned(), tenant: tenant.map(str::to_owned) });
        }
        if tokens.is_empty() {
            return Err(
                "expected at least one token, but found only comments and empty lines".to_owned()
            );
        }
        Ok(Self(tokens))
    }

    fn check<'a>(&'a self, headers: &'a HeaderMap) -> Result<Option<&'a str>, AccessError> {
        let token = if self.0.is_empty() { None } else { Some(self.token_of(headers)?) };
        let requested = only(headers, TENANT)?.map(tenant_of).transpose()?;
        match (token.and_then(|token| token.tenant.as_deref()), requested) {
            (Some(bound), Some(requested)) if bound != requested => {
                Err(AccessError::OtherTenant(bound.to_owned()))
            }
            (Some(bound), _) => Ok(Some(bound)),
            (None, requested) => Ok(requested),
        }
    }

    fn token_of(&self, headers: &HeaderMap) -> Result<&Token, AccessError> {
        let sent = only(headers, AUTHORIZATION)?
            .and_then(|value| value.to_str().ok()?.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim().as_bytes())
            .ok_or(AccessError::NoToken)?;
        // All tokens are compared to their ends, so the time tells nothing about them.
        let known = self
            .0
            .iter()
            .fold(None, |known, token| is_same(token, sent).then_some(token).or(known));
        known.ok_or(AccessError::UnknownToken)
    }
}

/// The tokens of a listener; a reload replaces them.
#[derive(Debug, Default)]
pub struct Access(ArcSwap<Tokens>);

impl Access {
    /// Creates the access of a listener with its first tokens.
    #[must_use]
    pub fn new(tokens: Tokens) -> Self {
        Self(ArcSwap::from_pointee(tokens))
    }

    /// Replaces the tokens for later requests.
    pub fn replace(&self, tokens: Tokens) {
        self.0.store(Arc::new(tokens));
    }

    /// Checks the token of a request; returns the tenant of the request, [`None`] for the default tenant.
    ///
    /// # Errors
    /// When the token or the tenant is not allowed.
    pub fn check(&self, headers: &HeaderMap) -> Result<Option<String>, AccessError> {
        self.0.load().check(headers).map(|tenant| tenant.map(str::to_owned))
    }

    /// Checks the token of a request for a page about the whole process.
    ///
    /// # Errors
    /// When the token is not allowed, or is bound to a tenant.
    pub fn check_process(&self, headers: &HeaderMap) -> Result<(), AccessError> {
        let mut without_tenant = headers.clone();
        without_tenant.remove(TENANT);
        match self.0.load().check(&without_tenant)? {
            Some(_) => Err(AccessError::BoundToTenant),
            None => Ok(()),
        }
    }
}

/// Reads the token of a client; returns the value of `authorization`.
///
/// # Errors
/// When the file cannot be read, is empty, or has characters that no header has.
pub fn read_token(file: &Path) -> io::Result<HeaderValue> {
    let text = read_small_text(file)?;
    let expected = || io::Error::other("expected one token of visible ASCII characters");
    let is_token = |token: &&str| !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
    let token = Some(text.trim()).filter(is_token).ok_or_else(expected)?;
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(io::Error::other)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Whether a text is the name of a tenant.
#[must_use]
pub fn is_tenant(name: &str) -> bool {
    (1..=TENANT_BYTES_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

/// The value of a header, if the request has it.
fn only(headers: &HeaderMap, name: HeaderName) -> Result<Option<&HeaderValue>, AccessError> {
    let mut values = headers.get_all(&name).iter();
    let value = values.next();
    if values.next().is_some() { Err(AccessError::Repeated(name)) } else { Ok(value) }
}

fn is_same(token: &Token, sent: &[u8]) -> bool {
    let token = token.secret.as_bytes();
    let difference = token.iter().zip(sent).fold(0, |difference, (a, b)| difference | (a ^ b));
    token.len() == sent.len() && difference == 0
}

fn tenant_of(value: &HeaderValue) -> Result<&str, AccessError> {
    value.to_str().ok().filter(|name| is_tenant(name)).ok_or(AccessError::BadTenant)
}

#[cfg(test)]
mod tests {
    use super::{AccessError, TENANT, Tokens};
    use http::header::{AUTHORIZATION, HeaderMap};

    fn headers(token: Option<&str>, tenant: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            headers.insert(AUTHORIZATION, token.parse().expect("a value"));
        }
        if let Some(tenant) = tenant {
            headers.insert(TENANT, tenant.parse().expect("a value"));
        }
        headers
    }

    #[test]
    fn comments_and_empty_lines_of_a_file_are_ignored() {
        let text = "\u{feff}# senders of the shop\r\n\r\nsecret\r\n  # c\n other#  shop \n#last";
        let tokens = Tokens::parse(text).expect("two tokens");
        let tenants: Vec<_> = tokens.0.iter().map(|token| token.tenant.as_deref()).collect();
        assert_eq!(tenants, [None, Some("shop")]);
        for text in ["", "\n  \n", "# c\n", "#\n\n#"] {
            let error = Tokens::parse(text).expect_err("no token");
            assert!(error.contains("only comments and empty lines"), "{error}");
        }
        for text in ["a\nsecret # shop", "a\ngröße", "a\nse\u{7}cret", "a\nsecret shop b", "a\ns ö"]
        {
            let error = Tokens::parse(text).expect_err("no such token");
            assert!(error.starts_with("line 2: expected a token"), "{error}");
            assert!(!error.contains("cret"), "a secret is repeated: {error}");
        }
        assert!(!format!("{tokens:?}").contains("secret"));
    }

    #[test]
    fn a_token_allows_all_tenants_or_the_one_to_which_it_is_bound() {
        let tokens = Tokens::parse("all\nbound shop").expect("two tokens");
        for (token, tenant, expected) in [
            (None, None, Err(AccessError::NoToken)),
            (Some("Basic all"), None, Err(AccessError::NoToken)),
            (Some("Bearer al"), None, Err(AccessError::UnknownToken)),
            (Some("Bearer alla"), None, Err(AccessError::UnknownToken)),
            (Some("Bearer all"), None, Ok(None)),
            (Some("bearer  all "), Some("cart"), Ok(Some("cart"))),
            (Some("Bearer bound"), None, Ok(Some("shop"))),
            (Some("Bearer bound"), Some("shop"), Ok(Some("shop"))),
            (Some("Bearer bound"), Some("cart"), Err(AccessError::OtherTenant("shop".to_owned()))),
            (Some("Bearer all"), Some(""), Err(AccessError::BadTenant)),
        ] {
            let headers = headers(token, tenant);
            assert_eq!(tokens.check(&headers), expected, "{token:?} {tenant:?}");
        }
    }

    #[test]
    fn without_tokens_every_request_is_allowed() {
        let tokens = Tokens::default();
        assert_eq!(tokens.check(&headers(None, None)), Ok(None));
        assert_eq!(tokens.check(&headers(Some("Bearer x"), Some("shop"))), Ok(Some("shop")));
        assert_eq!(
            tokens.check(&headers(None, Some(&"x".repeat(256)))),
            Err(AccessError::BadTenant)
        );
    }
}

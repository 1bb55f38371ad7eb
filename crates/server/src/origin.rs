//! Origins of web pages.

use curtail_config::{Scalar, ScalarError, Value};

/// An origin in the form that browsers send: scheme, host, and any port except the scheme's default; or `*` for all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebOrigin(String);

impl WebOrigin {
    fn parse(text: &str) -> Option<Self> {
        let is_host = |host: &str| {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_graphic() && !b"/?#".contains(&byte))
        };
        let text = text.to_ascii_lowercase();
        let is_origin = text
            .split_once("://")
            .is_some_and(|(scheme, host)| !scheme.is_empty() && is_host(host));
        // Browsers leave out the default port, so such an origin would match no page.
        let has_default_port = (text.starts_with("https:") && text.ends_with(":443"))
            || (text.starts_with("http:") && text.ends_with(":80"));
        (is_origin && !has_default_port || text == "*").then_some(Self(text))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for WebOrigin {
    const NOUN: &'static str = "an origin";
    const DETAIL: &'static str = "such as https://shop.example or http://localhost:3000, or *";

    fn read(scalar: &Scalar) -> Result<Self, ScalarError> {
        scalar.text().and_then(Self::parse).ok_or(ScalarError::Kind)
    }

    fn write(&self) -> String {
        self.0.clone()
    }

    fn placeholder() -> Self {
        Self("*".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::WebOrigin;

    #[test]
    fn an_origin_has_the_form_that_browsers_send() {
        let parse = |text| WebOrigin::parse(text).map(|origin| origin.0);
        for text in ["*", "https://shop.example", "http://localhost:3000", "app://x"] {
            assert_eq!(parse(text).as_deref(), Some(text));
        }
        assert_eq!(parse("HTTPS://Shop.Example").as_deref(), Some("https://shop.example"));
        for text in ["", "shop.example", "https://", "https://shop.example/", "https://a b", "**"] {
            assert_eq!(parse(text), None, "{text}");
        }
        for text in ["https://a:443", "http://a:80", "https://a?x", "https://a#x"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}

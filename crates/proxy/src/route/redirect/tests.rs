use super::*;
use curtail_http::head::Known;
use curtail_http::head::{Fields, Target};
use http::{Method, Version};

/// A request as a route gets it: `scheme://host` and a path.
fn request(scheme: &str, host: Option<&str>, path: &str) -> RequestHead {
    let mut fields = Fields::default();
    fields.push(Known::ForwardedProto, scheme.as_bytes());
    if let Some(host) = host {
        fields.push(Known::Host, host.as_bytes());
    }
    let (method, target) = (Method::GET, Target::own(path));
    RequestHead { method, target, authority: None, version: Version::HTTP_11, fields }
}

fn redirect(scheme: Option<Scheme>, host: Option<&str>, prefix: Option<&str>) -> Redirect {
    let [host, prefix] = [host, prefix].map(|text| text.map(str::to_owned));
    let status = StatusCode::PERMANENT_REDIRECT;
    Redirect::new(&RedirectConfig { status, scheme, host, prefix }, "/old")
}

#[test]
fn a_request_that_is_not_at_the_target_is_redirected() {
    let https = || redirect(Some(Scheme::Https), None, None);
    let www = |port: &str| redirect(None, Some(&format!("www.a.test{port}")), None);
    let new = || redirect(None, None, Some("/new"));
    for (redirect, scheme, host, path, expected) in [
        (https(), "http", "a.test", "/old?q=1", Some("https://a.test/old?q=1")),
        (https(), "http", "a.test:8080", "/old", Some("https://a.test/old")),
        (https(), "http", "[::1]:8080", "/old", Some("https://[::1]/old")),
        (https(), "http", "[::1]", "/old", Some("https://[::1]/old")),
        (https(), "https", "a.test:8443", "/old", None),
        // The first proxy of a chain received the request under TLS.
        (https(), "https, http", "a.test", "/old", None),
        (https(), "HTTPS", "a.test", "/old", None),
        (www(""), "http", "a.test:80", "/old/x", Some("http://www.a.test/old/x")),
        (www(""), "http", "WWW.a.test", "/old/x", None),
        (www(""), "http", "www.a.test:8080", "/old/x", None),
        (www(":8080"), "http", "www.a.test:8080", "/old/x", None),
        (www(":8080"), "http", "www.a.test", "/old/x", Some("http://www.a.test:8080/old/x")),
        (new(), "https", "a.test:8443", "/old/x?q", Some("https://a.test:8443/new/x?q")),
        (new(), "http", "a.test", "/old", Some("http://a.test/new")),
    ] {
        let location = redirect.location(&request(scheme, Some(host), path));
        assert_eq!(
            location,
            Ok(expected.map(str::to_owned)),
            "{redirect:?}: {scheme}://{host}{path}"
        );
    }
}

#[test]
fn a_redirect_below_its_own_prefix_ends() {
    let at_old = || redirect(None, None, Some("/old/app"));
    let config = RedirectConfig {
        status: StatusCode::FOUND,
        scheme: None,
        host: Some("www.a.test".to_owned()),
        prefix: Some("/app/".to_owned()),
    };
    let at_root = || Redirect::new(&config, "/");
    for (redirect, host, path, expected) in [
        (at_old(), "a.test", "/old/x", Some("http://a.test/old/app/x")),
        (at_old(), "a.test", "/old/app/x", None),
        (at_old(), "a.test", "/old/%61pp", None),
        (at_old(), "a.test", "/old/apple", Some("http://a.test/old/app/apple")),
        (at_root(), "a.test", "/x", Some("http://www.a.test/app/x")),
        (at_root(), "a.test", "/app/x", Some("http://www.a.test/app/x")),
        (at_root(), "www.a.test", "/", Some("http://www.a.test/app/")),
        (at_root(), "www.a.test", "/app", None),
    ] {
        let location = redirect.location(&request("http", Some(host), path));
        assert_eq!(location, Ok(expected.map(str::to_owned)), "{host}{path}");
    }
    // Some servers read this path as one outside of the new prefix.
    let outside = at_old().location(&request("http", Some("a.test"), "/old/app/../x"));
    assert_ne!(outside, Ok(None));
}

#[test]
fn a_client_cannot_choose_the_host_of_the_target() {
    let to_root = redirect(None, None, Some("/"));
    let location = to_root.location(&request("http", Some("a.test"), "/old//evil.test/x"));
    assert_eq!(location, Ok(Some("http://a.test//evil.test/x".to_owned())));
    assert_eq!(to_root.location(&request("http", None, "/old")), Err(NO_HOST));
    let outside = to_root.location(&request("http", Some("a.test"), "/x/../old"));
    assert_eq!(outside.map_err(|fault| fault.error), Err("ambiguous_path"));
}

#[test]
fn a_target_is_a_valid_uri() {
    let mut location = String::new();
    push_as_uri(&mut location, "/a<b>\"c`\\\u{e9}%20?x={1}|^");
    assert_eq!(location, "/a%3Cb%3E%22c%60%5C%C3%A9%20?x=%7B1%7D%7C%5E");
}

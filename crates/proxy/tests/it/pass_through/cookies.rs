//! Cookies, which an HTTP/2 client may split over several fields (RFC 9113, section 8.2.3).

use super::{Chain, PAIRS};
use crate::client::Client;
use crate::deadline::run;
use crate::proxy::Setup;
use crate::raw_replica::RawReplica;
use crate::replica::ok;
use http::{HeaderValue, Version};

#[test]
fn split_cookies_arrive_in_one_field() {
    run(async {
        for pair in PAIRS.into_iter().filter(|(before, _)| *before == Version::HTTP_2) {
            for (sent, want) in [
                (&["a=1", "b=2; c=3", "d="][..], "a=1; b=2; c=3; d="),
                (&["a=1"], "a=1"),
                (&["", "a=1"], "; a=1"),
            ] {
                let mut chain = Chain::start(pair, |_| std::future::ready(ok("here"))).await;
                let mut request = chain.client.request("GET", "/");
                for cookie in sent {
                    request.headers_mut().append("cookie", HeaderValue::from_static(cookie));
                }
                request.headers_mut().insert("x-after", HeaderValue::from_static("1"));
                chain.client.send(request).await;
                let seen = chain.replica.record().only();
                assert_eq!(seen.get("cookie"), Some(want), "{sent:?}");
                assert_eq!(seen.get("x-after"), Some("1"));
            }
        }
    });
}

#[test]
fn split_cookies_are_one_line_of_an_http_1_request() {
    run(async {
        let replica = RawReplica::responding("here").await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
        let mut request = client.request("GET", "/");
        for cookie in ["a=1", "b=2; c=3", "d=\"x, y\""] {
            request.headers_mut().append("cookie", HeaderValue::from_static(cookie));
        }
        assert_eq!(client.send(request).await.body, "here");
        let seen = replica.record().requests()[0].head.clone();
        let cookies: Vec<_> = seen.fields.iter().filter(|(name, _)| name == "cookie").collect();
        assert_eq!(cookies, [&("cookie".to_owned(), "a=1; b=2; c=3; d=\"x, y\"".to_owned())]);
    });
}

#[test]
fn set_cookie_fields_stay_separate() {
    run(async {
        for pair in PAIRS {
            let mut chain = Chain::start(pair, |_| {
                let mut response = ok("here");
                for cookie in ["a=1; path=/", "b=2; expires=Thu, 01 Jan 2026 00:00:00 GMT"] {
                    response.headers_mut().append("set-cookie", HeaderValue::from_static(cookie));
                }
                std::future::ready(response)
            })
            .await;
            let response = chain.client.get("/").await;
            assert_eq!(response.headers.get_all("set-cookie").iter().count(), 2, "{pair:?}");
        }
    });
}

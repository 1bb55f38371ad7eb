//! Cookies, which an HTTP/2 client may split over several fields (RFC 9113, section 8.2.3).

use super::{Chain, PAIRS};
use crate::deadline::run;
use crate::replica::ok;
use http::HeaderValue;

#[test]
fn split_cookies_arrive_in_one_field() {
    run(async {
        for pair in PAIRS.into_iter().filter(|(before, _)| *before == http::Version::HTTP_2) {
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

//! What is news, and what is asked.

use super::*;
use crate::query::request::DEFAULT_SERVER;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::mpsc;

fn found(service: &str, subject: &str) -> Found {
    let finding = json!({
        "cause": "pause", "subject": subject, "text": format!("{subject} explains 40 %"),
        "examples": ["4bf92f3577b34da6a3ce929d0e0e4736"],
    });
    Found { service: service.to_owned(), question: "tail", finding }
}

fn explained() -> Explained {
    BTreeSet::from([("shop".to_owned(), "tail")])
}

/// The news of rounds of ten seconds, each with these subjects at the service `shop`.
fn news_of(rounds: &[&[&str]]) -> Vec<(usize, State, String, Range<i64>)> {
    let mut findings = Findings::default();
    let mut all = Vec::new();
    for (nth, subjects) in rounds.iter().enumerate() {
        let from = i64::try_from(nth).expect("few") * 10;
        let of_round = subjects.iter().map(|subject| found("shop", subject)).collect();
        let news = findings.round(&(from..from + 10), &explained(), of_round);
        let of = |news: News| {
            let subject = news.of.finding["subject"].as_str().expect("a text").to_owned();
            (nth, news.state, subject, news.times)
        };
        all.extend(news.into_iter().map(of));
    }
    all
}

#[test]
fn a_finding_of_two_rounds_is_news_once_until_two_rounds_do_not_have_it() {
    let a: &[&str] = &["a"];
    let news = news_of(&[&[], a, a, a, &[], a, &[], &[], &[]]);
    let new = (2, State::New, "a".to_owned(), 10..30);
    let over = (7, State::Over, "a".to_owned(), 10..60);
    assert_eq!(news, [new, over]);
}

#[test]
fn a_finding_of_one_round_is_no_news() {
    assert_eq!(news_of(&[&["a"], &["b"], &["a"], &["b"], &[]]), []);
}

#[test]
fn the_cut_of_a_number_may_differ() {
    let news = news_of(&[&["size > 10", "size > 20"], &["size > 12"]]);
    assert_eq!(news, [(1, State::New, "size > 12".to_owned(), 0..20)]);
}

#[test]
fn after_twelve_rounds_without_an_explanation_a_finding_is_unknown() {
    let mut findings = Findings::default();
    for nth in 0..2 {
        findings.round(&(nth..nth + 1), &explained(), vec![found("shop", "a")]);
    }
    for nth in 2..13 {
        assert_eq!(findings.round(&(nth..nth + 1), &BTreeSet::new(), Vec::new()), []);
    }
    let unknown = findings.round(&(13..14), &BTreeSet::new(), Vec::new());
    assert_eq!(unknown.iter().map(|news| news.state).collect::<Vec<_>>(), [State::Unknown]);
    assert!(findings.known.is_empty());
}

/// A server with four services: it rejects questions about `bad`, and has no or too few traces of `idle` and `rare`. Returns its URL, and the first line of each
/// request.
fn server() -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let (send, receive) = mpsc::sync_channel(16);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let (mut first, mut line) = (String::new(), String::new());
            stream.read_line(&mut first).expect("a request");
            while stream.read_line(&mut line).is_ok() && line != "\r\n" {
                line.clear();
            }
            let (status, body) = if first.contains("/services") {
                ("200 OK", r#"{"data":["bad","good","idle","rare"]}"#)
            } else if first.contains("service=bad") {
                ("422 Unprocessable Entity", "too large")
            } else if first.contains("service=idle") {
                ("404 Not Found", "no trace began at this service")
            } else if first.contains("service=rare") {
                ("200 OK", r#"{"findings":[],"why":"too few traces for a tail"}"#)
            } else {
                ("200 OK", r#"{"findings":[{"cause":"pause","subject":"a"}]}"#)
            };
            // The test has ended when nobody receives.
            send.send(first).ok();
            let length = body.len();
            write!(
                stream.get_mut(),
                "HTTP/1.1 {status}\r\ncurtail-version: 0.1.0\r\ncontent-length: {length}\r\n\r\n{body}"
            )
            .expect("it reads");
        }
    });
    (url, receive)
}

#[test]
fn a_rejected_question_does_not_end_the_round() {
    let (server, requests) = server();
    let mut plan = Plan {
        every_ns: SECOND_NS,
        server,
        access: ServerAccessArgs::default(),
        service: None,
        period: "10m".to_owned(),
        seed: 7,
        webhook: None,
        keep: None,
        format: Format::Table,
    };
    let times = 100 * SECOND_NS..101 * SECOND_NS;
    let (explained, found) = ask(&plan, &times).expect("one service has responses");
    let good = ["tail", "change"].map(|question| ("good".to_owned(), question));
    assert_eq!(explained, BTreeSet::from(good));
    assert_eq!(found.len(), 2);
    let requests: Vec<String> = requests.try_iter().collect();
    assert!(requests[1..].iter().all(|of| of.contains("period=10m&seed=7")), "{requests:?}");
    plan.service = Some("bad".to_owned());
    let error = ask(&plan, &times).expect_err("every question is rejected");
    assert_eq!(format!("{error:#}"), "bad (tail): too large");
}

#[test]
fn news_are_lines_of_80_columns_or_json() {
    let times = 1_764_200_000_000_000_000..1_764_200_300_000_000_000;
    let of = found("shop", "shard-0: GET / of a service with a long name");
    let new = News { state: State::New, of: of.clone(), times: times.clone() };
    expect_test::expect![[r"
        shop: since 2025-11-26 23:33:20 UTC: shard-0: GET / of a service with a long
            name explains 40 %
          curtail query trace 4bf92f3577b34da6a3ce929d0e0e4736
    "]]
    .assert_eq(&new.written(Format::Table, DEFAULT_SERVER));
    let elsewhere = new.written(Format::Table, "http://shop:3200");
    let command =
        "  curtail query trace 4bf92f3577b34da6a3ce929d0e0e4736 --server http://shop:3200\n";
    assert!(elsewhere.ends_with(command), "{elsewhere}");
    let over = News { state: State::Over, of, times };
    expect_test::expect![[r"
        shop: over since 2025-11-26 23:38:20 UTC, began at 2025-11-26 23:33:20 UTC:
            shard-0: GET / of a service with a long name
    "]]
    .assert_eq(&over.written(Format::Table, DEFAULT_SERVER));
    let json = over.json();
    assert_eq!((&json["schema"], &json["state"]), (&json!(SCHEMA), &json!("over")));
    assert_eq!(rfc3339(1_764_200_000_000_000_000), "2025-11-26T23:33:20Z");
}

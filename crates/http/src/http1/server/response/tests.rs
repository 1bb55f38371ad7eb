use super::*;
use http::HeaderMap;

const TERMS: Terms =
    Terms { is_head: false, version: Version::HTTP_11, takes_trailers: false, keeps: true };
const OF_HEAD: Terms = Terms { is_head: true, ..TERMS };
const OLD: Terms = Terms { version: Version::HTTP_10, ..TERMS };

fn head(status: u16, fields: &[(&'static str, &'static str)]) -> ResponseHead {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(*name, value.parse().expect("a value"));
    }
    let mut head = ResponseHead::new(StatusCode::from_u16(status).expect("a status"));
    head.fields = (&map).into();
    head
}

fn written(head: &ResponseHead, length: Option<Length>, terms: Terms) -> String {
    let mut buffer = Vec::new();
    write_head(&mut buffer, head, length, terms, &Clock::start());
    String::from_utf8(buffer).expect("text")
}

#[test]
fn a_body_is_framed_as_its_client_understands() {
    let framing_of = |status, hint: &SizeHint, terms| {
        framing(StatusCode::from_u16(status).expect("a status"), hint, terms)
    };
    let (known, unknown) = (SizeHint::with_exact(7), SizeHint::default());
    assert_eq!(framing_of(200, &known, TERMS), Some(Length::Known(7)));
    assert_eq!(framing_of(404, &SizeHint::with_exact(0), TERMS), Some(Length::Known(0)));
    assert_eq!(framing_of(200, &unknown, TERMS), Some(Length::Chunked));
    assert_eq!(framing_of(200, &known, OLD), Some(Length::Known(7)));
    assert_eq!(framing_of(200, &unknown, OLD), Some(Length::UntilClosed));
    for status in [101, 204, 304] {
        assert_eq!(framing_of(status, &unknown, TERMS), None, "{status} has no body");
    }
    assert_eq!(framing_of(200, &unknown, OF_HEAD), None);
}

#[test]
fn framing_and_the_connection_are_ours_to_say() {
    let response = head(
        200,
        &[("a", "1"), ("content-length", "3"), ("transfer-encoding", "gzip"), ("date", "now")],
    );
    let rest = "a: 1\r\ndate: now\r\n";
    for (length, terms, want) in [
        (Length::Known(7), TERMS, format!("HTTP/1.1 200 OK\r\n{rest}content-length: 7\r\n\r\n")),
        (
            Length::Chunked,
            TERMS,
            format!("HTTP/1.1 200 OK\r\n{rest}transfer-encoding: chunked\r\n\r\n"),
        ),
        (
            Length::Known(7),
            Terms { keeps: false, ..TERMS },
            format!("HTTP/1.1 200 OK\r\n{rest}content-length: 7\r\nconnection: close\r\n\r\n"),
        ),
        (
            Length::Known(7),
            OLD,
            format!("HTTP/1.0 200 OK\r\n{rest}content-length: 7\r\nconnection: keep-alive\r\n\r\n"),
        ),
        (
            Length::UntilClosed,
            Terms { keeps: false, ..OLD },
            format!("HTTP/1.0 200 OK\r\n{rest}\r\n"),
        ),
    ] {
        assert_eq!(written(&response, Some(length), terms), want);
    }
}

#[test]
fn a_response_without_a_body_says_how_long_it_would_be_where_that_means_something() {
    let length = "content-length: 3\r\n";
    for (status, terms, want) in [
        (200, OF_HEAD, format!("HTTP/1.1 200 OK\r\n{length}date: now\r\n\r\n")),
        (304, TERMS, format!("HTTP/1.1 304 Not Modified\r\n{length}date: now\r\n\r\n")),
    ] {
        let response = head(status, &[("content-length", "3"), ("date", "now")]);
        assert_eq!(written(&response, None, terms), want);
    }
}

#[test]
fn a_connection_that_changes_its_protocol_keeps_what_says_so() {
    let response = head(101, &[("connection", "upgrade"), ("upgrade", "x"), ("date", "now")]);
    let want = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\ndate: now\r\n\r\n";
    assert_eq!(written(&response, None, TERMS), want);
}

#[test]
fn a_response_is_dated_when_its_server_did_not() {
    let text = written(&head(200, &[]), Some(Length::Known(0)), TERMS);
    let date = text.split("\r\n").find_map(|line| line.strip_prefix("date: ")).expect("a date");
    let date = httpdate::parse_http_date(date).expect("a date of HTTP");
    let age = std::time::SystemTime::now().duration_since(date).expect("it has been");
    assert!(age < Duration::from_secs(60), "{age:?}");
}

#[test]
fn a_status_without_a_name_has_none() {
    let response = head(599, &[("date", "now")]);
    let text = written(&response, Some(Length::Known(0)), TERMS);
    assert!(text.starts_with("HTTP/1.1 599 \r\n"), "{text:?}");
}

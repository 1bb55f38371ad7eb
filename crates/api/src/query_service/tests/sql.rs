//! SQL, with a shell in the place of its program: it executes the query.

use super::*;
use http::header::ACCEPT;

fn service() -> TestService {
    TestService::with_traces(&all()[..2])
}

fn post(query: &str) -> Request<String> {
    Request::post("/api/v1/sql").body(query.to_owned()).expect("a request")
}

/// It never ends by itself.
const ENDLESS: &str = "kill -STOP $$";

#[test]
fn rows_are_an_array_or_csv() {
    let service = service();
    for (query, response) in [
        (r#"printf '{"a":1}\n{"a":"x\\ny, {}"}\n'"#, "[{\"a\":1},{\"a\":\"x\\ny, {}\"}]\n"),
        (r#"printf '{"a":1}\n'"#, "[{\"a\":1}]\n"),
        (":", "[]\n"),
    ] {
        assert_eq!(run(service.send(post(query))), (StatusCode::OK, response.to_owned()));
    }
    let mut request = post(r"printf 'a,b\r\n1,%s\r\n' $6");
    request.headers_mut().insert(ACCEPT, HeaderValue::from_static("text/csv, */*;q=0.1"));
    let mut lines = post(r#"printf '{"a":1}\n{"a":2}\n'"#);
    lines.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/x-ndjson"));
    let lines = run(service.send(lines));
    assert_eq!(lines, (StatusCode::OK, "{\"a\":1}\n{\"a\":2}\n".to_owned()));
    run(async {
        let (head, body) = service.0.respond(request).await.into_parts();
        assert_eq!(head.headers[CONTENT_TYPE], "text/csv; charset=utf-8");
        let body = http_body_util::BodyExt::collect(body).await.expect("it is whole");
        assert_eq!(body.to_bytes(), "a,b\r\n1,--rows\r\n");
    });
}

#[test]
fn a_parameter_is_not_ignored() {
    let mut request = post(":");
    *request.uri_mut() = "/api/v1/sql?format=csv".parse().expect("a target");
    let (status, body) = run(service().send(request));
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(body.contains("this path has no parameters"), "{body}");
    let (status, _) = service().get("/api/v1/traces/1000/logs?limit=1");
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[test]
fn the_program_gets_the_tenant_and_the_tables() {
    let service = service();
    let tenant_argument = |tenant: Option<&'static str>| {
        let mut request = post(r#"for each; do printf '"%s"\n' "$each"; done"#);
        if let Some(tenant) = tenant {
            request.headers_mut().insert("x-scope-orgid", HeaderValue::from_static(tenant));
        }
        let (status, body) = run(service.send(request));
        assert_eq!(status, StatusCode::OK, "{body}");
        serde_json::from_str::<Vec<String>>(&body).expect("an array")
    };
    let expected = ["--tables", "the tables", "--tenant=anonymous", "--format", "json"];
    let default_arguments = tenant_argument(None);
    assert_eq!(default_arguments[..5], expected);
    assert_eq!(default_arguments.last().map(String::as_str), Some("-"));
    // One argument, whatever it looks like.
    for tenant in ["shop", "shop --tenant=other", "--tables=/", "$(echo x)"] {
        let arguments = tenant_argument(Some(tenant));
        assert_eq!(
            (arguments.len(), &arguments[2]),
            (default_arguments.len(), &format!("--tenant={tenant}"))
        );
    }
}

#[test]
fn an_error_says_whose_fault_it_is() {
    let service = service();
    for (query, status, message) in [
        (
            "echo there is no column a >&2; exit 2",
            400,
            "{\"error\":{\"message\":\"there is no column a\",\"status\":400}}",
        ),
        ("echo a file is gone >&2; exit 3", 500, "cannot be read: a file is gone"),
        ("echo '{}'; exit 4", 500, "failed"),
        ("echo too much >&2; kill -TERM $$", 500, "terminated"),
        ("kill -KILL $$", 500, "killed, usually because the machine ran out of memory"),
        ("kill -ABRT $$", 500, "out of memory or of stack"),
        ("exec yes '{}'", 422, "more than 16 MiB"),
        // It has heard enough, and so have we.
        ("exec yes >&2", 500, "signal 13"),
        ("exit 101", 500, "failed"),
    ] {
        let (got, body) = run(service.send(post(query)));
        assert_eq!(got.as_u16(), status, "{query}: {body:.200}");
        assert!(body.contains(message), "{query}: {body:.200}");
        assert!(body.len() < 20_000, "{query}");
    }
    // The way in which it ended is only in the log.
    let trace = "printf 'thread main panicked at x.rs:1\n   0: rust_begin_unwind\n' >&2";
    for end in ["exit 101", "kill -ABRT $$", "kill -SEGV $$", "exit 4"] {
        let (status, body) = run(service.send(post(&format!("{trace}; {end}"))));
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!body.contains("unwind") && !body.contains("x.rs"), "{end}: {body}");
        assert_eq!(body.lines().count(), 1, "{end}: {body}");
    }
    let (status, body) = service.get("/api/v1/sql");
    assert_eq!(
        (status, &*body),
        (
            StatusCode::METHOD_NOT_ALLOWED,
            "{\"error\":{\"message\":\"expected POST\",\"status\":405}}"
        )
    );
}

#[test]
fn a_query_is_as_long_as_the_program_takes_and_no_longer() {
    let service = service();
    let query = |len: usize| post(&format!(":{}", " ".repeat(len - 1)));
    let longest = run(service.send(query(curtail_store::SQL_BYTES_MAX)));
    assert_eq!(longest, (StatusCode::OK, "[]\n".to_owned()));
    let (status, body) = run(service.send(query(curtail_store::SQL_BYTES_MAX + 1)));
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(body.contains("the query is longer than 16 KiB (16384 bytes), the maximum"), "{body}");
}

#[test]
fn what_takes_too_long_is_given_up() {
    let mut service = service();
    service.0.patience = Duration::ZERO;
    for _ in 0..3 {
        // Each gives its turn back.
        let (status, body) = run(service.send(post(ENDLESS)));
        assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{body}");
    }
}

#[test]
fn two_run_at_once_and_no_more() {
    let service = service();
    run(async {
        let (status, body) = tokio::select! {
            biased;
            _ = service.send(post(ENDLESS)) => unreachable!("it does not end"),
            _ = service.send(post(ENDLESS)) => unreachable!("it does not end"),
            third = service.send(post(":")) => third,
        };
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{body}");
        // Nobody waits for those any more.
        assert_eq!(service.send(post(":")).await.0, StatusCode::OK);
    });
}

#[test]
fn tables_that_the_program_cannot_read_are_not_queried() {
    let mut service = service();
    service.0.sql = SqlRunner::new(by_stand_in(None));
    let (status, body) = run(service.send(post(":")));
    assert_eq!(status, StatusCode::NOT_IMPLEMENTED);
    assert!(body.contains("object store"), "{body}");
}

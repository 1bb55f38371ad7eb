use super::*;
use http::Request;

fn read(head: request::Builder, tokens: &[&str]) -> Result<Asked, Refusal> {
    let (parts, ()) = head.body(()).expect("a request").into_parts();
    asked(&parts, &tokens.iter().map(|token| (*token).to_owned()).collect::<Vec<_>>())
}

fn post(path: &str) -> request::Builder {
    Request::post(path).header("content-type", "application/x-protobuf")
}

#[test]
fn what_a_request_is_of_is_read() {
    let of = |head| read(head, &[]).expect("it is one");
    let logs = of(Request::post("/v1/logs")
        .header("content-type", "Application/JSON; charset=utf-8")
        .header("content-encoding", "gzip")
        .header("x-scope-orgid", "shop"));
    let want = Asked {
        signal: Signal::Logs,
        form: Form::Json,
        encoding: Encoding::Gzip,
        tenant: "shop".to_owned(),
    };
    assert_eq!(logs, want);
    let service = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
    let metrics = of(Request::post(service)
        .header("content-type", "application/grpc+proto")
        .header("content-encoding", "ignored")
        .header("grpc-encoding", "zstd"));
    let want = Asked {
        signal: Signal::Metrics,
        form: Form::Grpc,
        encoding: Encoding::Zstd,
        tenant: NOBODY.to_owned(),
    };
    assert_eq!(metrics, want);
}

#[test]
fn what_is_not_received_is_refused_with_what_was_expected() {
    let grpc = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    for (head, kind, said) in [
        (post("/v1/profiles"), Kind::NotFound, "/v1/traces, /v1/logs or /v1/metrics"),
        (Request::get("/v1/traces"), Kind::Method, "expected POST"),
        (Request::post("/v1/traces"), Kind::Unsupported, "content-type is none"),
        (
            Request::post("/v1/traces").header("content-type", "application/grpc"),
            Kind::Unsupported,
            "expected application/x-protobuf or application/json",
        ),
        (post(grpc), Kind::Unsupported, "expected application/grpc"),
        (
            post("/v1/traces").header("content-encoding", "br"),
            Kind::Unsupported,
            "identity, gzip, zstd, deflate",
        ),
        (post("/v1/traces").header("x-scope-orgid", ""), Kind::Malformed, "x-scope-orgid"),
        (post("/v1/traces").header("x-scope-orgid", "a".repeat(256)), Kind::Malformed, "1 to 255"),
    ] {
        let refusal = read(head, &[]).expect_err(said);
        assert_eq!(refusal.kind, kind, "{refusal:?}");
        assert!(refusal.message.contains(said), "{refusal:?}");
    }
}

#[test]
fn a_token_must_be_known_where_there_are_any() {
    let tokens = ["secret", "other"];
    for (shown, is_known) in [
        (Some("Bearer secret"), true),
        (Some("bearer  other"), true),
        (Some("Bearer secre"), false),
        (Some("Bearer secrets"), false),
        (Some("Bearer "), false),
        (Some("Basic secret"), false),
        (Some("secret"), false),
        (None, false),
    ] {
        let mut head = post("/v1/traces");
        if let Some(shown) = shown {
            head = head.header("authorization", shown);
        }
        let read = read(head, &tokens);
        assert_eq!(read.is_ok(), is_known, "{shown:?}");
        if let Err(refusal) = read {
            assert_eq!(refusal.kind, Kind::Unauthenticated);
            assert!(!refusal.message.contains("secre"), "{refusal:?}");
        }
    }
}

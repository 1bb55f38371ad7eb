use super::*;
use curtail_http::access::Tokens;
use http::Request;

fn read(head: request::Builder, tokens: Tokens) -> Result<Asked, Refusal> {
    let (parts, ()) = head.body(()).expect("a request").into_parts();
    asked(&parts, &Access::new(tokens))
}

fn post(path: &str) -> request::Builder {
    Request::post(path).header("content-type", "application/x-protobuf")
}

#[test]
fn what_a_request_is_of_is_read() {
    let of = |head| read(head, Tokens::default()).expect("it is one");
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
        let refusal = read(head, Tokens::default()).expect_err(said);
        assert_eq!(refusal.kind, kind, "{refusal:?}");
        assert!(refusal.message.contains(said), "{refusal:?}");
    }
}

#[test]
fn a_token_must_be_known_and_gives_its_tenant() {
    let tokens = || Tokens::parse("secret\nbound shop").expect("two tokens");
    for (token, tenant, expected) in [
        (Some("Bearer secret"), "cart", Ok("cart")),
        (Some("Bearer bound"), "shop", Ok("shop")),
        (Some("Bearer bound"), "cart", Err(Kind::Forbidden)),
        (Some("Bearer secre"), "cart", Err(Kind::Unauthenticated)),
        (None, "cart", Err(Kind::Unauthenticated)),
    ] {
        let mut head = post("/v1/traces").header("x-scope-orgid", tenant);
        if let Some(token) = token {
            head = head.header("authorization", token);
        }
        match read(head, tokens()) {
            Ok(asked) => assert_eq!(Ok(&*asked.tenant), expected),
            Err(refusal) => {
                assert_eq!(Err(refusal.kind), expected, "{token:?} {tenant}");
                assert!(!refusal.message.contains("secre"), "{refusal:?}");
            }
        }
    }
}

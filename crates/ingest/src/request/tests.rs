use super::*;
use curtail_http::access::Tokens;
use http::Request;

fn read(head: request::Builder, tokens: Tokens) -> Result<ExportRequest, Rejection> {
    let (parts, ()) = head.body(()).expect("a request").into_parts();
    parse(&parts, &Access::new(tokens))
}

fn post(path: &str) -> request::Builder {
    Request::post(path).header("content-type", "application/x-protobuf")
}

#[test]
fn signal_format_encoding_and_tenant_are_read() {
    let read_head = |head| read(head, Tokens::default()).expect("it is one");
    let logs = read_head(
        Request::post("/v1/logs")
            .header("content-type", "Application/JSON; charset=utf-8")
            .header("content-encoding", "gzip")
            .header("x-scope-orgid", "shop"),
    );
    let want = ExportRequest {
        signal: Signal::Logs,
        form: WireFormat::Json,
        encoding: Encoding::Gzip,
        tenant: "shop".to_owned(),
    };
    assert_eq!(logs, want);
    let service = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
    let metrics = read_head(
        Request::post(service)
            .header("content-type", "application/grpc+proto")
            .header("content-encoding", "ignored")
            .header("grpc-encoding", "zstd"),
    );
    let want = ExportRequest {
        signal: Signal::Metrics,
        form: WireFormat::Grpc,
        encoding: Encoding::Zstd,
        tenant: DEFAULT_TENANT.to_owned(),
    };
    assert_eq!(metrics, want);
}

#[test]
fn unknown_requests_are_rejected_with_the_expected_input() {
    let grpc = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
    for (head, reason, message) in [
        (post("/v1/profiles"), RejectReason::NotFound, "/v1/traces, /v1/logs or /v1/metrics"),
        (Request::get("/v1/traces"), RejectReason::Method, "expected POST"),
        (Request::post("/v1/traces"), RejectReason::Unsupported, "content-type is none"),
        (
            Request::post("/v1/traces").header("content-type", "application/grpc"),
            RejectReason::Unsupported,
            "expected application/x-protobuf or application/json",
        ),
        (post(grpc), RejectReason::Unsupported, "expected application/grpc"),
        (
            post("/v1/traces").header("content-encoding", "br"),
            RejectReason::Unsupported,
            "identity, gzip, zstd, deflate",
        ),
        (post("/v1/traces").header("x-scope-orgid", ""), RejectReason::Malformed, "x-scope-orgid"),
        (
            post("/v1/traces").header("x-scope-orgid", "a".repeat(256)),
            RejectReason::Malformed,
            "1 to 255",
        ),
    ] {
        let rejection = read(head, Tokens::default()).expect_err(message);
        assert_eq!(rejection.reason, reason, "{rejection:?}");
        assert!(rejection.message.contains(message), "{rejection:?}");
    }
}

#[test]
fn a_token_must_be_known_and_gives_its_tenant() {
    let tokens = || Tokens::parse("secret\nbound shop").expect("two tokens");
    for (token, tenant, expected) in [
        (Some("Bearer secret"), "cart", Ok("cart")),
        (Some("Bearer bound"), "shop", Ok("shop")),
        (Some("Bearer bound"), "cart", Err(RejectReason::Forbidden)),
        (Some("Bearer secre"), "cart", Err(RejectReason::Unauthenticated)),
        (None, "cart", Err(RejectReason::Unauthenticated)),
    ] {
        let mut head = post("/v1/traces").header("x-scope-orgid", tenant);
        if let Some(token) = token {
            head = head.header("authorization", token);
        }
        match read(head, tokens()) {
            Ok(request) => assert_eq!(Ok(&*request.tenant), expected),
            Err(rejection) => {
                assert_eq!(Err(rejection.reason), expected, "{token:?} {tenant}");
                assert!(!rejection.message.contains("secre"), "{rejection:?}");
            }
        }
    }
}

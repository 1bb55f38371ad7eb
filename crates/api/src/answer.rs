//! From a request to its answer.

use bytes::Bytes;
use curtail_otlp::{Signal, json};
use curtail_store::tree::WithId;
use curtail_store::{NOBODY, SpanRows, Store};
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;

/// Says whose traces are asked for.
const TENANT: &str = "x-scope-orgid";

/// Says how many runs may have more, and cannot be read.
const UNREAD: &str = "curtail-unread";

type Answer = Response<Full<Bytes>>;

/// How a trace is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `Trace`, whose only field is that of OTLP.
    First,
    /// `TraceByIDResponse`, whose first field is that.
    Second,
}

pub(crate) async fn answer<B>(store: &Store, request: &Request<B>) -> Answer {
    let path = request.uri().path();
    if request.method() != Method::GET {
        return said(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered here");
    }
    match path {
        "/ready" => return said(StatusCode::OK, "ready"),
        "/api/echo" => return said(StatusCode::OK, "echo"),
        _ => {}
    }
    let forms = [("/api/traces/", Form::First), ("/api/v2/traces/", Form::Second)];
    for (prefix, form) in forms {
        if let Some(id) = path.strip_prefix(prefix) {
            return trace(store, id, form, request.headers()).await;
        }
    }
    said(StatusCode::NOT_FOUND, "there is nothing of this name")
}

async fn trace(store: &Store, id: &str, form: Form, head: &HeaderMap) -> Answer {
    let Some(id) = trace_id(id) else {
        return said(StatusCode::BAD_REQUEST, "expected a trace ID: 1 to 32 hexadecimal digits");
    };
    let tenant = head.get(TENANT).map_or(Ok(NOBODY), HeaderValue::to_str);
    let Ok(tenant) = tenant else {
        return said(StatusCode::BAD_REQUEST, "expected a tenant in ASCII in x-scope-orgid");
    };
    let trace = store.spans().with_id(tenant, id).await;
    for unread in &trace.unread {
        tracing::error!(path = %unread.path, error = %unread.error, "a run cannot be read");
    }
    let mut answer = if trace.is_empty() {
        said(StatusCode::NOT_FOUND, "there is no such trace")
    } else {
        written(&trace, form, head)
    };
    if !trace.unread.is_empty() {
        answer.headers_mut().insert(UNREAD, trace.unread.len().into());
    }
    answer
}

fn written(trace: &WithId<SpanRows>, form: Form, head: &HeaderMap) -> Answer {
    let Ok(batch) = trace.batch() else {
        return said(StatusCode::INTERNAL_SERVER_ERROR, "the trace is damaged");
    };
    let accepts_protobuf = head
        .get_all(ACCEPT)
        .iter()
        .any(|accepted| accepted.to_str().is_ok_and(|accepted| accepted.contains("protobuf")));
    let (body, of) = if accepts_protobuf {
        let body = match form {
            Form::First => batch,
            Form::Second => curtail_otlp::within(1, &batch),
        };
        (body, "application/protobuf")
    } else {
        let Ok(json) = json::from_protobuf(&batch, Signal::Traces) else {
            return said(StatusCode::INTERNAL_SERVER_ERROR, "the trace is damaged");
        };
        let json = match form {
            // What Tempo calls batches.
            Form::First => json.replacen("\"resourceSpans\"", "\"batches\"", 1),
            Form::Second => format!("{{\"trace\":{json}}}"),
        };
        (json.into_bytes(), "application/json")
    };
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(of));
    answer
}

/// An ID in hexadecimal digits, perhaps without leading zeros.
fn trace_id(id: &str) -> Option<u128> {
    let is_id = (1..=32).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| u128::from_str_radix(id, 16).ok()).flatten()
}

fn said(status: StatusCode, what: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(format!("{what}\n"))));
    *answer.status_mut() = status;
    let of = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, of);
    answer
}

#[cfg(test)]
mod tests {
    use super::trace_id;

    #[test]
    fn an_id_is_hexadecimal_digits() {
        assert_eq!(
            trace_id("4bf92f3577b34da6a3ce929d0e0e4736"),
            Some(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736)
        );
        assert_eq!(trace_id("1"), Some(1));
        for wrong in ["", "g", "+1", " 1", "4bf92f3577b34da6a3ce929d0e0e47361"] {
            assert_eq!(trace_id(wrong), None, "{wrong:?}");
        }
    }
}

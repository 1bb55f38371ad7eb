//! Requests over HTTP/1.1, one after the other on a connection.

use super::Load;
use super::expect::ResponseCheck;
use super::flight::{DueRequest, RequestFailure};
use super::worker::ConnectionTask;
use crate::template::PlaceholderValues;
use crate::workload::Request;
use bytes::Bytes;
use curtail_http::head::{Fields, Known, RequestHead, Target};
use curtail_http::http1::{ClientConnection, Error};
use curtail_http::outbound_request::OutboundRequest;
use curtail_http::replay::OutboundBody;
use curtail_http::stream::Stream;
use curtail_load::Failure;
use http::header::HOST;
use http::uri::PathAndQuery;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Sends requests until the connection closes or nothing is left to send.
pub(super) async fn serve(task: ConnectionTask, stream: Stream) {
    let load = &task.worker.load;
    let mut connection = ClientConnection::new(stream);
    // The heads of requests that are always the same.
    let mut fixed_heads = vec![None; load.workload.requests.len()];
    while let Some(due) = poll_fn(|cx| poll_next(&task, &mut connection, cx)).await {
        let request = match outbound_request(&task, due, &mut fixed_heads) {
            Ok(request) => request,
            Err(failed) => {
                task.fail(due, failed);
                continue;
            }
        };
        let abort = task.connection.abort_handle();
        let key = task.with_flights(|flights, now| flights.begin(due, now, abort));
        let mut check = ResponseCheck::new(&load.workload.request(due.choice).expect);
        let result = exchange(&mut connection, request, &mut check).await;
        let is_reusable = connection.is_reusable() && load.keep_alive;
        task.finish(key, check.received_bytes(), result);
        if !is_reusable {
            break;
        }
    }
}

/// The next request to send; [`None`] when the run is over or the server has closed the connection.
fn poll_next(
    task: &ConnectionTask,
    connection: &mut ClientConnection,
    cx: &mut Context<'_>,
) -> Poll<Option<DueRequest>> {
    match connection.poll_closed(cx) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => task.poll_due(cx),
    }
}

async fn exchange(
    connection: &mut ClientConnection,
    request: Box<OutboundRequest>,
    check: &mut ResponseCheck<'_>,
) -> Result<(), RequestFailure> {
    let head = connection.send(request).await.map_err(failed)?;
    while let Some(frame) = poll_fn(|cx| connection.poll_frame(cx)).await {
        if let Ok(data) = frame.map_err(failed)?.into_data() {
            check.take(&data)?;
        }
    }
    check.judge_status(head.status)?;
    check.judge_body()
}

fn failed(error: Error) -> RequestFailure {
    let is_malformed = matches!(error, Error::Malformed(_));
    let failure = if is_malformed { Failure::Malformed } else { Failure::Closed };
    RequestFailure::new(failure, error.to_string())
}

fn outbound_request(
    task: &ConnectionTask,
    due: DueRequest,
    fixed_heads: &mut [Option<Arc<RequestHead>>],
) -> Result<Box<OutboundRequest>, RequestFailure> {
    let load = &task.worker.load;
    let (request, values) = (load.workload.request(due.choice), load.workload.values(due.choice));
    let nth = load.workload.request_of(due.choice);
    let head = match &fixed_heads[nth] {
        Some(head) => Arc::clone(head),
        None => {
            let head = Arc::new(request_head(load, request, &values)?);
            if request.is_head_fixed() {
                fixed_heads[nth] = Some(Arc::clone(&head));
            }
            head
        }
    };
    let body = request.body.filled(&values);
    let body = if body.is_empty() { OutboundBody::Empty } else { OutboundBody::Full(body.into()) };
    Ok(OutboundRequest::new(head, body))
}

fn request_head(
    load: &Load,
    request: &Request,
    values: &PlaceholderValues<'_>,
) -> Result<RequestHead, RequestFailure> {
    let path = PathAndQuery::from_maybe_shared(Bytes::from(request.path.filled(values)))
        .map_err(RequestFailure::not_a_request)?;
    let mut fields = Fields::default();
    if request.headers.iter().all(|(name, _)| *name != HOST) {
        fields.push(Known::Host, load.target.authority.as_bytes());
    }
    for header in request.filled_headers(values) {
        let (name, value) = header?;
        fields.append(name.as_str().as_bytes(), value.as_bytes());
    }
    if !load.keep_alive {
        fields.push(Known::Connection, b"close");
    }
    Ok(RequestHead {
        method: request.method.clone(),
        target: Target::Uri(path),
        authority: None,
        version: http::Version::HTTP_11,
        fields,
    })
}

//! Requests over HTTP/2, concurrent on a connection; also gRPC with one message each way.
//!
//! A request that the server did not process is sent again; after a GOAWAY, on another connection.
//! **Limits**: [`STREAMS_MAX`] requests at once on a connection, or the server's limit if it is lower; [`RESENDS_MAX`]
//! resends of a request.
//! **Source**: RFC 9113; for gRPC, "gRPC over HTTP2" in its repository.

use super::flight::{DueRequest, RESENDS_MAX, RequestFailure};
use super::worker::ConnectionTask;
use crate::expect::ResponseCheck;
use crate::target::Protocol;
use bytes::{BufMut as _, Bytes};
use curtail_http::grpc;
use curtail_http::stream::Stream;
use curtail_load::Failure;
use h2::RecvStream;
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, Uri, header};
use std::cell::Cell;
use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, ready};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_local;

/// Maximum number of requests of a connection at once.
pub(super) const STREAMS_MAX: usize = 100;

/// The flow-control window of a stream, and of a connection.
const WINDOW_BYTES: u32 = 4 << 20;

/// Sends requests until the connection closes or nothing is left to send.
pub(super) async fn serve(task: ConnectionTask, stream: Stream) {
    let mut builder = h2::client::Builder::new();
    builder
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .enable_push(false);
    let (mut sender, connection) = match builder.handshake::<_, Bytes>(stream).await {
        Ok(both) => both,
        Err(error) => {
            let failed = RequestFailure::new(Failure::Connect, format!("no HTTP/2: {error}"));
            task.fail_waiting(failed);
            return;
        }
    };
    // Each of its requests reports why it ended.
    let mut connection = spawn_local(async move { drop(connection.await) });
    let task = Rc::new(task);
    let streams = Arc::new(Semaphore::new(STREAMS_MAX));
    loop {
        let permit = Arc::clone(&streams).acquire_owned().await;
        let permit = permit.expect("nobody closes the semaphore");
        let next = poll_fn(|cx| {
            if Pin::new(&mut connection).poll(cx).is_ready()
                || ready!(sender.poll_ready(cx)).is_err()
            {
                return Poll::Ready(None);
            }
            task.poll_due(cx)
        });
        let Some(due) = next.await else { return task.drain() };
        send(&task, &mut sender, due, permit);
    }
}

fn send(
    task: &Rc<ConnectionTask>,
    sender: &mut SendRequest<Bytes>,
    due: DueRequest,
    permit: OwnedSemaphorePermit,
) {
    let sent = request(task, due).and_then(|(request, body)| {
        let closed = |error: h2::Error| {
            RequestFailure::new(Failure::Closed, format!("the request was not sent: {error}"))
        };
        let (response, mut stream) =
            sender.send_request(request, body.is_empty()).map_err(closed)?;
        if !body.is_empty() {
            stream.send_data(body, true).map_err(closed)?;
        }
        Ok(response)
    });
    let response = match sent {
        Ok(response) => response,
        Err(failed) => return task.fail(due, failed),
    };
    let key = Rc::new(Cell::new(0));
    let (of_task, its_key) = (Rc::clone(task), Rc::clone(&key));
    let exchange = spawn_local(async move {
        let load = &of_task.worker.load;
        let expect = &load.workload.request(due.choice).expect;
        let mut check = ResponseCheck::new(expect);
        let result = receive(response, &mut check, load.protocol).await;
        of_task.finish(its_key.get(), check.received_bytes(), result);
        drop(permit);
    });
    // The task has not run yet: this thread is here.
    key.set(task.with_flights(|flights, now| flights.begin(due, now, exchange.abort_handle())));
}

/// The head and the body of a request; a body of gRPC has the prefix of its message.
fn request(
    task: &ConnectionTask,
    due: DueRequest,
) -> Result<(http::Request<()>, Bytes), RequestFailure> {
    let load = &task.worker.load;
    let (request, values) = (load.workload.request(due.choice), load.workload.values(due.choice));
    let is_grpc = load.protocol == Protocol::Grpc;
    let uri = Uri::builder()
        .scheme(if load.target.origin.tls { "https" } else { "http" })
        .authority(load.target.authority.as_str())
        .path_and_query(request.path.filled(&values).as_slice())
        .build()
        .map_err(RequestFailure::not_a_request)?;
    let mut builder = http::Request::builder().uri(uri).method(&request.method);
    if is_grpc {
        builder = builder
            .method(http::Method::POST)
            .header(header::CONTENT_TYPE, "application/grpc")
            .header(header::TE, "trailers");
    }
    for header in request.filled_headers(&values) {
        let (name, value) = header?;
        builder = builder.header(name, value);
    }
    let mut body = Vec::new();
    if is_grpc {
        body.put_bytes(0, grpc::PREFIX_BYTES);
    }
    request.body.fill(&values, &mut body);
    if is_grpc {
        let too_long = || RequestFailure::malformed("the message is longer than 4 GiB");
        let prefix = grpc::prefix(body.len() - grpc::PREFIX_BYTES).ok_or_else(too_long)?;
        body[..grpc::PREFIX_BYTES].copy_from_slice(&prefix);
    }
    Ok((builder.body(()).map_err(RequestFailure::not_a_request)?, body.into()))
}

async fn receive(
    response: ResponseFuture,
    check: &mut ResponseCheck<'_>,
    protocol: Protocol,
) -> Result<(), RequestFailure> {
    let (head, mut body) = response.await.map_err(no_response)?.into_parts();
    while let Some(data) = body.data().await {
        let data = data.map_err(failed)?;
        check.take(&data)?;
        // The connection has failed if this does; the next data say so.
        drop(body.flow_control().release_capacity(data.len()));
    }
    check.judge_status(head.status)?;
    if protocol == Protocol::Grpc {
        grpc_status(&head.headers, &mut body).await?;
    }
    check.judge_body()
}

/// Checks the gRPC status, which is in the trailers, or in the head of a response without a message.
async fn grpc_status(head: &HeaderMap, body: &mut RecvStream) -> Result<(), RequestFailure> {
    let trailers = body.trailers().await.map_err(failed)?;
    match grpc::status(trailers.as_ref(), head) {
        Some((0, _)) => Ok(()),
        Some((status, message)) => {
            Err(RequestFailure::new(Failure::Status, format!("grpc-status {status} {message}")))
        }
        None => Err(RequestFailure::malformed(
            "the response has no grpc-status: expected a server of gRPC",
        )),
    }
}

fn failed(error: h2::Error) -> RequestFailure {
    // h2 reports a peer's violation as an error of our own on its stream, or as the end of the connection.
    let is_malformed = error.is_library() && error.reason() == Some(h2::Reason::PROTOCOL_ERROR);
    let failure = if is_malformed { Failure::Malformed } else { Failure::Closed };
    RequestFailure::new(failure, error.to_string())
}

/// Whether the server provably did not process the request of a stream (RFC 9113, section 8.7): it refused the stream,
/// or its GOAWAY excludes the stream. The end of a connection is an I/O error, even after a GOAWAY.
fn is_unprocessed(error: &h2::Error) -> bool {
    let refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
    error.is_remote() && (refused || error.is_go_away())
}

fn no_response(error: h2::Error) -> RequestFailure {
    if !is_unprocessed(&error) {
        return failed(error);
    }
    let text = format!(
        "the server returned the request and its {RESENDS_MAX} resends unprocessed: {error}"
    );
    RequestFailure { is_unprocessed: true, ..RequestFailure::new(Failure::Closed, text) }
}

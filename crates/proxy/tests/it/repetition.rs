//! What may be sent twice, and what is never executed twice whatever fails.

mod hedged_bodies;
mod once;
mod replayed;

use crate::client::{Client, FullResponse};
use crate::raw_replica::{RawReplica, Record};
use http::HeaderValue;

/// How often the request with this `x-request-id` was read to its end.
pub(crate) fn executions(replicas: &[&RawReplica], id: &str) -> usize {
    let executed = |record: &Record| {
        let requests = record.requests();
        requests.iter().filter(|request| request.head.get("x-request-id") == Some(id)).count()
    };
    replicas.iter().map(|replica| executed(replica.record())).sum()
}

/// Sends a request under an id.
pub(crate) async fn send(
    client: &mut Client,
    method: &str,
    id: &str,
    body: &'static str,
) -> FullResponse {
    let mut request = client.request_with(method, "/", crate::body::whole(body));
    let id = HeaderValue::from_str(id).expect("plain text");
    request.headers_mut().insert("x-request-id", id);
    client.send(request).await
}

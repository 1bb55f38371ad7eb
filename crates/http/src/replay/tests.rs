use super::from_client::{self, in_chunks};
use super::*;
use std::future::poll_fn;
use tokio::io::AsyncWriteExt;

/// Starts a client that sends a chunk of its body, and keeps the rest back.
async fn begun() -> (Arc<Replay>, tokio::net::TcpStream, Vec<u8>) {
    let mut bytes = in_chunks(&[b"begun", b"rest"], "");
    let rest = bytes.split_off(bytes.len() - "4\r\nrest\r\n0\r\n\r\n".len());
    let (replay, client) = from_client::sent(bytes).await;
    (replay, client, rest)
}

/// A reader that has read what has arrived, and waits for the rest.
async fn waiting(replay: &Arc<Replay>) -> OutboundBody {
    let mut body = OutboundBody::Replay(replay.reader());
    read(&mut body).await;
    assert!(poll(&mut body).is_pending());
    body
}

async fn read(body: &mut OutboundBody) -> Bytes {
    let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
    frame.expect("a frame").expect("no fault").into_data().expect("data")
}

fn poll(body: &mut OutboundBody) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
    Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn a_body_is_awaited_as_long_as_a_reader_waits_for_it() {
    let (replay, mut client, rest) = begun().await;
    assert!(!replay.is_awaited());
    let (mut one, other) = (waiting(&replay).await, waiting(&replay).await);
    assert!(poll(&mut one).is_pending(), "it counts once");
    assert!(replay.is_awaited());
    drop(one);
    assert!(replay.is_awaited(), "the other one still waits");
    drop(other);
    assert!(!replay.is_awaited());

    let (_waits, mut reads) = (waiting(&replay).await, waiting(&replay).await);
    client.write_all(&rest).await.expect("a connection takes so much");
    assert_eq!(read(&mut reads).await, "rest");
    assert!(!replay.is_awaited(), "what they waited for has arrived");
}

#[tokio::test]
async fn a_request_without_a_place_for_its_upload_does_not_await_its_body() {
    let (replay, _client, _rest) = begun().await;
    let mut reader = replay.reader();
    assert!(!poll_fn(|cx| reader.poll_arrived(cx)).await, "its length is not known");
    drop(reader);
    assert!(!replay.is_awaited());
}

#[tokio::test]
async fn the_body_of_a_failed_attempt_is_read_from_its_start_and_not_awaited() {
    let (replay, _client, _rest) = begun().await;
    let mut kept = OutboundBody::Replay(replay.reader());
    let mut sent = kept.take_to_send();
    assert!(matches!(kept, OutboundBody::Empty));
    assert_eq!(read(&mut sent).await, "begun");
    assert!(poll(&mut sent).is_pending() && replay.is_awaited());
    kept.put_back(sent);
    assert!(!replay.is_awaited());
    assert_eq!(read(&mut kept).await, "begun");
}

#[tokio::test]
async fn a_late_reader_announces_the_whole_length_and_fails() {
    const BYTES: usize = 2 * from_client::KEPT_BYTES_MAX;
    let bytes = from_client::with_length(&[7; BYTES]);
    let (replay, mut client) = from_client::sent(&bytes[..from_client::KEPT_BYTES_MAX]).await;
    let (mut first, mut other) =
        (OutboundBody::Replay(replay.reader()), OutboundBody::Replay(replay.reader()));
    read(&mut other).await;
    client.write_all(&bytes[from_client::KEPT_BYTES_MAX..]).await.expect("the proxy reads it");
    let mut read_bytes = 0;
    while read_bytes < BYTES {
        read_bytes += read(&mut first).await.len();
    }
    assert!(poll(&mut first).map(|end| end.is_none()) == Poll::Ready(true));
    let not_kept =
        |body: &mut OutboundBody| matches!(poll(body), Poll::Ready(Some(Err(BodyError::NotKept))));
    let mut late = OutboundBody::Replay(replay.reader());
    assert_eq!(late.size_hint().exact(), Some(BYTES as u64));
    assert!(not_kept(&mut late) && not_kept(&mut other));
    // Nor can the attempt that has read it to its end be repeated.
    let sent = first.take_to_send();
    first.put_back(sent);
    assert!(not_kept(&mut first));
}

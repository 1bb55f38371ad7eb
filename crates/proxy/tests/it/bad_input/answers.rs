//! Answers of replicas that could be read in two ways: a client gets one meaning, or an error, never less
//! than the replica meant.

use crate::client::Client;
use crate::deadline::run;
use crate::proxy::Setup;
use crate::raw_replica::RawReplica;
use http::{StatusCode, Version};

/// What clients of each version get from a replica that answers with these bytes, and then closes.
async fn given(bytes: &'static str) -> [Option<(StatusCode, String)>; 2] {
    let replica = RawReplica::start(move |mut wire, record, _| async move {
        record.read(&mut wire).await;
        wire.send(bytes).await;
    })
    .await;
    let proxy = Setup::before(&[replica.address()]).upstream("retry: false\nhedge: false").start();
    let mut given = [None, None];
    for (given, version) in given.iter_mut().zip([Version::HTTP_11, Version::HTTP_2]) {
        let mut client = Client::connect(proxy.address(), version).await;
        let request = client.request("GET", "/");
        let response = client.try_send(request).await.expect("an answer");
        let lengths = response.headers().get_all("content-length").iter().count();
        assert!(lengths <= 1, "{bytes:?}: {response:?}");
        let Ok(answer) = crate::client::Answer::read(response).await else { continue };
        let text = String::from_utf8(answer.body.to_vec()).expect("text");
        *given = Some((answer.status, text));
    }
    given
}

#[test]
fn chunks_count_and_a_length_beside_them_goes() {
    run(async {
        for bytes in [
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n9\r\nall of it\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n9\r\nall of it\r\n0\r\n\r\n",
        ] {
            let want = Some((StatusCode::OK, "all of it".to_owned()));
            assert_eq!(given(bytes).await, [want.clone(), want], "{bytes:?}");
        }
    });
}

#[test]
fn a_connection_header_cannot_remove_the_framing_of_a_response() {
    run(async {
        for bytes in [
            "HTTP/1.1 200 OK\r\nconnection: transfer-encoding\r\ncontent-length: 3\r\n\
             transfer-encoding: chunked\r\n\r\n9\r\nall of it\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nconnection: content-length\r\ncontent-length: 9\r\n\r\nall of it",
        ] {
            let want = Some((StatusCode::OK, "all of it".to_owned()));
            assert_eq!(given(bytes).await, [want.clone(), want], "{bytes:?}");
        }
    });
}

#[test]
fn the_same_length_twice_is_one() {
    run(async {
        for lengths in ["9\r\ncontent-length: 9", "9, 9", "9,9\r\ncontent-length: 09"] {
            let bytes = format!("HTTP/1.1 200 OK\r\ncontent-length: {lengths}\r\n\r\nall of it");
            let want = Some((StatusCode::OK, "all of it".to_owned()));
            assert_eq!(given(bytes.leak()).await, [want.clone(), want], "{lengths:?}");
        }
    });
}

#[test]
fn lengths_that_contradict_each_other_are_an_error() {
    run(async {
        for bytes in [
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 9\r\n\r\nall of it",
            "HTTP/1.1 200 OK\r\ncontent-length: 3, 9\r\n\r\nall of it",
            "HTTP/1.1 200 OK\r\ncontent-length: 9,\r\n\r\nall of it",
            "HTTP/1.1 200 OK\r\ncontent-length: -9\r\n\r\nall of it",
            "HTTP/1.1 200 OK\r\ncontent-length: nine\r\n\r\nall of it",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nall of it",
        ] {
            let want = Some((StatusCode::BAD_GATEWAY, "curtail: broken\n".to_owned()));
            assert_eq!(given(bytes).await, [want.clone(), want], "{bytes:?}");
        }
    });
}

#[test]
fn an_answer_that_ends_with_its_connection_is_whole() {
    run(async {
        let want = Some((StatusCode::OK, "all of it".to_owned()));
        for bytes in ["HTTP/1.1 200 OK\r\n\r\nall of it", "HTTP/1.0 200 OK\r\n\r\nall of it"] {
            assert_eq!(given(bytes).await, [want.clone(), want.clone()], "{bytes:?}");
        }
    });
}

#[test]
fn more_than_was_announced_is_not_the_next_answer() {
    run(async {
        let replica = RawReplica::start(|mut wire, record, _| async move {
            while let Some(request) = record.read(&mut wire).await {
                let path = request.head.request().1.to_owned();
                let extra = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison";
                wire.send(format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{path}{extra}",
                    path.len()
                ))
                .await;
            }
        })
        .await;
        let proxy = Setup::before(&[replica.address()]).start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        for nth in 0..10 {
            let path = format!("/{nth}");
            assert_eq!(client.get(&path).await.body, path);
        }
    });
}

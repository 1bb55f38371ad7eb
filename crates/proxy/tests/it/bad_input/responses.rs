//! Responses of replicas that could be read in two ways: a client gets one meaning, or an error, never less
//! than the replica meant.

use crate::body;
use crate::client::Client;
use crate::deadline::run;
use crate::proxy::Setup;
use crate::raw_replica::RawReplica;
use crate::replica::{Replica, Speaks, ok};
use crate::wire::Wire;
use http::{HeaderName, HeaderValue, Response, StatusCode, Version};

/// What clients of each version get from a replica that responds with these bytes, and then closes.
async fn responses_to_clients(bytes: &'static str) -> [Option<(StatusCode, String)>; 2] {
    let replica = RawReplica::start(move |mut wire, record, _| async move {
        record.read(&mut wire).await;
        wire.send(bytes).await;
    })
    .await;
    let proxy = Setup::before(&[replica.address()]).upstream("retry: false\nhedge: false").start();
    let mut responses = [None, None];
    for (received, version) in responses.iter_mut().zip([Version::HTTP_11, Version::HTTP_2]) {
        let mut client = Client::connect(proxy.address(), version).await;
        let request = client.request("GET", "/");
        let response = client.try_send(request).await.expect("a response");
        let lengths = response.headers().get_all("content-length").iter().count();
        assert!(lengths <= 1, "{bytes:?}: {response:?}");
        let Ok(response) = crate::client::FullResponse::read(response).await else { continue };
        let text = String::from_utf8(response.body.to_vec()).expect("text");
        *received = Some((response.status, text));
    }
    responses
}

#[test]
fn chunks_count_and_a_content_length_with_them_is_removed() {
    run(async {
        for bytes in [
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n9\r\nall of it\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n9\r\nall of it\r\n0\r\n\r\n",
        ] {
            let want = Some((StatusCode::OK, "all of it".to_owned()));
            assert_eq!(responses_to_clients(bytes).await, [want.clone(), want], "{bytes:?}");
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
            assert_eq!(responses_to_clients(bytes).await, [want.clone(), want], "{bytes:?}");
        }
    });
}

#[test]
fn the_same_length_twice_is_one() {
    run(async {
        for lengths in ["9\r\ncontent-length: 9", "9, 9", "9,9\r\ncontent-length: 09"] {
            let bytes = format!("HTTP/1.1 200 OK\r\ncontent-length: {lengths}\r\n\r\nall of it");
            let want = Some((StatusCode::OK, "all of it".to_owned()));
            assert_eq!(
                responses_to_clients(bytes.leak()).await,
                [want.clone(), want],
                "{lengths:?}"
            );
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
            assert_eq!(responses_to_clients(bytes).await, [want.clone(), want], "{bytes:?}");
        }
    });
}

#[test]
fn a_response_that_ends_with_its_connection_is_whole() {
    run(async {
        let want = Some((StatusCode::OK, "all of it".to_owned()));
        for bytes in ["HTTP/1.1 200 OK\r\n\r\nall of it", "HTTP/1.0 200 OK\r\n\r\nall of it"] {
            assert_eq!(
                responses_to_clients(bytes).await,
                [want.clone(), want.clone()],
                "{bytes:?}"
            );
        }
    });
}

#[test]
fn more_than_was_announced_is_not_the_next_response() {
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

#[test]
fn response_headers_and_trailers_have_the_same_limit_over_both_versions() {
    run(async {
        for (speaks, connect) in
            [(Speaks::Http1, ""), (Speaks::Http2, "\nconnect: {protocol: http2}")]
        {
            let replica = Replica::start(speaks, |request| async move {
                let long = |bytes: usize| {
                    (0..bytes / 8_000).map(|nth| {
                        let name = HeaderName::try_from(format!("x-{nth}")).expect("a name");
                        (name, HeaderValue::try_from("y".repeat(8_000)).expect("text"))
                    })
                };
                match request.uri().path() {
                    "/headers/below" => {
                        let mut response = ok("here");
                        response.headers_mut().extend(long(56_000));
                        response
                    }
                    "/headers/above" => {
                        let mut response = ok("here");
                        response.headers_mut().extend(long(72_000));
                        response
                    }
                    path => {
                        let bytes = if path == "/trailers/below" { 56_000 } else { 72_000 };
                        let (sender, body) = body::channel();
                        let trailers = long(bytes).collect();
                        tokio::spawn(sender.trailers(trailers));
                        let mut response = Response::new(body);
                        let names: Vec<_> = (0..9).map(|nth| format!("x-{nth}")).collect();
                        let names = HeaderValue::try_from(names.join(", ")).expect("text");
                        response.headers_mut().insert("trailer", names);
                        response
                    }
                }
            })
            .await;
            let keys = format!("retry: false\nhedge: false{connect}");
            let proxy = Setup::before(&[replica.address()]).upstream(&keys).start();
            let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
            for (path, status) in
                [("/headers/below", 200), ("/headers/above", 502), ("/headers/below", 200)]
            {
                assert_eq!(client.get(path).await.status.as_u16(), status, "{path}{connect}");
            }
            if !connect.is_empty() {
                assert_eq!(replica.record().connections(), 1, "only the stream was reset");
            }
            for (path, is_whole) in [("/trailers/below", true), ("/trailers/above", false)] {
                let mut wire = Wire::connect(proxy.address()).await;
                wire.send(format!(
                    "GET {path} HTTP/1.1\r\nhost: h\r\nte: trailers\r\nconnection: close\r\n\r\n"
                ))
                .await;
                let all = wire.read_to_close().await;
                let trailers =
                    all.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"x-"));
                assert_eq!(trailers.count(), if is_whole { 7 } else { 0 }, "{path}{connect}");
                let has_last_chunk = all.windows(5).any(|five| five == b"\r\n0\r\n");
                assert_eq!(has_last_chunk, is_whole, "{path}{connect}");
            }
        }
    });
}

//! Calls in the manner of gRPC: both directions open at once, the outcome in trailers.

use super::Chain;
use crate::body;
use crate::client::Client;
use crate::deadline::run;
use crate::replica::{Replica, status};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::sync::Arc;

const GRPC: (Version, Version) = (Version::HTTP_2, Version::HTTP_2);

fn call(client: &Client, body: body::Body) -> Request<body::Body> {
    let mut request = client.request_with("POST", "/pkg.Service/Method", body);
    let headers = request.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    headers.insert("te", HeaderValue::from_static("trailers"));
    request
}

fn grpc_status(code: &'static str) -> HeaderMap {
    let name = HeaderName::from_static("grpc-status");
    HeaderMap::from_iter([(name, HeaderValue::from_static(code))])
}

/// Sends each piece back as it comes, and the status when the client has ended.
async fn echo(request: Request<Incoming>) -> Response<body::Body> {
    assert_eq!(request.headers()["te"], "trailers");
    let (sender, body) = body::channel();
    tokio::spawn(async move {
        let mut request_body = request.into_body();
        while let Some(Ok(frame)) = request_body.frame().await {
            if let Ok(data) = frame.into_data()
                && !sender.data(data).await
            {
                return;
            }
        }
        sender.trailers(grpc_status("0")).await;
    });
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    response
}

#[test]
fn messages_go_to_and_fro_and_the_status_comes_in_trailers() {
    run(async {
        let mut chain = Chain::start(GRPC, echo).await;
        let (sender, body) = body::channel();
        let request = call(&chain.client, body);
        let response = chain.client.try_send(request).await.expect("a response");
        assert_eq!(response.headers()["content-type"], "application/grpc");
        let mut response = response.into_body();
        for nth in 0..100 {
            let message = format!("message {nth}");
            assert!(sender.data(message.clone()).await);
            let frame = response.frame().await.expect("a frame").expect("a good one");
            assert_eq!(frame.into_data().expect("data"), message);
        }
        drop(sender);
        let frame = response.frame().await.expect("a frame").expect("a good one");
        assert_eq!(frame.into_trailers().expect("trailers"), grpc_status("0"));
        assert!(response.frame().await.is_none());
    });
}

#[test]
fn a_call_that_fails_is_no_success_in_the_metrics() {
    run(async {
        let mut chain = Chain::start(GRPC, |_| {
            let (sender, body) = body::channel();
            tokio::spawn(async move { sender.trailers(grpc_status("13")).await });
            std::future::ready(Response::new(body))
        })
        .await;
        let request = call(&chain.client, body::whole("question"));
        assert_eq!(chain.client.send(request).await.status, StatusCode::OK);
        let metrics = chain.proxy.metrics().await;
        let requests = |status| metrics.sum("curtail_requests_total", &[("status", status)]);
        assert_eq!((requests("grpc_failure"), requests("2xx")), (1, 0));
    });
}

#[test]
fn an_outcome_without_a_body_comes_in_the_head() {
    run(async {
        let mut chain = Chain::start(GRPC, |_| {
            let mut response = status(StatusCode::OK);
            response.headers_mut().extend(grpc_status("5"));
            std::future::ready(response)
        })
        .await;
        let request = call(&chain.client, body::whole("question"));
        let response = chain.client.send(request).await;
        assert_eq!((response.status, response.get("grpc-status")), (StatusCode::OK, Some("5")));
    });
}

/// A replica that streams until the client stops reading, and the reading end of its stream.
async fn streaming(pair: (Version, Version)) -> (Chain, tokio::sync::mpsc::Receiver<()>) {
    let (unread, heard) = tokio::sync::mpsc::channel(1);
    let chain = Chain::start(pair, move |_| {
        let (sender, body) = body::channel();
        let unread = unread.clone();
        tokio::spawn(async move {
            while sender.data("again and again").await {}
            unread.send(()).await.expect("the test listens");
        });
        std::future::ready(Response::new(body))
    })
    .await;
    (chain, heard)
}

#[test]
fn a_client_that_goes_away_stops_the_replica() {
    run(async {
        for pair in super::PAIRS {
            let (mut chain, mut unread) = streaming(pair).await;
            let request = chain.client.request("GET", "/");
            let mut response =
                chain.client.try_send(request).await.expect("a response").into_body();
            response.frame().await.expect("a frame").expect("a good one");
            drop(response);
            // HTTP/1.1 has no other way to stop a response than to close the connection.
            drop(chain.client);
            unread.recv().await.expect("the replica gets it");
            chain.proxy.until(|metrics| metrics.in_flight() == 0).await;
        }
    });
}

#[test]
fn a_client_that_goes_away_before_the_response_stops_the_replica() {
    run(async {
        for pair in super::PAIRS {
            let mut chain = Chain::start(pair, |_| std::future::pending()).await;
            let request = chain.client.request("GET", "/");
            let record = Arc::clone(chain.replica.record());
            tokio::select! {
                response = chain.client.try_send(request) => panic!("a response: {response:?}"),
                () = record.until(|record| record.count() == 1) => {}
            }
            drop(chain.client);
            record.until(|record| record.reset() == 1).await;
            let metrics = chain.proxy.until(|metrics| metrics.in_flight() == 0).await;
            assert_eq!(
                metrics.sum("curtail_requests_total", &[("status", "none")]),
                1,
                "{metrics}"
            );
        }
    });
}

#[test]
fn many_streams_share_few_connections() {
    run(async {
        let chain = Chain::start(GRPC, echo).await;
        let mut streams = Vec::new();
        for nth in 0..240 {
            let (sender, body) = body::channel();
            let mut client = chain.client.share();
            let request = call(&client, body);
            let response = client.try_send(request).await.expect("a response");
            streams.push((nth, sender, response.into_body()));
        }
        for (nth, sender, response) in &mut streams {
            let message = format!("stream {nth}");
            assert!(sender.data(message.clone()).await);
            let frame = response.frame().await.expect("a frame").expect("a good one");
            assert_eq!(frame.into_data().expect("data"), message);
        }
        let replica: &Replica = &chain.replica;
        // One connection for every sixteen streams, up to the default maximum of sixteen.
        let connections = replica.record().connections();
        assert!((8..=16).contains(&connections), "240 streams took {connections} connections");
    });
}

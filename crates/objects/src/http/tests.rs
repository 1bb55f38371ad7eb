use super::*;
use crate::server::{ReceivedRequest, ServerAction, serving, start};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::net::SocketAddr;
use std::sync::mpsc::Receiver;

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
const SOON: Duration = Duration::from_ms(50);
const LATE: Duration = Duration::from_secs(60);
const PATIENT: Timeouts = Timeouts { connect: LATE, response: LATE, read: LATE };

fn client(timeouts: Timeouts) -> StoreClient {
    StoreClient::start(true, timeouts, None).expect("a thread")
}

fn put(scheme: &str, address: SocketAddr) -> HttpRequest {
    let uri = format!("{scheme}://{address}/bucket/key?x=y");
    let body = HttpRequestBody::from("body".to_owned());
    http::Request::put(uri).body(body).expect("a request")
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(test)
}

/// The body of a response.
async fn body_of(client: &StoreClient, address: SocketAddr) -> Result<Bytes, HttpError> {
    client.call(put("http", address)).await?.into_body().bytes().await
}

fn connections(requests: &Receiver<ReceivedRequest>) -> Vec<usize> {
    requests.try_iter().map(|(connection, _)| connection).collect()
}

#[test]
fn a_connection_is_kept_for_the_next_request() {
    let (address, requests, server) = start(vec![
        ServerAction::Respond(OK),
        ServerAction::Respond(OK),
        ServerAction::Respond(OK),
    ]);
    run(async {
        let client = client(PATIENT);
        for _ in 0..3 {
            assert_eq!(body_of(&client, address).await.expect("a response"), "hi");
            kept(&client).await;
        }
    });
    server.join().expect("it ends well");
    let (_, first) = requests.recv().expect("it was requests");
    let head = "put /bucket/key?x=y http/1.1\r\n";
    assert!(first.starts_with(head) && first.ends_with("\r\n\r\nbody"), "{first}");
    assert!(first.contains(&format!("host: {address}\r\n")), "{first}");
    assert!(first.contains("user-agent: curtail/"), "{first}");
    assert_eq!(connections(&requests), [0, 0]);
}

/// Waits until a connection waits for its next request.
async fn kept(client: &StoreClient) {
    let free = &client.free;
    // All permits are free only when no request is in flight.
    let all = u32::try_from(REQUESTS_MAX).expect("few");
    drop(free.acquire_many(all).await.expect("it is open"));
}

#[test]
fn a_connection_that_was_closed_meanwhile_is_made_anew() {
    let (address, requests, server) =
        start(vec![ServerAction::RespondAndClose(OK), ServerAction::Respond(OK)]);
    run(async {
        let client = client(PATIENT);
        assert_eq!(body_of(&client, address).await.expect("a response"), "hi");
        kept(&client).await;
        // Whether it is seen to be closed before or after the request is given to it, that is not sent twice.
        match body_of(&client, address).await {
            Ok(body) => assert_eq!(body, "hi"),
            Err(error) => {
                assert_eq!(error.kind(), HttpErrorKind::Interrupted);
                body_of(&client, address).await.expect("a new one");
            }
        }
    });
    server.join().expect("it ends well");
    assert_eq!(connections(&requests), [0, 1]);
}

#[test]
fn a_request_without_a_response_is_reported_as_sent() {
    let (address, requests, server) = start(vec![ServerAction::Close]);
    let error = run(body_of(&client(PATIENT), address)).expect_err("there is no response");
    assert_eq!(error.kind(), HttpErrorKind::Interrupted);
    server.join().expect("it ends well");
    assert_eq!(connections(&requests), [0]);
    // Nobody listens any more.
    let error = run(body_of(&client(PATIENT), address)).expect_err("there is no server");
    assert_eq!(error.kind(), HttpErrorKind::Connect);
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn silence_is_an_error_after_a_time() {
    let part = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi";
    let (address, _requests, server) = start(vec![ServerAction::Wait, ServerAction::Respond(part)]);
    run(async {
        let client = client(Timeouts { response: SOON, read: SOON, ..PATIENT });
        let error = body_of(&client, address).await.expect_err("no response");
        assert_eq!(error.kind(), HttpErrorKind::Timeout);
        assert!(error.to_string().contains("no complete response within"), "{error}");
        let client = self::client(Timeouts { read: SOON, ..PATIENT });
        let error = body_of(&client, address).await.expect_err("a partial response");
        assert_eq!(error.kind(), HttpErrorKind::Timeout);
        assert!(error.to_string().contains("the rest of the response paused"), "{error}");
    });
    server.join().expect("it ends well");
}

#[test]
fn signatures_are_not_logged() {
    let uri = "/traces/spans?comp=block&sig=c2VjcmV0&sv=2020".parse().expect("a URI");
    assert_eq!(loggable(&uri), "/traces/spans?comp=block&sv=2020");
    assert_eq!(loggable(&"/traces".parse().expect("a URI")), "/traces");
}

#[test]
fn plain_http_must_be_allowed() {
    let options = ClientOptions::new();
    let client = Http.connect(&options).expect("a client");
    let error = run(client.execute(put("http", SocketAddr::from(([127, 0, 0, 1], 1)))));
    let error = error.expect_err("it is not allowed");
    assert!(error.to_string().contains("AWS_ALLOW_HTTP"), "{error}");
    for options in [
        ClientOptions::new().with_proxy_url("http://proxy:1"),
        ClientOptions::new().with_allow_invalid_certificates(true),
    ] {
        Http.connect(&options).expect_err("it is not supported");
    }
}

#[test]
fn an_untrusted_server_gets_no_request() {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a good certificate");
    let config = Arc::new(config);
    let (address, requests, server) = serving(vec![ServerAction::Respond(OK)], move |stream| {
        let session = rustls::ServerConnection::new(Arc::clone(&config)).expect("a session");
        rustls::StreamOwned::new(session, stream)
    });
    let other =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let trusting = |name: &str, pem: String| {
        let file = std::env::temp_dir().join(format!("curtail-{}-{name}.pem", std::process::id()));
        std::fs::write(&file, pem).expect("written");
        let client = StoreClient::start(false, PATIENT, Some(file.clone())).expect("a thread");
        (client, file)
    };
    run(async {
        let (stranger, other_file) = trusting("other", other.cert.pem());
        let error = stranger.call(put("https", address)).await.expect_err("it is not trusted");
        assert_eq!(error.kind(), HttpErrorKind::Connect);
        assert!(error.to_string().contains("TLS failed"), "{error}");
        let (client, file) = trusting("server", made.cert.pem());
        let response = client.call(put("https", address)).await.expect("a response");
        assert_eq!(response.into_body().bytes().await.expect("all of it"), "hi");
        for file in [file, other_file] {
            std::fs::remove_file(file).expect("it was there");
        }
    });
    server.join().expect("it ends well");
    assert_eq!(connections(&requests), [1]);
}

//! Requests in addition to the load: for readiness, validation, measures and data.
//!
//! Each request has a timeout, and ends when the suite stops.

use bytes::Bytes;
use curtail_generator::Stop;
use curtail_generator::expect::Expect;
use curtail_generator::target::parse_url;
use curtail_http::client::{Client, ClientLimits};
use curtail_http::connect::{ConnectConfig, Connector, Protocol};
use curtail_units::Duration;
use http::{HeaderValue, Method, Request, header};
use http_body_util::Full;
use tokio::runtime::Runtime;

/// The interval of checks whether the suite stops.
const LOOK_EVERY: Duration = Duration::from_ms(100);

/// Maximum time to connect.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);

/// Sends the same request, with different bodies, over one connection.
#[derive(Debug)]
pub(super) struct PlainClient<'a> {
    runtime: Runtime,
    client: Client<Full<Bytes>>,
    request: Request<()>,
    expect: &'a Expect,
}

impl<'a> PlainClient<'a> {
    /// A client for `GET`.
    pub(super) fn get(url: &str, expect: &'a Expect) -> Result<Self, String> {
        Self::new("GET", url, &[], expect)
    }

    pub(super) fn new(
        method: &str,
        url: &str,
        headers: &[(String, String)],
        expect: &'a Expect,
    ) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let (origin, uri) = parse_url(url).map_err(|error| error.to_string())?;
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let connect = ConnectConfig {
            protocol: Protocol::Http1,
            timeout: CONNECTED_WITHIN,
            ..ConnectConfig::default()
        };
        let connector = Connector::load(&origin, &connect).map_err(|error| error.to_string())?;
        let limits = ClientLimits { body_bytes_max: expect.bytes_max.as_len(), idle_max: 1 };
        Ok(Self {
            runtime: runtime.map_err(|error| error.to_string())?,
            client: Client::new(connector, limits),
            request: request.body(()).map_err(|error| error.to_string())?,
            expect,
        })
    }

    /// Sends the request with this body; returns the body of the expected response.
    pub(super) fn send(
        &self,
        body: Vec<u8>,
        within: Duration,
        stop: &Stop,
    ) -> Result<Bytes, String> {
        let mut request = self.request.clone();
        if request.method() != Method::GET && body.is_empty() {
            // A server may insist on it (411).
            request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        let request = request.map(|()| Full::new(body.into()));
        let response = self.runtime.block_on(async {
            tokio::select! {
                biased;
                sent = self.client.send(request, within) => sent.map_err(|error| {
                    if error.is_timeout() {
                        format!("no response within {within}")
                    } else {
                        error.to_string()
                    }
                }),
                () = wait_for(stop) => Err("the suite ends".to_owned()),
            }
        })?;
        if !self.expect.allows(response.status.as_u16()) {
            return Err(format!("status {}", response.status.as_u16()));
        }
        self.expect.check(&response.body)?;
        Ok(response.body)
    }
}

async fn wait_for(stop: &Stop) {
    loop {
        tokio::time::sleep(LOOK_EVERY.into()).await;
        if stop.is_stopped() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PlainClient;
    use bytes::Bytes;
    use curtail_generator::Stop;
    use curtail_generator::expect::Expect;
    use curtail_units::Duration;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    /// The result of a request, and its text, when the response is these bytes; without any, there is none.
    fn exchange(
        method: &str,
        response: Option<&'static [u8]>,
        within: Duration,
        stop: &Stop,
    ) -> (Result<Bytes, String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/a?b=c", listener.local_addr().expect("it listens"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut head = [0; 4_096];
            let n = stream.read(&mut head).expect("a request");
            if let Some(response) = response {
                stream.write_all(response).expect("it reads");
            } else {
                // Until the client has given up.
                let _end = stream.read(&mut [0; 1]);
            }
            String::from_utf8_lossy(&head[..n]).into_owned()
        });
        let expect = Expect { contains: vec!["x".to_owned()], ..Expect::default() };
        let client = PlainClient::new(method, &url, &[], &expect).expect("a URL");
        let result = client.send(Vec::new(), within, stop);
        // A server that waits for the end of the connection sees it.
        drop(client);
        (result, server.join().expect("it serves"))
    }

    /// The result of a `GET`.
    fn asked(
        response: Option<&'static [u8]>,
        within: Duration,
        stop: &Stop,
    ) -> Result<Bytes, String> {
        let (result, head) = exchange("GET", response, within, stop);
        assert!(head.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nhost: 127.0.0.1:"), "{head}");
        result
    }

    #[test]
    fn a_request_with_an_empty_body_has_its_length_unless_it_is_a_get() {
        let ok = Some(&b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx"[..]);
        for (method, has_length) in [("GET", false), ("POST", true)] {
            let (result, head) = exchange(method, ok, Duration::from_secs(60), &Stop::default());
            assert_eq!(result, Ok(Bytes::from_static(b"x")));
            assert_eq!(head.contains("content-length: 0\r\n"), has_length, "{head}");
        }
    }

    #[test]
    fn the_requests_of_a_client_share_a_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/", listener.local_addr().expect("it listens"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            for body in [b"1", b"2"] {
                let mut request = Vec::new();
                while !request.ends_with(body) {
                    let mut part = [0; 4_096];
                    let n = stream.read(&mut part).expect("a request");
                    request.extend_from_slice(&part[..n]);
                }
                let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(response).expect("it reads");
            }
        });
        let expect = Expect::default();
        let client = PlainClient::new("POST", &url, &[], &expect).expect("a URL");
        for body in ["1", "2"] {
            let sent = client.send(body.into(), Duration::from_secs(60), &Stop::default());
            assert_eq!(sent, Ok(Bytes::new()));
        }
        server.join().expect("both came over one connection");
    }

    #[test]
    fn a_response_is_good_bad_or_absent() {
        let (long, stop) = (Duration::from_secs(60), Stop::default());
        let good = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nax\r\n0\r\n\r\n";
        assert_eq!(asked(Some(good), long, &stop), Ok(Bytes::from_static(b"ax")));
        let bad = asked(Some(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"), long, &stop);
        assert_eq!(bad, Err("status 404".to_owned()));
        let lacks = asked(Some(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na"), long, &stop);
        assert!(lacks.expect_err("no x").contains("does not contain \"x\""));
        let cut = asked(Some(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nax"), long, &stop);
        assert!(cut.expect_err("cut").contains("the response broke off"));
        let none = asked(None, Duration::from_ms(200), &stop);
        assert_eq!(none, Err("no response within 200 ms".to_owned()));
        stop.stop();
        assert_eq!(asked(None, long, &stop), Err("the suite ends".to_owned()));
    }
}

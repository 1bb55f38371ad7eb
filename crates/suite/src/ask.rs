//! Requests beside the load: for readiness, validation, measures and data.
//!
//! Each request has its own HTTP/1.1 connection and DNS lookup. It has a timeout, and ends when the suite stops.

use bytes::Bytes;
use curtail_generator::Stop;
use curtail_generator::expect::Expect;
use curtail_generator::target::parse_url;
use curtail_http::client::{Client, ClientLimits, ClientResponse};
use curtail_http::connect::{ConnectConfig, Connector, Protocol};
use http::{HeaderValue, Request, header};
use http_body_util::Full;
use std::time::Duration;

/// The time between two checks whether the suite stops.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Maximum time to connect.
const CONNECTED_WITHIN: Duration = Duration::from_secs(5);

/// A request and the expected response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) method: &'a str,
    pub(super) url: &'a str,
    pub(super) headers: &'a [(String, String)],
    pub(super) body: &'a [u8],
    pub(super) expect: &'a Expect,
    pub(super) within: Duration,
}

impl<'a> Ask<'a> {
    /// A `GET`.
    pub(super) const fn get(url: &'a str, expect: &'a Expect, within: Duration) -> Self {
        Self { method: "GET", url, headers: &[], body: &[], expect, within }
    }

    /// Sends the request; returns the body of the expected response.
    pub(super) fn send(&self, stop: &Stop) -> Result<Vec<u8>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let response = runtime.block_on(async {
            tokio::select! {
                biased;
                sent = self.exchange() => sent,
                () = wait_for(stop) => Err("the suite ends".to_owned()),
            }
        })?;
        if !self.expect.allows(response.status.as_u16()) {
            return Err(format!("status {}", response.status.as_u16()));
        }
        self.expect.check(&response.body)?;
        Ok(response.body.into())
    }

    async fn exchange(&self) -> Result<ClientResponse, String> {
        let (origin, uri) = parse_url(self.url).map_err(|error| error.to_string())?;
        let connect = ConnectConfig {
            // `connection: close` exists only there.
            protocol: Protocol::Http1,
            timeout: self.within.min(CONNECTED_WITHIN).into(),
            ..ConnectConfig::default()
        };
        let connector = Connector::load(&origin, &connect).map_err(|error| error.to_string())?;
        let mut request = Request::builder().method(self.method).uri(uri);
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        let request = request.header(header::CONNECTION, "close");
        let request = request.body(Full::new(Bytes::copy_from_slice(self.body)));
        let mut request = request.map_err(|error| error.to_string())?;
        if self.method != "GET" && self.body.is_empty() {
            // A server may insist on it (411).
            request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        let body_bytes_max = self.expect.bytes_max.as_len();
        let client = Client::new(connector, ClientLimits { body_bytes_max, idle_max: 0 });
        client.send(request, self.within.into()).await.map_err(|error| {
            if error.is_timeout() {
                format!("no response within {:?}", self.within)
            } else {
                error.to_string()
            }
        })
    }
}

async fn wait_for(stop: &Stop) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if stop.is_stopped() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Ask;
    use curtail_generator::Stop;
    use curtail_generator::expect::Expect;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::time::Duration;

    /// The result of a request, and its text, when the response is these bytes; without any, there is none.
    fn exchange(
        method: &str,
        response: Option<&'static [u8]>,
        within: Duration,
        stop: &Stop,
    ) -> (Result<Vec<u8>, String>, String) {
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
        let result = Ask { method, ..Ask::get(&url, &expect, within) }.send(stop);
        (result, server.join().expect("it serves"))
    }

    /// The result of a `GET`.
    fn asked(
        response: Option<&'static [u8]>,
        within: Duration,
        stop: &Stop,
    ) -> Result<Vec<u8>, String> {
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
            assert_eq!(result, Ok(b"x".to_vec()));
            assert_eq!(head.contains("content-length: 0\r\n"), has_length, "{head}");
            assert!(head.contains("connection: close\r\n"), "{head}");
        }
    }

    #[test]
    fn a_response_is_good_bad_or_absent() {
        let (long, stop) = (Duration::from_secs(60), Stop::default());
        let good = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nax\r\n0\r\n\r\n";
        assert_eq!(asked(Some(good), long, &stop), Ok(b"ax".to_vec()));
        let bad = asked(Some(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"), long, &stop);
        assert_eq!(bad, Err("status 404".to_owned()));
        let lacks = asked(Some(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na"), long, &stop);
        assert!(lacks.expect_err("no x").contains("does not contain \"x\""));
        let cut = asked(Some(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nax"), long, &stop);
        assert!(cut.expect_err("cut").contains("the response broke off"));
        let none = asked(None, Duration::from_millis(200), &stop);
        assert_eq!(none, Err("no response within 200ms".to_owned()));
        stop.stop();
        assert_eq!(asked(None, long, &stop), Err("the suite ends".to_owned()));
    }
}

//! Asking a server over HTTP.

use crate::server_url::ServerUrl;
use anyhow::Context as _;
use bytes::Bytes;
use http::response::Parts;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::TcpStream;

/// Longer than a server takes to give a question up.
const PATIENCE: Duration = Duration::from_secs(70);

const PORT: u16 = 3200;

/// A path, and parameters.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Question(String);

/// What a server says that is no error.
#[derive(Debug)]
pub(crate) enum Answered {
    Json {
        json: serde_json::Value,
        /// The relative error that a quantile in it may have, if the server says so.
        quantile_error: Option<f64>,
    },
    NotFound(String),
}

/// The server does not answer this: whoever asked can mend it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) String);

impl Question {
    pub(super) fn of(path: &str) -> Self {
        Self(path.to_owned())
    }

    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        let value: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
        let sign = if self.0.contains('?') { '&' } else { '?' };
        self.0.push_str(&format!("{sign}{name}={value}"));
        self
    }
}

/// Asks, and waits for the answer.
pub(super) fn ask(
    server: &str,
    tenant: Option<&str>,
    question: &Question,
) -> anyhow::Result<Answered> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (head, body) = runtime.block_on(async {
        let asking = exchange(server, tenant, question);
        tokio::time::timeout(PATIENCE, asking).await.map_err(std::io::Error::from)?
    })?;
    let text = || String::from_utf8_lossy(&body).trim_end().to_owned();
    match head.status {
        StatusCode::OK => {
            let json = serde_json::from_slice(&body);
            let json = json.map_err(|_| Refused(format!("{server} is no curtail server")))?;
            let quantile_error = header(&head, "curtail-quantile-error");
            Ok(Answered::Json { json, quantile_error: quantile_error.and_then(|e| e.parse().ok()) })
        }
        StatusCode::NOT_FOUND => Ok(Answered::NotFound(text())),
        _ => Err(Refused(text()).into()),
    }
}

async fn exchange(
    server: &str,
    tenant: Option<&str>,
    question: &Question,
) -> anyhow::Result<(Parts, Bytes)> {
    // What was found is not repeated: it may hold a password.
    let wrong = || {
        Refused(
            "--server: expected http://HOST[:PORT][/PATH], without user name, query or fragment"
                .into(),
        )
    };
    let ServerUrl { authority, path } = ServerUrl::parse(server, PORT).ok_or_else(wrong)?;
    let stream = TcpStream::connect(&authority)
        .await
        .with_context(|| format!("no server answers at {authority} (curtail server starts one)"))?;
    let broke_off = |error: hyper::Error| std::io::Error::other(error);
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(broke_off)?;
    let driving = tokio::spawn(connection);
    let mut request = Request::get(format!("{path}{}", question.0)).header("host", &authority);
    if let Some(tenant) = tenant {
        request = request.header("x-scope-orgid", tenant);
    }
    let request =
        request.body(Empty::<Bytes>::new()).map_err(|error| Refused(error.to_string()))?;
    let (head, body) = sender.send_request(request).await.map_err(broke_off)?.into_parts();
    if let Some(unread) = header(&head, "curtail-unread") {
        eprintln!("{unread} files cannot be read, and may have more: the server's log names them");
    }
    let body = body.collect().await.map_err(broke_off)?.to_bytes();
    driving.abort();
    Ok((head, body))
}

fn header<'a>(head: &'a Parts, name: &str) -> Option<&'a str> {
    head.headers.get(name).and_then(|value| value.to_str().ok())
}

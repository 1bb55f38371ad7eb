//! Asking a server over HTTP.

use crate::server_url::ServerUrl;
use bytes::Bytes;
use curtail_http::client::{Client, ClientError, ClientLimits, ClientResponse};
use curtail_http::connect::{ConnectConfig, Connector};
use curtail_units::Duration;
use http::{Request, StatusCode};
use http_body_util::Empty;

/// Longer than the time limit of a server for a query.
const TIMEOUT: Duration = Duration::from_secs(70);

/// The maximum size of a response.
const LIMITS: ClientLimits = ClientLimits { body_bytes_max: 64 << 30, idle_max: 0 };

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
    let response = runtime.block_on(exchange(server, tenant, question))?;
    let text = || String::from_utf8_lossy(&response.body).trim_end().to_owned();
    match response.status {
        StatusCode::OK => {
            let json = serde_json::from_slice(&response.body);
            let json = json.map_err(|_| Refused(format!("{server} is no curtail server")))?;
            let quantile_error = header(&response, "curtail-quantile-error");
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
) -> anyhow::Result<ClientResponse> {
    // The message does not repeat the argument, which may hold a password.
    let wrong = || {
        Refused(
            "--server: expected http://HOST[:PORT][/PATH], without user name, query or fragment"
                .into(),
        )
    };
    let ServerUrl { origin, path } = ServerUrl::parse(server, PORT).ok_or_else(wrong)?;
    let mut request = Request::get(format!("{path}{}", question.0));
    if let Some(tenant) = tenant {
        request = request.header("x-scope-orgid", tenant);
    }
    let request =
        request.body(Empty::<Bytes>::new()).map_err(|error| Refused(error.to_string()))?;
    let connect = ConnectConfig { timeout: TIMEOUT, ..ConnectConfig::default() };
    let client = Client::new(Connector::load(&origin, &connect)?, LIMITS);
    let response = client.send(request, TIMEOUT).await.map_err(|error| {
        let is_away = matches!(error, ClientError::Connect(_));
        let error = anyhow::Error::from(error);
        if is_away {
            error.context("no server responds; start one with: curtail server")
        } else {
            error
        }
    })?;
    if let Some(unread) = header(&response, "curtail-unread") {
        eprintln!("{unread} files cannot be read, and may have more: the server's log names them");
    }
    Ok(response)
}

fn header<'a>(response: &'a ClientResponse, name: &str) -> Option<&'a str> {
    response.headers.get(name).and_then(|value| value.to_str().ok())
}

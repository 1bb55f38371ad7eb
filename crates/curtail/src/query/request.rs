//! One request to the query API of a server, and its response.

use crate::output::print_message;
use crate::server_access::ServerAccessArgs;
use crate::server_url::ServerUrl;
use curtail_http::client::{ClientError, ClientLimits, ClientResponse};
use curtail_http::connect::ConnectError;
use curtail_units::Duration;
use http::{Request, StatusCode};
use http_body_util::Full;

/// Maximum time of an exchange; longer than a server's time limit for a query.
const TIMEOUT: Duration = Duration::from_secs(70);

const LIMITS: ClientLimits = ClientLimits { body_bytes_max: 64 << 30, idle_max: 0 };

const PORT: u16 = 3200;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QueryRequest(String);

#[derive(Debug)]
pub(crate) enum QueryResult {
    Json {
        json: serde_json::Value,
        /// The maximum relative error of the quantiles in `json`, if the server reports it.
        quantile_error: Option<f64>,
    },
    NotFound(String),
}

/// A query that the server rejects, or an invalid argument; the caller can correct both.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct QueryRejected(pub(crate) String);

impl QueryRequest {
    pub(crate) fn new(path: &str) -> Self {
        Self(path.to_owned())
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        let value: String = form_urlencoded::byte_serialize(value.as_bytes()).collect();
        let sign = if self.0.contains('?') { '&' } else { '?' };
        self.0.push_str(&format!("{sign}{name}={value}"));
        self
    }
}

pub(crate) fn send(
    server: &str,
    access: &ServerAccessArgs,
    query: &QueryRequest,
) -> anyhow::Result<QueryResult> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let response = runtime.block_on(exchange(server, access, query))?;
    let text = || String::from_utf8_lossy(&response.body).trim_end().to_owned();
    match response.status {
        StatusCode::OK => {
            let json = serde_json::from_slice(&response.body);
            let json = json.map_err(|_| QueryRejected(format!("{server} is no curtail server")))?;
            let error = header(&response, "curtail-quantile-error");
            let quantile_error = error.and_then(|error| error.parse().ok());
            Ok(QueryResult::Json { json, quantile_error })
        }
        StatusCode::NOT_FOUND => Ok(QueryResult::NotFound(text())),
        StatusCode::UNAUTHORIZED => {
            Err(QueryRejected(format!("{}; pass --token-file", text())).into())
        }
        _ => Err(QueryRejected(text()).into()),
    }
}

async fn exchange(
    server: &str,
    access: &ServerAccessArgs,
    query: &QueryRequest,
) -> anyhow::Result<ClientResponse> {
    // The message does not repeat the argument: it may hold a password.
    let wrong = || {
        let text = "--server: expected http://HOST[:PORT][/PATH] or https://…, without user name, query or fragment";
        QueryRejected(text.to_owned())
    };
    let url = ServerUrl::parse(server, Some(PORT)).ok_or_else(wrong)?;
    let mut request = Request::get(format!("{}{}", url.path, query.0))
        .body(Full::default())
        .map_err(|error| QueryRejected(error.to_string()))?;
    *request.headers_mut() = access.headers()?;
    let client = access.client(&url, TIMEOUT, LIMITS)?;
    let response = client.send(request, TIMEOUT).await.map_err(|error| {
        let is_away = matches!(&error, ClientError::Connect(error) if !is_tls(error));
        let error = anyhow::Error::from(error);
        if is_away {
            error.context("no server responds; start one with: curtail server")
        } else {
            error
        }
    })?;
    if let Some(unread) = header(&response, "curtail-incomplete") {
        print_message(&format!(
            "incomplete result: {unread} files of the server cannot be read; its log names them"
        ));
    }
    Ok(response)
}

const fn is_tls(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Tls { .. })
}

fn header<'a>(response: &'a ClientResponse, name: &str) -> Option<&'a str> {
    response.headers.get(name).and_then(|value| value.to_str().ok())
}

//! One request to the query API of a server, and its response.

use crate::output::print_message;
use crate::server_access::ServerAccessArgs;
use crate::server_url::ServerUrl;
use curtail_http::client::{ClientError, ClientLimits, ClientResponse};
use curtail_http::connect::ConnectError;
use curtail_units::Duration;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Full;

/// Maximum time of an exchange; longer than a server's time limit for a query.
const TIMEOUT: Duration = Duration::from_secs(70);

const LIMITS: ClientLimits = ClientLimits { body_bytes_max: 64 << 30, idle_max: 0 };

const PORT: u16 = 3200;

/// The URL of the query API of a server on this machine.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:3200";

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

/// The command line that asks the same server as this command.
pub(crate) fn command_for(command: &str, server: &str) -> String {
    if server == DEFAULT_SERVER {
        command.to_owned()
    } else {
        format!("{command} --server {server}")
    }
}

pub(crate) fn send(
    server: &str,
    access: &ServerAccessArgs,
    query: &QueryRequest,
) -> anyhow::Result<QueryResult> {
    let response = match receive(server, access, query, None)? {
        Ok(response) => response,
        Err(not_found) => return Ok(QueryResult::NotFound(not_found)),
    };
    let json = serde_json::from_slice(&response.body);
    let json = json.map_err(|_| QueryRejected(format!("{server}: expected a response in JSON")))?;
    let error = field(&response, "curtail-quantile-error");
    let quantile_error = error.and_then(|error| error.parse().ok());
    Ok(QueryResult::Json { json, quantile_error })
}

/// Sends a query whose result, of the media type `accept`, is printed as it is. The inner error is the message of a
/// server that did not find something.
pub(crate) fn send_for_text(
    server: &str,
    access: &ServerAccessArgs,
    query: &QueryRequest,
    accept: &'static str,
) -> anyhow::Result<Result<String, String>> {
    let received = receive(server, access, query, Some(accept))?;
    Ok(received.map(|response| String::from_utf8_lossy(&response.body).into_owned()))
}

/// Sends a query, and returns the response, or the message of a server that did not find something.
fn receive(
    server: &str,
    access: &ServerAccessArgs,
    query: &QueryRequest,
    accept: Option<&'static str>,
) -> anyhow::Result<Result<ClientResponse, String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let response = runtime.block_on(exchange(server, access, query, accept))?;
    // An error may be of a gateway in front of the server.
    let is_of_server = matches!(response.status, StatusCode::OK | StatusCode::NOT_FOUND);
    if is_of_server && field(&response, "curtail-version").is_none() {
        return Err(QueryRejected(format!(
            "{server} is not the query API of a curtail server, or an older one: its response has no header curtail-version \
             (the query API has port {PORT} by default)"
        ))
        .into());
    }
    let message = || message(&response.body);
    match response.status {
        StatusCode::OK => Ok(Ok(response)),
        StatusCode::NOT_FOUND => Ok(Err(message())),
        StatusCode::UNAUTHORIZED => {
            Err(QueryRejected(format!("{}; pass --token-file", message())).into())
        }
        _ => Err(QueryRejected(message()).into()),
    }
}

/// The message of an error: a text, or JSON below `/api/v1`.
fn message(body: &[u8]) -> String {
    let json = serde_json::from_slice::<serde_json::Value>(body).ok();
    let of_json = json.as_ref().and_then(|json| json.pointer("/error/message")?.as_str());
    of_json.map_or_else(|| String::from_utf8_lossy(body).trim_end().to_owned(), ToOwned::to_owned)
}

async fn exchange(
    server: &str,
    access: &ServerAccessArgs,
    query: &QueryRequest,
    accept: Option<&'static str>,
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
    if let Some(accept) = accept {
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(accept));
    }
    let client = access.client(&url, TIMEOUT, LIMITS)?;
    let response = client.send(request, TIMEOUT).await.map_err(|error| {
        let is_away = matches!(&error, ClientError::Connect(error) if !is_tls(error));
        let error = anyhow::Error::from(error);
        if is_away {
            error.context("no server responds (curtail server starts one)")
        } else {
            error
        }
    })?;
    if let Some(unread) = field(&response, "curtail-incomplete") {
        print_message(&format!(
            "incomplete result: {unread} files of the server cannot be read; its log names them"
        ));
    }
    Ok(response)
}

const fn is_tls(error: &ConnectError) -> bool {
    matches!(error, ConnectError::Tls { .. } | ConnectError::NoVersion { .. })
}

fn field<'a>(response: &'a ClientResponse, name: &str) -> Option<&'a str> {
    response.headers.get(name).and_then(|value| value.to_str().ok())
}

//! Profiles of the running process over HTTP.
//!
//! | path | response |
//! |---|---|
//! | `/debug/pprof/` | the profiles that there are |
//! | `/debug/pprof/profile?seconds=10` | CPU time by stack, in pprof's format |
//! | `/debug/pprof/threads?seconds=10` | busy and waiting time of each thread, and the locks that threads wait for, as JSON |
//!
//! **Limits**: each profile takes at most [`SECONDS_MAX`] seconds, runs once at a time, and ends when its client is gone.
//! Nothing is recorded in between.
//!
//! **Source**: the paths and parameters of Go's package `net/http/pprof`.

mod cpu;
mod format;
mod threads;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// The prefix of all these paths.
pub const PREFIX: &str = "/debug/pprof/";

/// Maximum length of a profile, in seconds.
pub const SECONDS_MAX: u64 = 60;

const SECONDS_DEFAULT: u64 = 10;

const PROFILES: &str = "\
profile?seconds=10   CPU time by stack: go tool pprof http://HOST/debug/pprof/profile
threads?seconds=10   busy and waiting time of each thread, and the locks that threads wait for (JSON)
seconds: from 1 to 60
";

/// The error of a request for a profile.
#[derive(Debug, thiserror::Error)]
enum ProfileError {
    #[error("expected GET")]
    Method,
    #[error("expected one of these below {PREFIX}:\n{PROFILES}")]
    Unknown,
    #[error("seconds: {0:?}: expected a whole number from 1 to {SECONDS_MAX}")]
    Seconds(String),
    #[error("another profile is being recorded: retry when it has ended")]
    Busy,
    #[error("the client is gone")]
    Gone,
    #[error("the system gives no profile: {0}")]
    System(String),
}

impl ProfileError {
    const fn status(&self) -> StatusCode {
        match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Unknown => StatusCode::NOT_FOUND,
            Self::Seconds(_) => StatusCode::BAD_REQUEST,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            Self::Gone | Self::System(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A kind of profile, each with its recorder and its media type.
struct ProfileKind {
    media_type: &'static str,
    is_busy: AtomicBool,
    record: fn(Duration, &Client) -> Result<Vec<u8>, ProfileError>,
}

static CPU: ProfileKind = ProfileKind {
    media_type: "application/octet-stream",
    is_busy: AtomicBool::new(false),
    record: cpu::record,
};

static THREADS: ProfileKind = ProfileKind {
    media_type: "application/json",
    is_busy: AtomicBool::new(false),
    record: threads::record,
};

/// Responds to a request whose path begins with [`PREFIX`]. The profile ends if this future is dropped.
pub async fn respond(method: &Method, path: &str, query: Option<&str>) -> Response<Full<Bytes>> {
    let result = match path.strip_prefix(PREFIX).unwrap_or(path) {
        _ if method != Method::GET => Err(ProfileError::Method),
        "" => Ok((TEXT, PROFILES.into())),
        "profile" => CPU.respond(query).await,
        "threads" => THREADS.respond(query).await,
        _ => Err(ProfileError::Unknown),
    };
    let (status, (media_type, body)) = match result {
        Ok(content) => (StatusCode::OK, content),
        Err(error) => (error.status(), (TEXT, format!("{error}\n").into())),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, HeaderValue::from_static("GET"));
    }
    response
}

const TEXT: &str = "text/plain; charset=utf-8";

impl ProfileKind {
    async fn respond(
        &'static self,
        query: Option<&str>,
    ) -> Result<(&'static str, Bytes), ProfileError> {
        let lasts = Duration::from_secs(seconds(query.unwrap_or_default())?);
        let turn = Turn::take(&self.is_busy)?;
        let (client, gone) = sync_channel::<Infallible>(0);
        let (done, recorded) = oneshot::channel();
        let record = move || {
            let profile = (self.record)(lasts, &Client(gone));
            drop(turn);
            // The client may be gone.
            done.send(profile).ok();
        };
        // A thread of its own: the caller's thread may serve requests.
        let thread = std::thread::Builder::new().name("profile".to_owned());
        thread.spawn(record).map_err(|error| ProfileError::System(error.to_string()))?;
        let profile = recorded.await;
        drop(client);
        let panicked = |_| ProfileError::System("its thread has panicked".to_owned());
        Ok((self.media_type, profile.map_err(panicked)??.into()))
    }
}

/// Reads the parameter `seconds`.
fn seconds(query: &str) -> Result<u64, ProfileError> {
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let Some((_, text)) = pairs.find(|(name, _)| name == "seconds") else {
        return Ok(SECONDS_DEFAULT);
    };
    let seconds = text.parse().ok().filter(|seconds| (1..=SECONDS_MAX).contains(seconds));
    seconds.ok_or_else(|| ProfileError::Seconds(text.into_owned()))
}

/// The permit to record a profile of one kind.
struct Turn(&'static AtomicBool);

impl Turn {
    fn take(is_busy: &'static AtomicBool) -> Result<Self, ProfileError> {
        if is_busy.swap(true, Ordering::Acquire) {
            return Err(ProfileError::Busy);
        }
        Ok(Self(is_busy))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The client that waits for a profile. The other end of the channel is dropped when the client is gone.
struct Client(Receiver<Infallible>);

impl Client {
    /// Waits for a time.
    fn wait(&self, lasts: Duration) -> Result<(), ProfileError> {
        match self.0.recv_timeout(lasts) {
            Err(RecvTimeoutError::Timeout) => Ok(()),
            Err(RecvTimeoutError::Disconnected) => Err(ProfileError::Gone),
            Ok(never) => match never {},
        }
    }
}

#[cfg(test)]
mod tests;

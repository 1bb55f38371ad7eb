//! CPU profiles of processes during a block, from their own HTTP servers.
//!
//! **Source**: the path and the parameter `seconds` of Go's package `net/http/pprof`, which Curtail's programs have too.

use super::ask::PlainClient;
use super::cluster::Cluster;
use curtail_generator::Stop;
use curtail_generator::expect::Expect;
use curtail_report::results::Event;
use curtail_units::Duration;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Maximum length of a profile in seconds: that of Curtail's programs.
const SECONDS_MAX: u64 = 60;

/// Maximum time from the end of a profile to its response: the process then looks up the names of its functions.
const RESPONSE_WITHIN: Duration = Duration::from_secs(30);

/// The first bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The threads that wait for profiles.
#[derive(Debug)]
pub(super) struct Profiles(Vec<JoinHandle<Event>>);

impl Profiles {
    /// Starts a profile of each process with a URL for it, of a block of this arm that lasts `lasts`.
    pub(super) fn begin(arm: &str, cluster: &Arc<Cluster>, lasts: Duration) -> Self {
        let record = |(process, url): (&str, &str)| {
            let file = cluster.spawner.file(&format!("{arm}-{process}.pb.gz"));
            let profile = Profile { url: url.to_owned(), seconds: seconds(lasts), file };
            let (process, cluster) = (process.to_owned(), Arc::clone(cluster));
            std::thread::spawn(move || {
                let at = cluster.clock.now();
                let what = match profile.record(&cluster.stop) {
                    Ok(()) => format!("CPU profile of {process}: {}", name(&profile.file)),
                    Err(problem) => format!("no CPU profile of {process}: {problem}"),
                };
                Event { at, lasted: cluster.clock.now().since(at), what }
            })
        };
        Self(cluster.profile_urls().map(record).collect())
    }

    /// Waits for the profiles; appends an event for each, which has the error if there is one.
    pub(super) fn end(self, events: &mut Vec<Event>) {
        events.extend(
            self.0.into_iter().map(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            }),
        );
    }
}

/// The length of a profile: the whole seconds that contain the block.
fn seconds(lasts: Duration) -> u64 {
    lasts.as_ns().div_ceil(Duration::from_secs(1).as_ns()).clamp(1, SECONDS_MAX)
}

fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A profile of one process.
#[derive(Debug)]
struct Profile {
    url: String,
    seconds: u64,
    file: PathBuf,
}

impl Profile {
    fn record(&self, stop: &Stop) -> Result<(), String> {
        let Self { url, seconds, file } = self;
        let and = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{and}seconds={seconds}");
        let expect = Expect { status: Some(200), ..Expect::default() };
        let within = Duration::from_secs(*seconds) + RESPONSE_WITHIN;
        let response = PlainClient::get(&url, &expect)
            .and_then(|client| client.send(Vec::new(), within, stop))
            .map_err(|problem| format!("GET {url}: {problem}"))?;
        if !response.starts_with(&GZIP) {
            return Err(format!("GET {url}: the response is no gzip: expected pprof's format"));
        }
        std::fs::write(file, response).map_err(|error| format!("{}: {error}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Profile, seconds};
    use curtail_generator::Stop;
    use curtail_units::Duration;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    #[test]
    fn a_profile_lasts_as_long_as_its_block_in_whole_seconds() {
        for (ms, expected) in [(1, 1), (1_000, 1), (1_001, 2), (20_000, 20), (3_600_000, 60)] {
            assert_eq!(seconds(Duration::from_ms(ms)), expected, "{ms} ms");
        }
    }

    /// The result of a profile when the response is these bytes, with the first line of its request.
    fn record(path: &str, response: &'static [u8], file: &str) -> (Result<(), String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut head = [0; 4_096];
            let n = stream.read(&mut head).expect("a request");
            stream.write_all(response).expect("it reads");
            String::from_utf8_lossy(&head[..n]).lines().next().unwrap_or_default().to_owned()
        });
        let file = std::env::temp_dir().join(format!("{file}-{}", std::process::id()));
        let profile = Profile { url: format!("http://{address}{path}"), seconds: 2, file };
        let recorded = profile.record(&Stop::default());
        if recorded.is_ok() {
            let body = std::fs::read(&profile.file).expect("it was written");
            std::fs::remove_file(&profile.file).expect("it is ours");
            assert_eq!(body, [0x1f, 0x8b, 7]);
        }
        (recorded, server.join().expect("it serves"))
    }

    #[test]
    fn a_profile_is_written_and_any_other_response_is_an_error() {
        let good = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n\x1f\x8b\x07";
        let path = "/debug/pprof/profile";
        let (recorded, request) = record(path, good, "good");
        assert_eq!(recorded, Ok(()));
        assert_eq!(request, "GET /debug/pprof/profile?seconds=2 HTTP/1.1");
        let (recorded, request) = record("/p?a=b", good, "query");
        assert_eq!(recorded, Ok(()));
        assert_eq!(request, "GET /p?a=b&seconds=2 HTTP/1.1");
        for (response, problem) in [
            (&b"HTTP/1.1 429 Busy\r\ncontent-length: 0\r\n\r\n"[..], "status 429"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", "the response is no gzip"),
        ] {
            let (recorded, _) = record(path, response, "bad");
            let error = recorded.expect_err("no profile");
            assert!(error.starts_with("GET http://") && error.contains(problem), "{error}");
        }
    }
}

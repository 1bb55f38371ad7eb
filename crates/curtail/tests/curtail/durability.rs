//! `curtail server` and its data folder: duplicates, damage, and exclusive use.

use crate::command::{curtail, written};
use crate::server::{Server, batch, folder};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Starts a server whose API port is in use, so that it always ends; returns its output.
fn start_error(data: &Path, otlp: &str, tokens: Option<&str>) -> String {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let api = taken.local_addr().expect("it is bound").to_string();
    let data = data.to_str().expect("text");
    let mut arguments = vec!["server", "--data", data, "--otlp", otlp, "--api", &api];
    let tokens = tokens.map(|tokens| format!("otlp.tokens_file={tokens}"));
    arguments.extend(tokens.iter().flat_map(|tokens| ["--set", tokens]));
    let ended = curtail(&arguments);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    ended.stderr
}

/// The newest file of a folder whose name has this beginning and end.
fn newest(folder: &Path, begin: &str, end: &str) -> PathBuf {
    let entries =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let name = |path: &PathBuf| {
        path.file_name().is_some_and(|name| {
            let name = name.to_string_lossy();
            name.starts_with(begin) && name.ends_with(end)
        })
    };
    entries.filter(name).max().unwrap_or_else(|| panic!("no {begin}…{end} in {}", folder.display()))
}

#[test]
fn a_second_server_on_the_same_port_is_refused() {
    let server = Server::start(&folder("port-first"));
    let port = server.otlp.port();
    let error = start_error(&folder("port-second"), &server.otlp.to_string(), None);
    assert!(
        error.contains(&format!(
            "port {port} is already in use; choose another address with otlp.addresses (--otlp)"
        )),
        "{error}"
    );
    let error = start_error(&folder("port-third"), "127.0.0.1:0", None);
    assert!(
        error.contains("is already in use; choose another address with api.address (--api)"),
        "{error}"
    );
    server.ended("TERM");
}

#[test]
fn a_second_server_on_the_same_folder_is_refused_with_the_process_id_of_the_first() {
    let data = folder("folder-taken");
    for signal in ["KILL", "TERM"] {
        let server = Server::start(&data);
        let error = start_error(&data, "127.0.0.1:0", None);
        assert!(error.contains(&format!("process {} uses it", server.process())), "{error}");
        server.ended(signal);
    }
}

#[test]
fn comments_in_a_file_of_tokens_are_ignored() {
    let name = written("commented-tokens", "# c\nsecret\n");
    let tokens = format!("otlp.tokens_file={}/{name}", env!("CARGO_TARGET_TMPDIR"));
    let server = Server::with(&folder("commented-tokens-data"), &["--set", &tokens]);
    for (token, status) in [("# c", "401"), ("c", "401"), ("secret", "200")] {
        let head = format!("authorization: Bearer {token}\r\n");
        let response = server.posts(&head, &batch(1));
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{token}: {response}");
    }
    server.ended("TERM");
    let only = written("only-comments", "# one\n#two\n");
    let only = format!("{}/{only}", env!("CARGO_TARGET_TMPDIR"));
    let error = start_error(&folder("only-comments-data"), "127.0.0.1:0", Some(&only));
    assert!(error.contains("expected at least one token"), "{error}");
}

#[test]
fn an_identical_batch_counts_once_whenever_it_is_sent_again() {
    let data = folder("sent-again");
    let mut server = Server::start(&data);
    let sends = |server: &Server| (1..=3).all(|nth| server.sends(&batch(nth)));
    // The server is killed with a batch in memory, then stopped so that the batch is in a run, then killed once more.
    for signal in ["KILL", "TERM", "KILL", "KILL"] {
        assert!(sends(&server) && sends(&server) && sends(&server));
        assert_eq!((server.trace_count(), server.span_count()), (3, 6.0), "before SIG{signal}");
        server.ended(signal);
        server = Server::start(&data);
        assert_eq!((server.trace_count(), server.span_count()), (3, 6.0), "after SIG{signal}");
    }
    // The same spans in another encoding are other spans, except when the trace is read.
    let reencoded = [&batch(1)[..], &[0x78, 1]].concat();
    assert!(server.sends(&reencoded));
    assert_eq!(server.trace_count(), 3);
    server.ended("TERM");
}

#[test]
fn a_flipped_byte_costs_only_its_own_batch_and_the_file_is_kept() {
    let data = folder("flipped");
    let server = Server::start(&data);
    assert!((0..9).all(|nth| server.sends(&batch(nth))));
    server.ended("KILL");
    let log = data.join("log");
    let segment = newest(&log, "log-", "");
    let mut bytes = fs::read(&segment).expect("a segment");
    let at = bytes.windows(5).position(|window| window == b"GE004").expect("the batch is there");
    bytes[at] ^= 1;
    fs::write(&segment, &bytes).expect("written");
    let server = Server::start(&data);
    assert_eq!(server.trace_count(), 8, "of nine batches");
    server.ended("TERM");
    let kept = fs::read(newest(&log, "damaged-log-", "")).expect("it is kept");
    assert!(kept == bytes, "the file is unchanged");
}

#[test]
fn a_missing_or_damaged_newest_commit_is_an_error() {
    let data = folder("commit-lost");
    for nth in 0..2 {
        let server = Server::start(&data);
        assert!(server.sends(&batch(nth)));
        server.ended("TERM");
    }
    let log = data.join("tables/spans/_delta_log");
    let commit = newest(&log, "0", ".json");
    let name = commit.file_name().expect("a name").to_string_lossy().into_owned();
    let whole = fs::read(&commit).expect("a commit");
    let first_line = whole.iter().position(|byte| *byte == b'\n').expect("several lines") + 1;
    for left in
        [None, Some(&whole[..0]), Some(&whole[..first_line]), Some(&whole[..whole.len() - 9])]
    {
        match left {
            None => fs::remove_file(&commit).expect("removed"),
            Some(left) => fs::write(&commit, left).expect("written"),
        }
        let error = start_error(&data, "127.0.0.1:0", None);
        assert!(error.contains(&name), "{:?} bytes are left: {error}", left.map(<[u8]>::len));
    }
    fs::write(&commit, &whole).expect("written");
    let server = Server::start(&data);
    assert_eq!(server.trace_count(), 2);
    server.ended("TERM");
}

#[test]
fn a_browser_may_send_from_an_allowed_origin() {
    let shop = "https://shop.example";
    let origins = format!("otlp.allow_origins=[\"{shop}\"]");
    let server = Server::with(&folder("origins"), &["--set", &origins]);
    let preflight = |origin: &str| {
        server.asks_otlp(&format!(
            "OPTIONS /v1/traces HTTP/1.1\r\nhost: h\r\nconnection: close\r\norigin: {origin}\r\n\
             access-control-request-method: POST\r\n\
             access-control-request-headers: content-type,x-scope-orgid\r\n\r\n"
        ))
    };
    let allowed = preflight(shop);
    assert!(allowed.starts_with("HTTP/1.1 204"), "{allowed}");
    assert!(allowed.contains(&format!("access-control-allow-origin: {shop}\r\n")), "{allowed}");
    assert!(
        allowed.contains("access-control-allow-headers: content-type,x-scope-orgid"),
        "{allowed}"
    );
    let other = preflight("https://other.example");
    assert!(other.starts_with("HTTP/1.1 403") && other.contains("otlp.allow_origins"), "{other}");
    let sent = server.posts(&format!("origin: {shop}\r\n"), &batch(1));
    assert!(sent.starts_with("HTTP/1.1 200"), "{sent}");
    assert!(sent.contains(&format!("access-control-allow-origin: {shop}\r\n")), "{sent}");
    server.ended("TERM");
}

#[test]
fn a_server_removes_abandoned_files_at_its_start() {
    let data = folder("abandoned");
    let unfinished = data.join("tables/spans/run.parquet#1");
    fs::create_dir_all(unfinished.parent().expect("a folder")).expect("created");
    let file = fs::File::create(&unfinished).expect("created");
    file.set_modified(SystemTime::UNIX_EPOCH).expect("it is ours");
    let server = Server::start(&data);
    let until = Instant::now() + Duration::from_secs(60);
    while unfinished.exists() {
        assert!(Instant::now() < until, "the file is still there");
        std::thread::yield_now();
    }
    server.ended("TERM");
}

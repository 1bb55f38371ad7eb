//! Lists of targets, in a file and at a URL.

use super::{
    Fleet, replicas, start, state, until_error, until_no_error, until_replicas, until_urls,
};
use crate::deadline::run;
use crate::directory::Directory;
use crate::logs;
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::RawReplica;
use crate::steady::Steady;
use curtail_proxy::Options;
use http::Version;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

/// The list of these servers.
fn list(fleet: &Fleet, servers: &[usize]) -> String {
    let address = |nth: &usize| fleet.replicas[*nth].address().to_string();
    let targets: Vec<String> = servers.iter().map(address).collect();
    serde_json::json!([{ "targets": targets, "labels": { "env": "test" } }]).to_string()
}

async fn no_request_failed(proxy: &Proxy) {
    let metrics = proxy.metrics().await;
    assert_eq!(metrics.sum("curtail_requests_failed_total", &[]), 0, "{metrics}");
}

#[test]
fn a_file_is_read_again_when_it_changes_and_a_broken_one_changes_nothing() {
    run(async {
        let fleet = Fleet::start("file.test", 71, 3, 0).await;
        let directory = Directory::new();
        let path = directory.path("targets.json");
        let replace = |text: &str| {
            let new = directory.write("new.json", text);
            std::fs::rename(new, &path).expect("the same folder");
        };
        let file = path.display();
        let proxy =
            Setup::before_urls([]).upstream(&format!("discovery: {{file: {{path: {file}}}}}"));
        let proxy = start(proxy).await;
        until_error(&proxy, "No such file").await;
        let source = file.to_string();
        logs::until(&["WARN", &source, "there are no replicas", "No such file"]).await;
        replace(&list(&fleet, &[0]));
        until_urls(&proxy, &fleet.urls(&[0])).await;
        logs::until(&["INFO", &source, "discovery succeeds"]).await;
        assert!(logs::find(&[&source, "succeeds again"]).is_none(), "it is the first success");
        let steady = Steady::start(&proxy, Version::HTTP_11).await;
        replace(&list(&fleet, &[0, 1]));
        fleet.until_asked(1).await;
        // The same length, written in place.
        std::fs::write(&path, list(&fleet, &[1, 2])).expect("a file");
        until_urls(&proxy, &fleet.urls(&[1, 2])).await;
        let before = replicas(&proxy).await;
        for (text, says) in [
            ("[{\"targets\": [", "EOF while parsing a list at line 1 column 14"),
            (
                "[{\"targets\": [\"web.test:80\"]}]",
                "[0].targets[0]: \"web.test:80\": expected an IP",
            ),
        ] {
            replace(text);
            until_error(&proxy, says).await;
            assert_eq!(replicas(&proxy).await, before);
            assert_eq!(state(&proxy).await["discovery"]["endpoints"][0]["stale"], true);
            // The log follows from one error to the next.
            let says = says.replace('"', "\\\"");
            logs::until(&["WARN", &source, "its last replicas stay", &says]).await;
        }
        replace(&list(&fleet, &[2, 2]));
        until_urls(&proxy, &fleet.urls(&[2])).await;
        until_no_error(&proxy).await;
        logs::until(&["INFO", &source, "discovery succeeds again"]).await;
        logs::until(&["WARN", "upstream=\"", &source, "duplicates=1"]).await;
        let discovery = state(&proxy).await["discovery"].take();
        assert_eq!(discovery["connected"], serde_json::Value::Null, "a file has no server");
        assert_eq!(discovery["summary"], "2 targets, 1 of them duplicates");
        steady.stop().await;
        no_request_failed(&proxy).await;
    });
}

#[test]
fn a_url_is_asked_again_and_a_bad_response_changes_nothing() {
    run(async {
        let fleet = Fleet::start("url.test", 72, 2, 0).await;
        let respond = |status: &str, body: &str| {
            format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        };
        let response = Arc::new(Mutex::new(respond("200 OK", &list(&fleet, &[0]))));
        let shared = Arc::clone(&response);
        let server = RawReplica::start(move |mut wire, record, _| {
            let shared = Arc::clone(&shared);
            async move {
                while record.read(&mut wire).await.is_some() {
                    let response = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    wire.send(response).await;
                }
            }
        })
        .await;
        let set = |text: String| *response.lock().unwrap_or_else(PoisonError::into_inner) = text;
        let proxy = Setup::before_urls([]).upstream(&format!(
            "discovery: {{http: {{url: \"http://{}/targets?of=search\", interval: 100ms}}}}",
            server.address()
        ));
        let proxy = start(proxy).await;
        until_urls(&proxy, &fleet.urls(&[0])).await;
        let asked = server.record().requests()[0].clone();
        assert_eq!(asked.head.request(), ("GET", "/targets?of=search"));
        let steady = Steady::start(&proxy, Version::HTTP_11).await;
        set(respond("200 OK", &list(&fleet, &[0, 1])));
        fleet.until_asked(1).await;
        let before = replicas(&proxy).await;
        for (text, says) in [
            (respond("500 Internal Server Error", "oops"), "status 500: expected 200"),
            (respond("200 OK", "<html>"), "expected value at line 1 column 1"),
        ] {
            set(text);
            until_error(&proxy, says).await;
            assert_eq!(replicas(&proxy).await, before);
        }
        set(respond("200 OK", &list(&fleet, &[1])));
        until_replicas(&proxy, 1).await;
        steady.stop().await;
        no_request_failed(&proxy).await;
    });
}

#[test]
fn a_file_that_hangs_delays_no_other_source() {
    run(async {
        let fleet = Fleet::start("hangs.test", 73, 1, 0).await;
        let directory = Directory::new();
        let pipe = directory.path("pipe");
        // The opening of a pipe waits for a writer.
        assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there").success());
        let targets = directory.write("targets.json", &list(&fleet, &[0]));
        let setup = Setup::before_urls([])
            .upstream(&format!("discovery: {{file: {{path: {}}}}}", targets.display()));
        let pipe_source =
            |name: &str, source: &str| format!("  {name}:\n    discovery: {{{source}}}\n",);
        let token =
            format!("http: {{url: \"http://127.0.0.1:1/\", token_file: {}}}", pipe.display());
        let file = format!("file: {{path: {}}}", pipe.display());
        let yaml = setup.yaml() + &pipe_source("a-token", &token) + &pipe_source("b-file", &file);
        let proxy = tokio::task::spawn_blocking(move || Proxy::start(&yaml, &Options::default()));
        let proxy = proxy.await.expect("it starts");
        until_urls(&proxy, &fleet.urls(&[0])).await;
        let source = pipe.display().to_string();
        logs::until(&["WARN", "upstream=\"b-file\"", "a file was not read within 10 s"]).await;
        logs::until(&["WARN", "upstream=\"a-token\"", &source, "was not read within 10 s"]).await;
        // The threads end.
        let _writer = std::fs::OpenOptions::new().read(true).write(true).open(&pipe);
    });
}

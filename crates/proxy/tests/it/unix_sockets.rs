//! Unix sockets: of clients, of replicas, and the file of a listener from its start to its end.

use crate::access_log::lines_after;
use crate::certificates::Authority;
use crate::client::Client;
use crate::deadline::run;
use crate::directory::Directory;
use crate::program::{PROGRAM, Program};
use crate::proxy::{Proxy, Setup};
use crate::proxy_protocol::{connect_from, recording};
use crate::replica::{Replica, Seen, Speaks};
use curtail_proxy::{Options, StartError};
use http::{HeaderName, HeaderValue, StatusCode, Version};
use rustls_pki_types::ServerName;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

const GRACE: Duration = Duration::from_secs(300);

/// The configuration with a Unix socket in place of the port for clients; `keys` follow a comma.
fn yaml(setup: &Setup, path: &Path, keys: &str) -> String {
    let address = format!("{{address: unix:{}{keys}", path.display());
    setup.yaml().replacen("{address: \"127.0.0.1:0\"", &address, 1)
}

fn options() -> Options {
    Options { journal: None, seed: 7, ..Options::default() }
}

fn start(setup: &Setup, path: &Path, keys: &str) -> Proxy {
    Proxy::start(&yaml(setup, path, keys), &options())
}

async fn connect(path: &Path, is_http2: bool) -> Client {
    let stream = UnixStream::connect(path).await.expect("the proxy listens");
    Client::over(stream, is_http2).await
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("the proxy has created it").permissions().mode() & 0o777
}

/// Two proxies, and a Unix socket before each.
#[test]
fn requests_pass_over_unix_sockets_on_both_sides() {
    run(async {
        let (replica, directory) = (Replica::responding(Speaks::Http1, "").await, Directory::new());
        let (front, back) = (directory.path("front.sock"), directory.path("back.sock"));
        let log = directory.path("access.log");
        let trusting = Setup::before(&[replica.address()]).top("trusted_proxies: [\"unix:\"]");
        let _back = start(&trusting, &back, "");
        let claim = |name: &'static str, value: &'static str| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        for (nth, protocol) in ["http1", "http2"].into_iter().enumerate() {
            let proxy = Setup::before_urls([format!("http://unix:{}", back.display())])
                .upstream(&format!(
                    "connect: {{protocol: {protocol}}}\nhealth_check: {{http: /healthz}}"
                ))
                .top(&format!("access_log: {{file: {}}}", log.display()));
            let proxy = start(&proxy, &front, "");
            let label = format!("unix:{}", back.display());
            let labels = [("replica", &*label)];
            proxy.until(|m| m.sum("curtail_replica_healthy", &labels) == 1).await;
            for is_http2 in [false, true] {
                let mut client = connect(&front, is_http2).await;
                let mut request = client.request("GET", "/");
                request.headers_mut().extend([claim("x-forwarded-for", "203.0.113.9")]);
                assert_eq!(client.send(request).await.status, StatusCode::OK);
                let seen = replica.record().seen();
                let seen = seen.iter().rfind(|seen| seen.uri.path() == "/").expect("a request");
                // The first proxy does not trust its client, and neither has an address.
                assert_eq!(seen.get("x-forwarded-for"), None);
                assert_eq!(seen.get("x-forwarded-proto"), Some("http"));
            }
            let lines = lines_after(&proxy, 2, &log).await;
            let lines: Vec<_> = lines.iter().map(|line| &line["client"]).collect();
            assert_eq!(lines, vec!["unix:"; 2 * (nth + 1)]);
            proxy.stop(GRACE).await.expect("it stops");
        }
        let mut client = connect(&back, false).await;
        let mut request = client.request("GET", "/");
        let claims = [claim("x-forwarded-for", "203.0.113.9"), claim("forwarded", "for=a")];
        request.headers_mut().extend(claims);
        client.send(request).await;
        let seen = replica.record().seen().pop().expect("a request");
        assert_eq!(seen.get("x-forwarded-for"), Some("203.0.113.9"));
        assert_eq!(seen.get("forwarded"), Some("for=a, for=_unix;proto=http"));
    });
}

#[test]
fn a_unix_socket_carries_tls_and_the_proxy_protocol() {
    run(async {
        let (replica, directory) = (Replica::responding(Speaks::Http1, "").await, Directory::new());
        let (authority, path) = (Authority::new(), directory.path("s"));
        let setup = Setup::before(&[replica.address()]);
        let issued = authority.issue("localhost");
        let tls = start(&setup, &path, &format!(", {}", issued.listener_keys()));
        let connector = TlsConnector::from(authority.client(&["h2"]));
        let stream = UnixStream::connect(&path).await.expect("the proxy listens");
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = connector.connect(name, stream).await.expect("a good certificate");
        assert_eq!(Client::over(stream, true).await.get("/").await.status, StatusCode::OK);
        tls.stop(GRACE).await.expect("it stops");

        let _back = start(&setup, &path, ", proxy_protocol: {from: [\"unix:\"]}");
        for version in ["v1", "v2"] {
            let front = Setup::before_urls([format!("http://unix:{}", path.display())])
                .upstream(&format!(
                    "connect: {{proxy_protocol: {version}}}\nhealth_check: {{http: /healthz}}"
                ))
                .start();
            front.until(|metrics| metrics.sum("curtail_replica_healthy", &[]) == 1).await;
            let stream = connect_from([127, 0, 0, 3], front.address()).await;
            let mut client = Client::over(stream, false).await;
            assert_eq!(client.get("/").await.status, StatusCode::OK);
            let seen = replica.record().seen();
            let seen = seen.iter().rfind(|seen| seen.uri.path() == "/").expect("a request");
            assert_eq!(seen.get("x-forwarded-for"), Some("127.0.0.3"));
        }
    });
}

#[test]
fn a_replica_learns_that_a_client_has_no_address() {
    run(async {
        let (replica, directory) = (recording().await, Directory::new());
        let path = directory.path("s");
        let setup = Setup::before(&[replica.address()])
            .workers(1)
            .upstream("connect: {proxy_protocol: v1}");
        let proxy = start(&setup, &path, "");
        for _ in 0..2 {
            let mut client = connect(&path, false).await;
            assert_eq!(client.get("/").await.status, StatusCode::OK);
            let request = replica.record().requests().pop().expect("a request");
            assert_eq!(request.head.get("header"), Some("PROXY UNKNOWN"));
            proxy.until(|metrics| metrics.sum("curtail_connections_idle", &[]) == 1).await;
        }
        assert_eq!(replica.record().connections(), 1, "such clients share it");
    });
}

/// Forwards all connections of a Unix socket.
fn forward(path: &Path, to: SocketAddr) {
    let socket = tokio::net::UnixListener::bind(path).expect("a socket");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = socket.accept().await {
            tokio::spawn(async move {
                let mut server = TcpStream::connect(to).await.expect("the replica listens");
                tokio::io::copy_bidirectional(&mut client, &mut server).await.ok();
            });
        }
    });
}

#[test]
fn a_probe_over_a_unix_socket_names_a_host() {
    run(async {
        for (protocol, speaks) in [("http1", Speaks::Http1), ("http2", Speaks::Http2)] {
            let (replica, directory) = (Replica::responding(speaks, "").await, Directory::new());
            let paths = [directory.path("a"), directory.path("b")];
            paths.iter().for_each(|path| forward(path, replica.address()));
            let urls = paths.each_ref().map(|path| format!("http://unix:{}", path.display()));
            let proxy = Setup::before_urls(urls).upstream(&format!(
                "connect: {{protocol: {protocol}}}\n\
                 balance: {{policy: prequal, probes_per_request: 1.0, probe_timeout: 600s}}"
            ));
            let proxy = proxy.start();
            let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
            assert_eq!(client.get("/").await.status, StatusCode::OK);
            let is_probe = |seen: &Seen| seen.uri.path() == "/.curtail/load";
            replica.record().until(|record| record.matching(is_probe) > 0).await;
            let seen = replica.record().seen();
            let probe = seen.iter().find(|seen| is_probe(seen)).expect("a probe");
            let authority = probe.uri.authority().map(|authority| authority.as_str());
            assert_eq!(probe.get("host").or(authority), Some("localhost"), "{protocol}");
        }
    });
}

#[test]
fn the_file_of_a_listener_comes_and_goes_with_it() {
    run(async {
        let (replica, directory) = (Replica::responding(Speaks::Http1, "").await, Directory::new());
        let (path, other) = (directory.path("s"), directory.path("t"));
        let setup = Setup::before(&[replica.address()]);
        drop(UnixListener::bind(&path).expect("a socket"));
        let proxy = start(&setup, &path, ", mode: 0660");
        assert_eq!(mode(&path), 0o660);
        let taken = Proxy::try_start(&yaml(&setup, &path, ""), &options());
        let taken = taken.expect_err("another proxy listens there");
        assert!(matches!(taken, StartError::Listen { .. }), "{taken}");
        let text = format!("cannot listen on unix:{}: another process listens", path.display());
        assert!(taken.to_string().contains(&text), "{taken}");

        let mut client = connect(&path, true).await;
        assert_eq!(client.get("/").await.status, StatusCode::OK);
        proxy.reload_yaml(&yaml(&setup, &path, ", mode: 0600")).expect("the reload succeeds");
        assert_eq!(mode(&path), 0o600);
        assert_eq!(client.get("/").await.status, StatusCode::OK, "its listener is the same");
        proxy.reload_yaml(&yaml(&setup, &other, "")).expect("the reload succeeds");
        assert_eq!(connect(&other, true).await.get("/").await.status, StatusCode::OK);
        while path.exists() {
            tokio::task::yield_now().await;
        }
        proxy.stop(GRACE).await.expect("it stops");
        assert!(!other.exists());
    });
}

#[test]
fn a_reload_binds_a_unix_socket_anew_whose_file_is_gone() {
    run(async {
        let (replica, directory) = (Replica::responding(Speaks::Http1, "").await, Directory::new());
        let path = directory.path("s");
        let setup = Setup::before(&[replica.address()]);
        let proxy = start(&setup, &path, "");
        std::fs::remove_file(&path).expect("the file");
        proxy.reload_yaml(&yaml(&setup, &path, "")).expect("the reload succeeds");
        assert_eq!(connect(&path, false).await.get("/").await.status, StatusCode::OK);
        // The file of another process, and of one that has ended.
        std::fs::remove_file(&path).expect("the file");
        let other = UnixListener::bind(&path).expect("a socket");
        let error = proxy.reload_yaml(&yaml(&setup, &path, "")).expect_err("it listens there");
        let text = format!("cannot listen on unix:{}: another process listens", path.display());
        assert!(error.to_string().contains(&text), "{error}");
        drop(other);
        proxy.reload_yaml(&yaml(&setup, &path, "")).expect("the reload succeeds");
        assert_eq!(connect(&path, false).await.get("/").await.status, StatusCode::OK);
        proxy.stop(GRACE).await.expect("it stops");
        assert!(!path.exists());
    });
}

#[test]
fn a_new_process_takes_a_unix_socket_over() {
    run(async {
        let (replica, directory) = (Replica::responding(Speaks::Http1, "").await, Directory::new());
        let path = directory.path("s");
        let restart = format!("restart: {{socket: {}}}", directory.path("r").display());
        let setup = Setup::before(&[replica.address()]).top(&restart);
        let old = start(&setup, &path, "");
        let mut client = connect(&path, false).await;
        assert_eq!(client.get("/").await.status, StatusCode::OK);
        let yaml = yaml(&setup, &path, "");
        let starting = tokio::task::spawn_blocking(move || Proxy::start(&yaml, &options()));
        let new = starting.await.expect("it starts");
        old.replaced().await;
        assert_eq!(client.get("/").await.get("connection"), Some("close"));
        old.stop(GRACE).await.expect("it stops");
        assert_eq!(connect(&path, false).await.get("/").await.status, StatusCode::OK);
        new.stop(GRACE).await.expect("it stops");
        assert!(!path.exists());
    });
}

#[test]
fn a_unix_socket_of_systemd_is_used_and_its_file_stays() {
    run(async {
        let (replica, directory) = (Replica::responding(Speaks::Http1, "").await, Directory::new());
        let path = directory.path("s");
        let socket = UnixListener::bind(&path).expect("a socket");
        let passed = OwnedFd::from(socket.try_clone().expect("another handle"));
        let (address, replica) = (path.display(), replica.address());
        let text = format!(
            "listeners: [{{address: unix:{address}}}]\nroutes: [{{upstream: a}}]\n\
             upstreams: {{a: {{replicas: [\"http://{replica}\"]}}}}\n"
        );
        let file = directory.write("proxy.yaml", &text);
        // A client that connects before the program runs waits in the queue of the socket.
        let mut early = connect(&path, false).await;
        let script = "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, PROGRAM, "--config"]).arg(&file);
        let program = Program::spawn(command.stdin(Stdio::from(passed)));
        assert_eq!(early.get("/").await.status, StatusCode::OK);
        drop(early);
        program.signal("-TERM");
        assert_eq!(program.exit_code().await, Some(0));
        assert!(path.exists(), "systemd still listens");
        // A client that waits would make it start the service again.
        socket.set_nonblocking(true).expect("a socket");
        assert_eq!(socket.accept().expect_err("nobody waits").kind(), ErrorKind::WouldBlock);
    });
}

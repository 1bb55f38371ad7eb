//! Restart without interruption: a new proxy takes over the listeners, and the old one ends with its connections.

use crate::client::{Client, FullResponse};
use crate::deadline::run;
use crate::directory::Directory;
use crate::program::{PROGRAM, Program};
use crate::proxy::{Proxy, Setup, ask_admin};
use crate::raw_replica::{self, RawReplica};
use crate::wire::Wire;
use curtail_proxy::{Options, StartError};
use http::{StatusCode, Version};
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;

const GET: &str = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
const UPGRADE: &str = "GET /t HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
const GRACE: Duration = Duration::from_secs(300);

fn options() -> Options {
    Options { journal: None, seed: 7, ..Options::default() }
}

/// The keys of a proxy that another one can replace.
fn keys(socket: &Path) -> String {
    format!("restart: {{socket: {}}}", socket.display())
}

/// A replica, and a proxy before it that another one can replace, with its socket in the directory.
async fn replaceable() -> (RawReplica, Directory, PathBuf, Setup) {
    let (replica, directory) = (RawReplica::responding("good").await, Directory::new());
    let socket = directory.path("restart.sock");
    let setup = Setup::before(&[replica.address()]).top(&keys(&socket));
    (replica, directory, socket, setup)
}

/// Clients that send one request after another, most of them on kept connections.
struct Load {
    stop: Arc<AtomicBool>,
    responses: Arc<AtomicU64>,
    clients: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(address: SocketAddr) -> Self {
        let (stop, responses) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let versions = [Version::HTTP_11, Version::HTTP_2].into_iter().cycle();
        let clients = versions.take(8).enumerate().map(|(index, version)| {
            let (stop, responses) = (Arc::clone(&stop), Arc::clone(&responses));
            tokio::spawn(async move {
                let mut client = Client::connect(address, version).await;
                while !stop.load(Ordering::Relaxed) {
                    // A quarter of the clients connect for each request.
                    if index < 2 || !client.is_open().await {
                        client = Client::connect(address, version).await;
                    }
                    let request = client.request("GET", "/");
                    let response = client.try_send(request).await.expect("not one is broken");
                    let response = FullResponse::read(response).await.expect("a whole response");
                    assert_eq!(response.status, StatusCode::OK);
                    responses.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let clients = clients.collect();
        Self { stop, responses, clients }
    }

    /// Waits for that many more responses.
    async fn responses(&self, count: u64) {
        let from = self.responses.load(Ordering::Relaxed);
        while self.responses.load(Ordering::Relaxed) < from + count {
            assert!(self.clients.iter().all(|client| !client.is_finished()), "a client failed");
            tokio::task::yield_now().await;
        }
    }

    async fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.expect("no request failed");
        }
    }
}

/// A replica that echoes in another protocol, and responds to other requests.
async fn echoing() -> RawReplica {
    RawReplica::start(|mut wire, record, _| async move {
        while let Some(request) = record.read(&mut wire).await {
            if request.head.get("upgrade").is_none() {
                wire.send(raw_replica::response("good")).await;
                continue;
            }
            wire.send("HTTP/1.1 101 S\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").await;
            while let Ok(byte) = wire.read_exact(1).await {
                wire.send(byte).await;
            }
            return;
        }
    })
    .await
}

#[test]
fn a_restart_breaks_no_request_no_idle_connection_and_no_stream() {
    run(async {
        let replica = echoing().await;
        let directory = Directory::new();
        let socket = directory.path("restart.sock");
        let setup = Setup::before(&[replica.address()]).on_own_address().top(&keys(&socket));
        let old = setup.start();
        let metadata = socket.metadata().expect("the proxy has created it");
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        let (address, admin) = (old.address(), old.admin_address());
        let mut idle = Wire::connect(address).await;
        idle.send(GET).await;
        assert_eq!(idle.response().await.body, "good");
        let unused = Wire::connect(address).await;
        let mut upgrading = Wire::connect(address).await;
        let mut tunnel = Wire::connect(address).await;
        tunnel.send(UPGRADE).await;
        assert_eq!(tunnel.read_head().await.expect("held").expect("a response").status(), 101);
        old.until(|metrics| metrics.sum("curtail_client_connections_open", &[]) == 4).await;
        let load = Load::start(address);
        load.responses(200).await;

        let yaml = setup.yaml_at(&old);
        let starting = tokio::task::spawn_blocking(move || Proxy::start(&yaml, &options()));
        let new = starting.await.expect("it starts");
        old.replaced().await;
        assert_eq!((new.address(), new.admin_address()), (address, admin));
        load.responses(400).await;
        // The admin port is that of the new process.
        new.until(|metrics| metrics.sum("curtail_requests_total", &[]) > 100).await;

        for (mut wire, name) in [(idle, "idle"), (unused, "unused")] {
            wire.send(GET).await;
            let response = wire.response().await;
            assert_eq!(response.body, "good", "{name}");
            assert_eq!(response.head.get("connection"), Some("close"), "{name}");
            assert_eq!(wire.read_to_close().await, "", "{name}");
        }
        tunnel.send("still here").await;
        assert_eq!(tunnel.read_exact(10).await.expect("an echo"), "still here");
        // A connection of the old process can still change its protocol.
        upgrading.send(UPGRADE).await;
        assert_eq!(upgrading.read_head().await.expect("held").expect("a response").status(), 101);
        upgrading.send("here too").await;
        assert_eq!(upgrading.read_exact(8).await.expect("an echo"), "here too");
        load.responses(200).await;
        load.finish().await;
        drop(upgrading);
        {
            let mut drained = std::pin::pin!(old.drained());
            let long = tokio::time::timeout(Duration::from_millis(300), &mut drained).await;
            assert!(long.is_err(), "the tunnel is open");
            drop(tunnel);
            drained.await;
        }
        old.stop(GRACE).await.expect("it stops");
        new.stop(GRACE).await.expect("it stops");
        assert!(TcpStream::connect(address).await.is_err(), "nobody has the socket");
    });
}

#[test]
fn a_new_process_that_fails_leaves_the_old_one_alone() {
    run(async {
        let (_replica, _directory, _, setup) = replaceable().await;
        let old = setup.start();
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let taken = taken.local_addr().map(|address| (taken, address)).expect("an address");
        let yaml = setup.yaml_at(&old);
        let broken = yaml.replacen(&old.admin_address().to_string(), &taken.1.to_string(), 1);
        let failed = Proxy::try_start(&broken, &options()).expect_err("its port is taken");
        assert!(matches!(failed, StartError::Listen { .. }), "{failed}");
        crate::logs::until(&["it ended before it served", "this one continues"]).await;
        let mut client = Client::connect(old.address(), Version::HTTP_11).await;
        assert_eq!(client.get("/").await.body, "good");
        let status = ask_admin(old.admin_address(), "/readyz").await.expect("it responds");
        assert_eq!(status.head.status(), 200);
        // The next attempt succeeds.
        let new = Proxy::start(&yaml, &options());
        old.replaced().await;
        assert_eq!(client.get("/").await.get("connection"), Some("close"));
        old.stop(GRACE).await.expect("it stops");
        drop(new);
    });
}

#[test]
fn a_new_process_names_the_source_that_has_not_responded() {
    run(async {
        let directory = Directory::new();
        let targets = directory.write("targets.json", "[{\"targets\": [\"127.0.0.1:9\"]}]");
        let discovery = format!("discovery: {{file: {{path: {}}}}}", targets.display());
        let setup = Setup::before_urls([]).upstream(&discovery);
        let setup = setup.top(&keys(&directory.path("restart.sock")));
        let old = setup.start();
        std::fs::remove_file(&targets).expect("the file is there");
        let failed = Proxy::try_start(&setup.yaml_at(&old), &options()).expect_err("no targets");
        let expected = format!(
            ".discovery: targets in {}: No such file or directory (os error 2): the old process",
            targets.display()
        );
        assert!(failed.to_string().contains(&expected), "{failed}");
        assert!(failed.key_error().is_some(), "{failed}");
    });
}

#[test]
fn a_path_without_a_proxy_is_an_error_and_a_stale_socket_is_replaced() {
    run(async {
        let (_replica, directory, socket, setup) = replaceable().await;
        let yaml = setup.yaml();
        let start = || Proxy::try_start(&yaml, &options());
        let error = || start().expect_err("the path is taken").to_string();

        directory.write("restart.sock", "text");
        let text = error();
        assert!(text.contains("there is a file of this name that is no socket"), "{text}");
        assert_eq!(std::fs::read_to_string(&socket).expect("it is kept"), "text");
        std::fs::remove_file(&socket).expect("a file");

        let other = UnixListener::bind(&socket).expect("a socket");
        let peer = std::thread::spawn(move || {
            let (mut stream, _) = other.accept().expect("a connection");
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").expect("it is open");
        });
        let text = error();
        peer.join().expect("no panic");
        assert!(
            text.contains("sent \"HTTP/1.1 400 Bad R\", not \"curtail-restart/1\\n\""),
            "{text}"
        );

        let proxy = start().expect("nobody has the socket any more");
        proxy.stop(GRACE).await.expect("it stops");
    });
}

fn yaml(replica: &RawReplica, address: SocketAddr, socket: &Path) -> String {
    format!(
        "listeners: [{{address: \"{address}\"}}]\nroutes: [{{upstream: s}}]\n\
         upstreams: {{s: {{replicas: [\"http://{}\"]}}}}\n{}\n",
        replica.address(),
        keys(socket)
    )
}

/// An address on which nobody listens, on a host that no other test uses.
fn free_address(host: &str) -> SocketAddr {
    let listener = TcpListener::bind((host, 0)).expect("loopback");
    listener.local_addr().expect("an address")
}

#[test]
fn sigusr2_starts_a_new_process_and_notifies_systemd() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let directory = Directory::new();
        let (socket, address) = (directory.path("restart.sock"), free_address("127.0.0.3"));
        let file = directory.write("proxy.yaml", &yaml(&replica, address, &socket));
        let notified = UnixDatagram::bind(directory.path("notify.sock")).expect("a socket");
        let mut command = Command::new(PROGRAM);
        command.arg("--config").arg(&file).env("NOTIFY_SOCKET", directory.path("notify.sock"));
        let old = Program::spawn(&mut command);
        old.says(0, &["\"ready\""]).await;
        notified.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
        let notification = || {
            let mut text = [0; 256];
            let len = notified.recv(&mut text).expect("a notification");
            String::from_utf8_lossy(&text[..len]).into_owned()
        };
        assert_eq!(notification(), format!("READY=1\nMAINPID={}\n", old.pid()));
        let mut client = Client::connect(address, Version::HTTP_11).await;
        assert_eq!(client.get("/").await.body, "good");
        old.signal("-USR2");
        let line = old.says(0, &["started a new process"]).await;
        let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let new = line["fields"]["pid"].as_u64().expect("a process ID");
        assert_eq!(notification(), format!("READY=1\nMAINPID={new}\n"));
        old.says(0, &["replaced by a new process", &new.to_string()]).await;
        assert_eq!(client.get("/").await.get("connection"), Some("close"));
        let mut client = Client::connect(address, Version::HTTP_11).await;
        assert_eq!(client.get("/").await.get("connection"), None);
        // The old process ends by itself; the new one, which it started, goes on.
        old.says(0, &["\"stopped\""]).await;
        assert_eq!(client.get("/").await.body, "good");
        let stop = Command::new("kill").arg(new.to_string()).status().expect("kill is there");
        assert!(stop.success());
        assert_eq!(notification(), "STOPPING=1\n");
        assert_eq!(old.exit_code().await, Some(0));
    });
}

#[test]
fn sockets_of_systemd_are_used() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let directory = Directory::new();
        let socket = TcpListener::bind("127.0.0.4:0").expect("loopback");
        let address = socket.local_addr().expect("an address");
        let text = yaml(&replica, address, &directory.path("restart.sock"));
        let file = directory.write("proxy.yaml", &text);
        // A client that connects before the program runs waits in the queue of the socket.
        let early = Client::connect(address, Version::HTTP_11).await;
        let script = "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, PROGRAM, "--config"]).arg(&file);
        let program = Program::spawn(command.stdin(Stdio::from(OwnedFd::from(socket))));
        let mut client = early;
        assert_eq!(client.get("/").await.body, "good");
        drop(client);
        program.signal("-TERM");
        assert_eq!(program.exit_code().await, Some(0));
    });
}

#[test]
fn a_proxy_with_other_addresses_does_not_replace_this_one() {
    run(async {
        let (_replica, _directory, _, setup) = replaceable().await;
        let proxy = setup.start();
        let failed = Proxy::try_start(&setup.yaml(), &options()).expect_err("ports of its own");
        let text = failed.to_string();
        assert!(text.contains(&format!("a proxy on {}", proxy.address())), "{text}");
        assert!(text.contains("give each proxy a socket of its own"), "{text}");
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        assert_eq!(client.get("/").await.body, "good");
        assert_eq!(client.get("/").await.get("connection"), None);
    });
}

#[test]
fn the_old_process_puts_its_socket_back_when_the_new_one_has_died() {
    run(async {
        let (_replica, directory, socket, setup) = replaceable().await;
        let old = setup.start();
        // A process that has put its socket at the path, and dies before it serves.
        let dead = directory.path("dead.sock");
        drop(UnixListener::bind(&dead).expect("a socket"));
        let mut peer = std::os::unix::net::UnixStream::connect(&socket).expect("the proxy listens");
        let mut greeting = [0; 18];
        std::io::Read::read_exact(&mut peer, &mut greeting).expect("a greeting");
        assert_eq!(&greeting, b"curtail-restart/1\n");
        std::fs::rename(&dead, &socket).expect("one directory");
        drop(peer);
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            tokio::task::yield_now().await;
        }
        let new = Proxy::start(&setup.yaml_at(&old), &options());
        old.replaced().await;
        old.stop(GRACE).await.expect("it stops");
        let mut client = Client::connect(new.address(), Version::HTTP_11).await;
        assert_eq!(client.get("/").await.body, "good");
    });
}

//! The app over real sockets: what each cause does to a request, alone.

use curtail_testbed::app::{Config, Role, Running};
use curtail_testbed::{File, StartError};
use expect_test::expect;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

const SEED: u64 = 11;

/// An app in which nothing takes long, with these further keys.
fn config(keys: &str) -> Config {
    let quick = "{shape: constant, value: 1ms}";
    let mut yaml = "app: google\nname: test\n".to_owned();
    for (section, key) in [("storage", "service"), ("server", "service")] {
        if !keys.contains(&format!("{section}:")) {
            writeln!(yaml, "{section}: {{{key}: {quick}}}").expect("a String takes everything");
        }
    }
    match File::from_yaml("test.yaml", &(yaml + keys), &[], None) {
        Ok(File::App(config)) => config,
        other => panic!("no app: {other:?}"),
    }
}

struct App {
    running: Running,
}

impl App {
    fn start(keys: &str) -> Self {
        let running = Running::start(&config(keys), &Role::ALL, SEED);
        Self { running: running.expect("loopback and threads") }
    }

    fn address(&self, role: Role) -> SocketAddr {
        self.running.address(role).expect("it is here")
    }

    fn work(&self, query: &str) -> Response {
        get(self.address(Role::Client), &format!("/work{query}"))
    }

    /// A number of the client's own figures.
    fn stat(&self, pointer: &str) -> u64 {
        let stats = get(self.address(Role::Client), "/stats").json();
        let number = stats.pointer(pointer).and_then(serde_json::Value::as_u64);
        number.unwrap_or_else(|| panic!("{pointer} in {stats}"))
    }
}

#[derive(Debug)]
struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Response {
    fn read(mut stream: TcpStream) -> Self {
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("it responds in text");
        let (head, body) = response.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.expect("a status");
        Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() }
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn retries(&self) -> u64 {
        self.after("x-retries: ").parse().expect("a number")
    }

    /// Milliseconds of `server-timing`.
    fn ms(&self, name: &str) -> f64 {
        self.after(&format!("{name};dur=")).parse().expect("a number")
    }

    fn after(&self, what: &str) -> &str {
        let from =
            self.head.split_once(what).unwrap_or_else(|| panic!("{what} in {}", self.head)).1;
        from.split([',', '\r']).next().unwrap_or_default()
    }
}

fn send(address: SocketAddr, request: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let length = body.len();
    let head = format!(
        "{request} HTTP/1.1\r\nhost: app\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).expect("it reads");
    stream
}

fn get(address: SocketAddr, path: &str) -> Response {
    Response::read(send(address, &format!("GET {path}"), ""))
}

#[test]
fn with_no_cause_both_payloads_are_small_and_nothing_is_sent_again() {
    let app = App::start("");
    for query in ["?payload=small", "?payload=large", ""] {
        let response = app.work(query);
        assert_eq!((response.status, response.retries()), (200, 0), "{response:?}");
        assert_eq!(response.body, "{\"numbers\":500,\"retries\":0}\n");
        assert!(response.ms("storage") >= 1.0 && response.ms("server") >= 1.0, "{response:?}");
        assert!(response.after("backoff;dur=") == "0.000", "{response:?}");
    }
    let stats = get(app.address(Role::Client), "/stats");
    expect![[r#"
        {"failures":0,"requests":3,"server":{"attempts":3,"refusals":0,"retries":0,"timeouts":0},"storage":{"attempts":3,"refusals":0,"retries":0,"timeouts":0}}
    "#]]
    .assert_eq(&stats.body);
}

#[test]
fn a_large_payload_takes_as_long_as_its_bytes_and_is_1_in_20_by_default() {
    let app = App::start("large_payloads: true\n");
    let response = app.work("?payload=large");
    assert_eq!(response.json()["numbers"], 100_000, "{response:?}");
    // 700,001 bytes at 8 MiB a second, and 1 ms to find them.
    assert!(response.ms("storage") >= 84.4, "{response:?}");
    assert_eq!(app.work("?payload=small").json()["numbers"], 500);
    let quick = "storage: {bytes_per_second: 10GiB, service: {shape: constant, value: 0ms}}\n\
        server: {service: {shape: constant, value: 0ms}}\n";
    let app = App::start(&format!("large_payloads: true\n{quick}"));
    let large = (0..400).filter(|_| app.work("").json()["numbers"] == 100_000).count();
    // 20 expected; outside of these would be a chance of 1 in a million.
    assert!((4..=46).contains(&large), "{large}, seed {SEED}");
}

#[test]
fn a_short_timeout_fails_at_once_and_what_may_have_been_executed_is_not_sent_again() {
    let slow = "server: {service: {shape: constant, value: 60s}}\n";
    let app = App::start(&format!("short_timeouts: true\n{slow}"));
    for _ in 0..3 {
        let response = app.work("");
        assert_eq!((response.status, response.body.as_str()), (504, "server: it took too long\n"));
        assert_eq!(response.retries(), 0);
        assert!(response.ms("server") >= 20.0, "{response:?}");
    }
    let server = ["/server/attempts", "/server/timeouts", "/server/retries", "/failures"];
    assert_eq!(server.map(|pointer| app.stat(pointer)), [3, 3, 0, 3]);
}

#[test]
fn what_is_only_read_is_sent_again_after_a_timeout() {
    let app = App::start(
        "client: {storage_timeout: 5ms, backoff: 2ms, attempts_max: 3}\n\
         storage: {service: {shape: constant, value: 60s}}\n",
    );
    let response = app.work("");
    assert_eq!((response.status, response.body.as_str()), (504, "storage: it took too long\n"));
    assert_eq!(response.retries(), 2);
    // Three timeouts, and two waits of at least half of 2 ms and half of 4 ms.
    assert!(response.ms("storage") >= 15.0 && response.ms("backoff") >= 3.0, "{response:?}");
    assert_eq!(app.stat("/storage/timeouts"), 3);
    assert_eq!(app.stat("/server/attempts"), 0);
}

#[test]
fn what_was_refused_is_sent_again_after_a_backoff() {
    let client = "client: {backoff: 2ms, attempts_max: 3}\n";
    let server = |refused_ratio| {
        format!("server: {{refused: {refused_ratio}, service: {{shape: constant, value: 1ms}}}}\n")
    };
    let app = App::start(&format!("retries: true\n{client}{}", server("1.0")));
    let response = app.work("");
    assert_eq!((response.status, response.retries()), (503, 2), "{response:?}");
    assert_eq!(response.body, "server: it refused every attempt\n");
    assert_eq!(app.stat("/server/refusals"), 3);

    let client = "client: {backoff: 2ms, attempts_max: 16}\n";
    let app = App::start(&format!("retries: true\n{client}{}", server("0.5")));
    let responses: Vec<Response> = (0..20).map(|_| app.work("?payload=small")).collect();
    for response in &responses {
        let retries = response.retries();
        assert_eq!(response.status, 200, "{response:?}, seed {SEED}");
        let waited = response.ms("backoff");
        assert!((waited > 0.0) == (retries > 0) && (retries == 0 || waited >= 1.0), "{response:?}");
    }
    let counted: u64 = responses.iter().map(Response::retries).sum();
    // 20 expected, fixed by the seed.
    assert!((3..=80).contains(&counted), "{counted}, seed {SEED}");
    assert_eq!(app.stat("/server/retries"), counted);

    let app = App::start(&server("1.0"));
    assert_eq!(app.work("").status, 200, "without the cause nothing is refused");
}

#[test]
fn a_process_that_shares_its_core_waits_for_the_other_at_every_turn() {
    let app = App::start("cpu_load: client\n");
    let mut ms: Vec<f64> = (0..9)
        .map(|_| {
            let response = app.work("");
            assert_eq!(response.status, 200, "{response:?}");
            response.ms("storage") + response.ms("server")
        })
        .collect();
    ms.sort_by(f64::total_cmp);
    // The client sends, and a slice of 10 ms has begun before the response can be there; twice.
    assert!(ms[4] >= 19.0, "{ms:?}");
}

#[test]
fn roles_that_are_apart_find_each_other_where_the_file_says() {
    let start = |config: &Config, role| Running::start(config, &[role], SEED).expect("loopback");
    let mut config = config("");
    let storage = start(&config, Role::Storage);
    let server = start(&config, Role::Server);
    config.storage.listen = storage.address(Role::Storage).expect("it is here");
    config.server.listen = server.address(Role::Server).expect("it is here");
    let client = start(&config, Role::Client);
    let all: Vec<Role> = [&storage, &server, &client]
        .iter()
        .flat_map(|running| running.addresses().map(|(role, _)| role))
        .collect();
    assert_eq!(all, [Role::Storage, Role::Server, Role::Client]);
    let client_at = client.address(Role::Client).expect("it is here");
    assert_eq!(get(client_at, "/work").status, 200);
    drop(server);
    let response = get(client_at, "/work");
    assert_eq!((response.status, response.retries()), (502, 0), "{response:?}");
    assert!(response.body.starts_with("server: no "), "{response:?}");
}

#[test]
fn what_it_does_not_take_is_refused_with_what_was_expected() {
    let app = App::start("");
    let [client, storage, server] =
        [Role::Client, Role::Storage, Role::Server].map(|role| app.address(role));
    for address in [client, storage, server] {
        assert_eq!(get(address, "/healthz").body, "ok\n");
        assert_eq!(get(address, "/elsewhere").status, 404);
        let response = Response::read(send(address, "DELETE /healthz", ""));
        assert_eq!((response.status, response.body.as_str()), (405, "expected GET\n"));
    }
    assert_eq!(get(client, "/work?payload=middling").status, 400);
    assert_eq!(get(server, "/test").json().as_array().map(Vec::len), Some(999));
    let post = |body: &str| Response::read(send(server, "POST /test", body));
    assert_eq!(post(" [1,2, 3 ]").body, "[1,2,3]");
    let response = post("[1,2,x]");
    assert_eq!(response.status, 400);
    assert!(response.body.starts_with("expected an array of numbers in JSON: "), "{response:?}");
    assert!(response.body.ends_with("at line 1 column 6\n"), "{response:?}");
    // Announced in advance, so that the client does not send 5 MB into a connection that is about to be closed.
    let mut stream = TcpStream::connect(server).expect("it listens");
    let head =
        "POST /test HTTP/1.1\r\nhost: app\r\nconnection: close\r\ncontent-length: 5000000\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("it reads");
    stream.write_all(&vec![b' '; 4 << 20]).expect("it reads");
    stream.write_all(b"  ").expect("it reads");
    let response = Response::read(stream);
    assert_eq!(
        (response.status, response.body.as_str()),
        (400, "expected a whole body of at most 4194304 bytes\n")
    );
}

#[test]
fn one_request_more_than_there_is_room_for_is_refused() {
    let app = App::start(
        "storage: {service: {shape: constant, value: 60s}}\nclient: {storage_timeout: 60s}\n",
    );
    let client = app.address(Role::Client);
    let working: Vec<TcpStream> = (0..256).map(|_| send(client, "GET /work", "")).collect();
    while app.stat("/requests") < 256 {}
    let response = app.work("");
    assert_eq!(response.status, 503, "{response:?}");
    let expected = "256 requests are worked on: no room for one more\n";
    assert_eq!(response.body, expected);
    drop(working);
}

#[test]
fn errors_are_all_named() {
    let read = |yaml: &str, sets: &[&str], roles: Option<&[Role]>| {
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        let errors = File::from_yaml("app.yaml", yaml, &sets, roles).expect_err("errors");
        errors.to_string()
    };
    let sets = ["cpu_load=all", "retries=often", "client.backoff=0ms", "server.refused=5%"];
    expect![[r#"
        app.yaml:3:1: shards: unknown key: expected one of app, client, cpu_load, large_payloads, name, retries, server, short_timeouts, storage
        --set cpu_load=all: all is not known: expected one of none, client, storage, server
        --set retries=often: often is text: expected true or false
        --set client.backoff=0ms: 0ms is out of range: expected a duration from 1ms to 1m
        --set server.refused=5%: 5% is text: expected a ratio from 0 to 1 (0.02 for 2 %)"#]].assert_eq(&read("app: google\nname: a\nshards: 3\n", &sets, None));
    expect![[r#"
        app.yaml:1:1: name: missing: expected text (in quotes if it looks like a number)
        app.yaml:1:6: app: goggle is not known: expected one of google"#]]
    .assert_eq(&read("app: goggle\n", &[], None));
    expect![[r#"
        app.yaml:1:1: storage: port 0 is any: expected the port on which the client finds it
        app.yaml:1:1: server: port 0 is any: expected the port on which the client finds it"#]]
    .assert_eq(&read("app: google\nname: a\n", &[], Some(&[Role::Client])));
    let servers = "name: a\nserver: {service: {shape: constant, value: 1ms}}\n";
    expect!["app.yaml:1:1: app: there is none: only an app has roles"].assert_eq(&read(
        servers,
        &[],
        Some(&[Role::Client]),
    ));
}

#[test]
fn an_address_that_is_taken_is_named_with_the_role() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut config = config("");
    config.server.listen = taken.local_addr().expect("it listens");
    let error: StartError = Running::start(&config, &Role::ALL, SEED).expect_err("it is taken");
    let expected = format!("the server cannot listen on {}", config.server.listen);
    assert!(error.to_string().ends_with(&expected), "{error}");
}

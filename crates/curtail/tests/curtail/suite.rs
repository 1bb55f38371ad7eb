//! `curtail bench suite`: from nothing to a verdict and back to nothing, however it ends.

use crate::command::{Ended, curtail, written};
use crate::running::Running;
use expect_test::expect;
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Responds to each `GET` with the number of lines that were posted, or with something like a profile.
struct Server {
    port: u16,
    /// Hears of the first request to `/load`.
    loaded: Receiver<()>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it listens").port();
        let (loading, loaded) = sync_channel(1);
        let lines = Arc::new(AtomicUsize::new(0));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, lines, loading) =
                    (stream.expect("a client"), Arc::clone(&lines), loading.clone());
                std::thread::spawn(move || serve(&stream, &lines, &loading));
            }
        });
        Self { port, loaded }
    }
}

/// The first bytes of a profile.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Serves one connection until it is closed.
fn serve(stream: &TcpStream, lines: &AtomicUsize, loading: &SyncSender<()>) -> Option<()> {
    let mut input = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            let len = input.read_line(&mut line).ok()?;
            match line.trim_end() {
                "" if len > 0 => break,
                "" => return None,
                line => head.push(line.to_ascii_lowercase()),
            }
        }
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
        input.read_exact(&mut body).ok()?;
        if head[0].starts_with("post") {
            lines.fetch_add(body.iter().filter(|byte| **byte == b'\n').count(), Ordering::SeqCst);
        }
        if head[0].starts_with("get /load") {
            // It is full after the first time.
            let _sent = loading.try_send(());
        }
        let body = match &*head[0] {
            "get /profile?seconds=1 http/1.1" => GZIP.to_vec(),
            _ => format!("{{\"lines\":{}}}", lines.load(Ordering::SeqCst)).into_bytes(),
        };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        let mut output = stream;
        output.write_all(&[head.into_bytes(), body].concat()).ok()?;
    }
}

/// A process that has started another, notes both, and says that it is up.
const WORKER: &str = r#"{run: [sh, -c, "sleep 1000 & echo $$ $! >> ${dir}/pids; echo up; wait"], ready: {line: up}}"#;

fn suite(port: u16, more: &str) -> String {
    format!(
        r#"
name: small
parameters: {{port: {port}, lines: 25}}
arms: {{a: "http://127.0.0.1:${{port}}", b: "http://127.0.0.1:${{port}}"}}
requests: [{{name: lines, path: /load}}]
warm_up: none
blocks: 2
{more}
"#
    )
}

/// Too few requests for any percentile to be compared with the lag of the generator: a busy machine makes no run void.
const SHORT: &str = "schedule: {spacing: even, phases: [{rate: 12, lasts: 600ms}]}\n";
const LONG: &str = "schedule: {phases: [{rate: 50, lasts: 1h}]}\n";

/// A folder of this name that is not there.
fn folder(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if dir.exists() {
        fs::remove_dir_all(&dir).expect("it is of the run before");
    }
    dir
}

fn run(name: &str, text: &str) -> (Ended, PathBuf) {
    let dir = folder(&format!("{name}-run"));
    let file = written(&format!("{name}.yaml"), text);
    let ended = curtail(&["bench", "suite", &file, "--dir", dir.to_str().expect("text")]);
    (ended, dir)
}

fn results(dir: &Path) -> Value {
    let text = fs::read(dir.join("results.json")).expect("it was written");
    serde_json::from_slice(&text).expect("JSON")
}

/// That all processes are gone whose numbers were noted, and how many there were.
fn gone(dir: &Path) -> usize {
    let pids = fs::read_to_string(dir.join("pids")).expect("the worker has noted them");
    let pids: Vec<&str> = pids.split_whitespace().collect();
    for pid in &pids {
        // A process that has ended may still be listed until its parent waits for it.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "process {pid} is still there: {stat}");
    }
    pids.len()
}

#[test]
fn a_suite_goes_from_nothing_to_a_verdict_and_back_to_nothing() {
    let server = Server::start();
    let text = suite(
        server.port,
        &format!(
            r#"{SHORT}
setup: [{{name: made, run: [sh, -c, "seq ${{lines}} > ${{dir}}/lines"]}}]
processes: {{worker: {WORKER}}}
prepare:
  - {{name: file, load: {{file: "${{dir}}/lines", url: "http://127.0.0.1:${{port}}/", batch: 10}}}}
  - name: generated
    load:
      generator: {{run: [seq, "${{lines}}"]}}
      url: "http://127.0.0.1:${{port}}/"
      batch: 7
      at_once: 2
faults:
  - {{pause: worker, at: 50ms, lasts: 50ms}}
  - {{kill: worker, at: 200ms}}
  - {{name: noted, run: [sh, -c, "echo noted >> ${{dir}}/noted"], at: 250ms}}
measures:
  every: 100ms
  http: [{{of: worker, url: "http://127.0.0.1:${{port}}/", pointer: /lines, name: lines}}]
validate:
  - {{url: "http://127.0.0.1:${{port}}/", expect: {{counts: [{{pointer: /lines, equals: 50}}]}}}}
teardown: [{{run: [sh, -c, "echo down > ${{dir}}/down"]}}]
"#
        ),
    );
    let (ended, dir) = run("suite-whole", &text);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("b against a"), "{}", ended.stdout);
    for step in [
        "made: done",
        "worker: ready",
        "file: 25 lines loaded",
        "generated: 25 lines loaded",
        "as expected",
        "sh: done",
    ] {
        assert!(ended.stderr.contains(step), "{step}: {}", ended.stderr);
    }
    let results = results(&dir);
    assert_eq!(results["state"]["is"], "complete", "{results}");
    assert_eq!(results["blocks"].as_array().map(Vec::len), Some(4));
    let events = results["events"].as_array().expect("a list");
    let count = |what: &str| events.iter().filter(|event| event["what"] == what).count();
    assert_eq!(count("worker paused"), 4);
    assert_eq!(count("worker killed"), 4);
    assert_eq!(count("noted"), 4);
    let measures = results["measures"].as_array().expect("a list");
    for name in ["cpu_ratio", "resident_bytes", "lines"] {
        assert!(measures.iter().any(|measure| measure["name"] == name), "{name}: {measures:?}");
    }
    assert_eq!(gone(&dir), 2 * 5, "started once, and again in each block");
    assert!(dir.join("report.html").exists() && dir.join("down").exists());
}

#[test]
fn each_arm_has_a_profile_of_its_first_block_and_a_failed_profile_is_an_event() {
    let server = Server::start();
    let processes = r#"
processes:
  good: {run: [sleep, 1000], profile: "http://127.0.0.1:${port}/profile"}
  bad: {run: [sleep, 1000], profile: "http://127.0.0.1:${port}/other"}
"#;
    let text = suite(server.port, &format!("{SHORT}{processes}"));
    let (ended, dir) = run("suite-profiles", &text);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let results = results(&dir);
    assert_eq!(results["state"]["is"], "complete", "{results}");
    let events = results["events"].as_array().expect("a list");
    let count = |what: &str| events.iter().filter(|event| event["what"] == what).count();
    for file in ["a-good.pb.gz", "b-good.pb.gz"] {
        assert_eq!(fs::read(dir.join(file)).expect("it was written"), GZIP, "{file}");
        assert_eq!(count(&format!("CPU profile of good: {file}")), 1, "{events:?}");
    }
    let problem = format!(
        "no CPU profile of bad: GET http://127.0.0.1:{}/other?seconds=1: \
         the response is no gzip: expected pprof's format",
        server.port
    );
    assert_eq!(count(&problem), 2, "{events:?}");
    assert!(!dir.join("a-bad.pb.gz").exists());
}

#[test]
fn links_can_be_slow_and_processes_are_started_anew() {
    let server = Server::start();
    // Bound, so that no other process gets the port, and not listening, so that the link can.
    let bound = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    bound.set_reuse_address(true).expect("an option of every socket");
    bound.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a port");
    let link = bound.local_addr().expect("bound").as_socket().expect("of IP").port();
    let text = suite(
        server.port,
        &format!(
            r#"{SHORT}
links: {{far: {{listen: "127.0.0.1:{link}", to: "127.0.0.1:${{port}}"}}}}
processes: {{worker: {WORKER}}}
restarts: {{processes: [worker]}}
faults: [{{slow: far, by: 100ms, at: 0s}}]
"#
        ),
    );
    let text = text
        .replace(r#"b: "http://127.0.0.1:${port}""#, &format!(r#"b: "http://127.0.0.1:{link}""#));
    let text = text.replace("warm_up: none", "warm_up: 100ms");
    let (ended, dir) = run("suite-links", &text);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let results = results(&dir);
    let events = results["events"].as_array().expect("a list");
    let count = |what: &str| events.iter().filter(|event| event["what"] == what).count();
    assert_eq!((count("far slow by 100 ms"), count("worker started anew")), (4, 1), "{events:?}");
    assert_eq!(gone(&dir), 2 * 2, "started once, and again before the second round");
    let blocks = results["blocks"].as_array().expect("a list");
    let turns: Vec<_> = blocks.iter().map(|block| (&block["arm"], &block["is_warm_up"])).collect();
    let turn = |arm: u64, is_warm_up: bool| (Value::from(arm), Value::from(is_warm_up));
    let expected = [
        (0, true),
        (1, true),
        (0, false),
        (1, false),
        (0, true),
        (1, true),
        (1, false),
        (0, false),
    ];
    let expected = expected.map(|(arm, is_warm_up)| turn(arm, is_warm_up));
    assert!(turns.iter().copied().eq(expected.iter().map(|(arm, is)| (arm, is))), "{turns:?}");
    for block in blocks.iter().filter(|block| block["arm"] == 1 && block["is_warm_up"] == false) {
        let response = &block["latencies"][0]["response"];
        let number = |key: &str| response[key].as_u64().expect("a number");
        // The first ones may be sent before the link is slow.
        let slow = number("count").saturating_sub(2);
        assert!(slow > 0 && number("sum_ns") >= slow * 200_000_000, "{response}");
    }
}

#[test]
fn all_errors_of_a_suite_are_named_and_nothing_is_left_of_it() {
    let text = suite(1, "protocol: http9\nprocesses: {a: {ready: {}}}\nschedule: {}\nfault: []\n");
    let (ended, dir) = run("suite-errors", &text);
    expect![[r#"
        suite-errors.yaml:8:11: protocol: http9 is not known: expected one of http1, http2, grpc
        suite-errors.yaml:9:13: processes.a.run: there is no program: expected [PROGRAM, ARGUMENT, …]
        suite-errors.yaml:9:17: processes.a.ready.http: 0 signs: expected one of http, tcp and line
        suite-errors.yaml:10:1: schedule.phases: there is none: expected at least one phase
        suite-errors.yaml:11:1: fault: unknown key: did you mean faults?
    "#]].assert_eq(&ended.stderr);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    assert!(!dir.exists());
    let more = "faults:
  - {pause: node, at: 2s, lasts: 1s}
  - {slow: far, by: 5ms, at: 1ms}
  - {slow: near, at: 1ms}
links: {near: {listen: here}}
restarts: {processes: [node]}
";
    let (ended, _) = run("suite-names", &suite(1, &format!("{SHORT}{more}")));
    expect![[r#"
        suite-names.yaml:10:3: faults: "node" is no process: there is none
        suite-names.yaml:10:3: faults: the fault at 2 s is over at 3 s: expected the end before that of a block, 600 ms
        suite-names.yaml:10:3: faults: "far" is no link: expected only near
        suite-names.yaml:12:5: faults[2].by: slow and by go together: expected both or neither
        suite-names.yaml:13:9: links.near.to: missing: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted)
        suite-names.yaml:13:24: links.near.listen: here has no port: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted)
        suite-names.yaml:14:11: restarts: "node" is no process: there is none
    "#]]
    .assert_eq(&ended.stderr);
}

#[test]
fn a_process_that_is_never_ready_is_named_with_its_output() {
    let more = r#"processes:
  node: {run: [sh, -c, "sleep 1000 & echo $$ $! >> ${dir}/pids; echo no luck; wait"], ready: {line: up, within: 300ms}}
teardown: [{run: [sh, -c, "echo down > ${dir}/down"]}]
"#;
    let (ended, dir) = run("suite-unready", &suite(1, &format!("{SHORT}{more}")));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    let says = "node: it was not ready within 300 ms: it has not printed \"up\"";
    assert!(ended.stderr.contains(says) && ended.stderr.contains("| no luck"), "{}", ended.stderr);
    assert_eq!(results(&dir)["state"]["why"], says);
    assert_eq!(gone(&dir), 2);
    assert!(dir.join("down").exists());
}

#[test]
fn a_process_that_ends_by_itself_is_named_and_what_was_measured_is_kept() {
    let server = Server::start();
    let more = r#"processes:
  node: {run: [sh, -c, "trap 'echo disk full; exit 7' USR1; sleep 1000 & echo $$ $! >> ${dir}/pids; echo up; wait"], ready: {line: up}}
faults: [{name: death, run: [sh, -c, "read pid rest < ${dir}/pids; kill -s USR1 $pid"], at: 1s}]
"#;
    let (ended, dir) = run("suite-death", &suite(server.port, &format!("{LONG}{more}")));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    let says = "node: it has ended by itself: exit status: 7";
    assert!(
        ended.stderr.contains(says) && ended.stderr.contains("| disk full"),
        "{}",
        ended.stderr
    );
    let results = results(&dir);
    assert_eq!(results["state"]["why"], says);
    assert_eq!(results["blocks"].as_array().map(Vec::len), Some(1));
    assert_eq!(gone(&dir), 2);
}

#[test]
fn a_command_that_fails_or_takes_too_long_is_named() {
    let failing = r#"setup: [{run: [sh, -c, "echo no such package; exit 3"]}]"#;
    let (ended, _) = run("suite-failing", &suite(1, &format!("{SHORT}{failing}\n")));
    assert_eq!(ended.code, Some(3));
    assert!(ended.stderr.contains("sh: it failed: exit status: 3"), "{}", ended.stderr);
    assert!(ended.stderr.contains("| no such package"), "{}", ended.stderr);
    let slow = r#"setup: [{run: [sh, -c, "sleep 1000 & echo $$ $! >> ${dir}/pids; wait"], within: 300ms}]"#;
    let (ended, dir) = run("suite-slow", &suite(1, &format!("{SHORT}{slow}\n")));
    assert!(
        ended.stderr.contains("sh: it has not ended: expected its end within 300 ms"),
        "{}",
        ended.stderr
    );
    assert_eq!(gone(&dir), 2);
}

#[test]
fn an_invalid_response_ends_the_suite() {
    let server = Server::start();
    let more = r#"validate: [{url: "http://127.0.0.1:${port}/", expect: {counts: [{pointer: /lines, equals: 1}]}, within: 200ms}]"#;
    let (ended, dir) = run("suite-invalid", &suite(server.port, &format!("{SHORT}{more}\n")));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("/lines is 0: expected 1"), "{}", ended.stderr);
    assert_eq!(results(&dir)["blocks"].as_array().map(Vec::len), Some(0));
}

/// A suite that has begun to send load and would go on for an hour.
fn begun(name: &str, server: &Server, worker: &str) -> (Running, PathBuf) {
    let dir = folder(&format!("{name}-run"));
    let text = suite(server.port, &format!("{LONG}processes: {{worker: {worker}}}\n"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(written(&format!("{name}.yaml"), text));
    let mut command = Command::new(env!("CARGO_BIN_EXE_curtail"));
    command.args(["bench", "suite"]).arg(file).arg("--dir").arg(&dir);
    let running = Running::run(&mut command);
    server.loaded.recv().expect("load is sent");
    (running, dir)
}

#[test]
fn ctrl_c_leaves_a_partial_file_and_no_process() {
    let server = Server::start();
    let (mut running, dir) = begun("suite-interrupted", &server, WORKER);
    running.signal("INT");
    assert!(running.rest().contains("PARTIAL RUN"));
    assert_eq!(running.ended().code(), Some(130));
    let results = results(&dir);
    assert!(results["state"]["why"].as_str().expect("why").contains("interrupted"));
    assert_eq!(results["blocks"].as_array().map(Vec::len), Some(1));
    assert_eq!(gone(&dir), 2);
}

/// A pipe with a name.
fn pipe(name: &str) -> PathBuf {
    let folder = folder(name);
    fs::create_dir(&folder).expect("the folder is cargo's, for tests to write in");
    let pipe = folder.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there").success());
    pipe
}

#[test]
fn ctrl_c_before_anything_is_measured_is_a_partial_run_too() {
    let (dir, pipe) = (folder("suite-early-run"), pipe("suite-early-pipe"));
    let setup = format!(
        r#"setup: [{{run: [sh, -c, "sleep 1000 & echo $$ $! >> ${{dir}}/pids; echo begun > {}; wait"]}}]
teardown: [{{run: [sh, -c, "echo down > ${{dir}}/down"]}}]"#,
        pipe.display()
    );
    let file = written("suite-early.yaml", suite(1, &format!("{LONG}{setup}\n")));
    let mut command = Command::new(env!("CARGO_BIN_EXE_curtail"));
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    command.args(["bench", "suite"]).arg(file).arg("--dir").arg(&dir);
    let mut running = Running::run(&mut command);
    assert_eq!(fs::read_to_string(pipe).expect("the command writes"), "begun\n");
    running.signal("INT");
    assert!(running.rest().contains("PARTIAL RUN"));
    assert_eq!(running.ended().code(), Some(130));
    assert_eq!(results(&dir)["state"]["is"], "partial");
    assert_eq!(gone(&dir), 2);
    assert!(dir.join("down").exists());
}

#[test]
fn a_process_that_ignores_sigterm_is_killed() {
    let server = Server::start();
    let more = r#"processes:
  deaf:
    run: [sh, -c, "trap '' TERM; sleep 1000 & echo $$ $! >> ${dir}/pids; echo up; wait"]
    ready: {line: up}
    stop_within: 200ms
"#;
    let (ended, dir) = run("suite-deaf", &suite(server.port, &format!("{SHORT}{more}")));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let says = "deaf: it had not ended after 200 ms, and was killed";
    assert!(ended.stderr.contains(says), "{}", ended.stderr);
    assert_eq!(gone(&dir), 2);
}

#[test]
fn data_that_ends_early_ends_the_suite() {
    let server = Server::start();
    let more = r#"prepare: [{load: {generator: {name: made, run: [sh, -c, "seq 10; echo out of words >&2; exit 9"]}, url: "http://127.0.0.1:${port}/", batch: 3}}]"#;
    let (ended, _) = run("suite-cut", &suite(server.port, &format!("{SHORT}{more}\n")));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    let says = "made: it failed after 10 lines: exit status: 9";
    assert!(ended.stderr.contains(says), "{}", ended.stderr);
    assert!(ended.stderr.contains("| out of words"), "{}", ended.stderr);
}

#[test]
fn when_it_is_killed_its_processes_are_killed_too() {
    let server = Server::start();
    let pipe = pipe("suite-killed-pipe");
    // Each process that runs holds the pipe open; the read ends after the last of them.
    let worker = format!(
        r#"{{run: [sh, -c, "exec > {}; sleep 1000 & echo up >> ${{dir}}/worker.log; echo; wait"], ready: {{line: up}}}}"#,
        pipe.display()
    );
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let mut pipe = fs::File::open(pipe).expect("it was made");
        pipe.read_to_string(&mut text).expect("text");
        text
    });
    let (running, _) = begun("suite-killed", &server, &worker);
    running.signal("KILL");
    assert_eq!(running.ended().code(), None);
    assert_eq!(reader.join().expect("it reads"), "\n");
}

//! The program itself: `curtail-proxy`, its configuration file, its signals and its exit.

use crate::client::Client;
use crate::deadline::run;
use crate::directory::Directory;
use crate::program::{PROGRAM, Program};
use crate::raw_replica::RawReplica;
use http::Version;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

fn yaml(replica: &RawReplica) -> String {
    format!(
        "listeners: [{{address: \"127.0.0.1:0\"}}]\nroutes: [{{upstream: s}}]\n\
         upstreams: {{s: {{replicas: [\"http://{}\"]}}}}\n",
        replica.address()
    )
}

async fn ask(address: SocketAddr) -> String {
    let mut client = Client::connect(address, Version::HTTP_11).await;
    String::from_utf8(client.get("/").await.body.to_vec()).expect("text")
}

#[test]
fn it_serves_reloads_on_a_hangup_keeps_the_old_when_the_new_is_broken_and_stops_in_order() {
    run(async {
        let (old, new) = (RawReplica::responding("old").await, RawReplica::responding("new").await);
        let directory = Directory::new();
        let file = directory.write("proxy.yaml", &yaml(&old));
        let program = Program::start(&["--config", &file.display().to_string()]);
        let address = program.address().await;
        assert_eq!(ask(address).await, "old");
        let from = program.lines().len();
        directory.write("proxy.yaml", &yaml(&new).replace("upstream: s", "upstream: other"));
        program.signal("-HUP");
        let error_line = program.says(from, &["ERROR", "the old one stays in effect"]).await;
        assert!(
            error_line.contains("other") && error_line.contains("is not defined"),
            "{error_line}"
        );
        assert_eq!(ask(address).await, "old");
        let from = program.lines().len();
        directory.write("proxy.yaml", &yaml(&new));
        program.signal("-HUP");
        program.says(from, &["configuration reloaded"]).await;
        assert_eq!(ask(address).await, "new");
        program.signal("-TERM");
        program.says(from, &["stopped"]).await;
        assert_eq!(program.exit_code().await, Some(0));
    });
}

#[test]
fn sets_override_the_arguments_and_an_error_in_one_prevents_the_start() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let upstream = format!("http://{}", replica.address());
        let arguments =
            ["--upstream", &upstream, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let with = |more: &[&str]| Program::start(&[&arguments, more].concat());
        let program = with(&["--set", "upstreams.service.hedge=false"]);
        assert_eq!(ask(program.address().await).await, "good");
        for (more, says) in [
            (
                &["--set", "upstreams.nonsense.hedge=false"][..],
                "upstreams.nonsense: not defined: expected only service",
            ),
            (&["--set", "limts.drain=1s"], "limts: unknown key: did you mean limits?"),
            (&["--upstream", &upstream], "upstreams.service.replicas[1]: "),
        ] {
            let program = with(more);
            program.says(0, &["ERROR", says]).await;
            assert_eq!(program.exit_code().await, Some(2), "{more:?}");
        }
    });
}

#[test]
fn a_hangup_opens_the_access_log_again_without_a_configuration_file_too() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let upstream = format!("http://{}", replica.address());
        let directory = Directory::new();
        let (file, rotated) = (directory.path("access.log"), directory.path("rotated.log"));
        let log = format!("access_log.file={}", file.display());
        let format = "access_log.format='{status}'";
        let program =
            Program::start(
                &[
                    &[
                        "--upstream",
                        &*upstream,
                        "--listen",
                        "127.0.0.1:0",
                        "--admin",
                        "127.0.0.1:0",
                    ][..],
                    &["--set", &log, "--set", format],
                ]
                .concat(),
            );
        let address = program.address().await;
        ask(address).await;
        std::fs::rename(&file, &rotated).expect("both are in a directory of ours");
        let from = program.lines().len();
        program.signal("-HUP");
        program.says(from, &["configuration reloaded"]).await;
        ask(address).await;
        program.signal("-TERM");
        program.says(from, &["stopped"]).await;
        let [before, after] =
            [rotated, file].map(|file| std::fs::read_to_string(file).expect("text"));
        // A line that the first file has not got when it is opened again goes to the second one.
        assert_eq!(before + &after, "200\n200\n");
        assert!(after.ends_with("200\n"));
    });
}

#[test]
fn standard_output_takes_the_access_log() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let directory = Directory::new();
        let yaml =
            format!("{}access_log: {{file: stdout, format: \"{{status}}\"}}\n", yaml(&replica));
        let file = directory.write("proxy.yaml", &yaml).display().to_string();
        let output = std::fs::File::create(directory.path("output")).expect("a file");
        let program = Program::start_to(&["--config", &file], output.into());
        ask(program.address().await).await;
        program.signal("-TERM");
        program.says(0, &["stopped"]).await;
        let output = std::fs::read_to_string(directory.path("output")).expect("text");
        assert_eq!(output, "200\n");
    });
}

#[test]
fn errors_and_a_port_in_use_end_it_with_codes_of_their_own() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let directory = Directory::new();
        let code = async |path: &Path| {
            let program = Program::start(&["--config", &path.display().to_string()]);
            let line = program.says(0, &["ERROR"]).await;
            (program.exit_code().await, line)
        };
        let broken = yaml(&replica).replace("routes:", "rotues:");
        let (exit, line) = code(&directory.write("broken.yaml", &broken)).await;
        assert_eq!(exit, Some(2), "{line}");
        assert!(line.contains("rotues"), "{line}");
        let checked = async |text: &str, says: &str| {
            let file = directory.write("checked.yaml", text).display().to_string();
            let program = Program::start(&["--config", &file, "--check"]);
            program.says(0, &[says]).await;
            program.exit_code().await
        };
        assert_eq!(checked(&broken, "rotues").await, Some(2));
        assert_eq!(checked(&yaml(&replica), "the configuration is correct").await, Some(0));
        let (exit, line) = code(&directory.path("missing.yaml")).await;
        assert_eq!(exit, Some(3), "{line}");
        let taken = yaml(&replica).replace("127.0.0.1:0", &replica.address().to_string());
        let (exit, line) = code(&directory.write("taken.yaml", &taken)).await;
        assert_eq!(exit, Some(3), "{line}");
        assert!(line.contains(&replica.address().to_string()), "{line}");
        let tls = "listeners:\n- {address: \"127.0.0.1:0\", tls: {certificate_file: /no, key_file: /no}}\n";
        let tls =
            format!("{tls}routes: [{{upstream: s}}]\nupstreams: {{s: {{replicas: [http://a]}}}}\n");
        let (exit, line) = code(&directory.write("certificate.yaml", &tls)).await;
        assert_eq!(exit, Some(3), "{line}");
        let says = "certificate.yaml:2:52: listeners[0].tls.certificate_file: /no: No such file";
        assert!(line.contains(says), "{line}");
        assert_eq!(checked(&tls, "listeners[0].tls.certificate_file: /no").await, Some(3));
    });
}

#[test]
fn an_invalid_log_level_is_an_error_of_usage() {
    let ended = Command::new(PROGRAM)
        .args(["--config", "no-such.yaml"])
        .env("CURTAIL_LOG", "warning")
        .output()
        .expect("the program is there");
    let text = String::from_utf8(ended.stderr).expect("text");
    assert_eq!(ended.status.code(), Some(2), "{text}");
    assert!(text.starts_with("CURTAIL_LOG: \"warning\": expected error, warn, "), "{text}");
}

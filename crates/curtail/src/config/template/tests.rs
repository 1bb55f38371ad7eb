//! The complete file: right as it is, and no other than the defaults.

use super::super::ConfigKind;
use super::{NAME, example, yaml};
use crate::server::read_config;
use curtail_config::Presence;
use curtail_policy::UpstreamConfig;
use curtail_proxy::{Config, ConnectConfig};

#[test]
fn the_complete_file_says_what_holds_without_it() {
    let config = Config::from_yaml("f", &yaml(ConfigKind::Proxy, &ConfigKind::Proxy.keys()))
        .expect("it is right");
    let short = "listeners: [{address: \"127.0.0.1:7300\"}]\nadmin: {}\n\
        routes: [{upstream: service}]\n\
        upstreams: {service: {replicas: [\"http://127.0.0.1:8080\", \"http://127.0.0.1:8081\"]}}\n";
    assert_eq!(config, Config::from_yaml("f", short).expect("it is right"));
    let [upstream] = config.upstreams.as_slice() else { panic!("one upstream") };
    assert_eq!((upstream.name.as_str(), upstream.policy), (NAME, UpstreamConfig::default()));
    assert_eq!(upstream.connect, ConnectConfig::default());
}

#[test]
fn what_is_commented_out_can_be_put_into_effect() {
    let file = yaml(ConfigKind::Proxy, &ConfigKind::Proxy.keys());
    // One case at a time is all that a file can have: Prequal's keys stay, those of other rules go. A discovery has one
    // source, and a health check one kind. An address of TCP has no file, and a fan-out has no streams.
    let keys = [
        "#decay",
        "#choices",
        "#srv",
        "#tls_server_name",
        "#grpc:",
        "#mode",
        "#stream_idle_timeout",
    ];
    let sources = ["#kubernetes:", "#eds:", "#file:", "#http:"];
    // The indent of the source that the line belongs to.
    let mut source = None;
    let kept = file.lines().filter(|line| {
        let key = line.trim_start();
        let indent = line.len() - key.len();
        if source.is_some_and(|outer| indent <= outer) {
            source = None;
        }
        if sources.contains(&key) {
            source = Some(indent);
        }
        source.is_none() && !keys.iter().any(|other| key.starts_with(other))
    });
    let in_effect: Vec<String> = kept
        .map(|line| match line.split_once('#') {
            Some((margin, key)) if !key.starts_with(' ') => format!("{margin}{key}"),
            _ => line.to_owned(),
        })
        .collect();
    let text = in_effect.join("\n").replace("policy: least_request", "policy: prequal");
    let config = Config::from_yaml("f", &text).expect("every example is right");
    assert_eq!((config.workers, config.leaves.len()), (4, 1));
    assert!(config.admin.is_some() && config.spans.is_some() && config.listeners[0].tls.is_some());
}

#[test]
fn every_key_stands_in_the_file_and_none_lacks_a_value() {
    for kind in [ConfigKind::Proxy, ConfigKind::Server] {
        let keys = kind.keys();
        let file = yaml(kind, &keys);
        for key in &keys {
            let name = key.path.rsplit('.').next().unwrap_or_default().trim_end_matches("[]");
            assert!(file.contains(&format!("{name}:")), "{}", key.path);
            let is_section = keys.iter().any(|k| k.path.starts_with(&format!("{}.", key.path)));
            if matches!(key.presence, Presence::Required | Presence::Optional) && !is_section {
                assert!(example(&key.path).is_some(), "{} needs an example", key.path);
            }
        }
    }
}

#[test]
fn the_file_of_the_server_is_correct_and_has_the_defaults() {
    let file = yaml(ConfigKind::Server, &ConfigKind::Server.keys());
    let config = read_config("f", &file, &[]).expect("it is correct");
    let defaults = read_config("f", "{}", &[]).expect("they are correct");
    assert_eq!(config, defaults);
    let uncommented: Vec<_> = file
        .lines()
        .filter(|line| !line.trim_start().starts_with("# ") && !line.starts_with("#\n"))
        .map(|line| line.replacen('#', "", 1))
        .collect();
    let config = read_config("f", &uncommented.join("\n"), &[]);
    assert!(config.expect("each example is correct").tail.is_some());
}

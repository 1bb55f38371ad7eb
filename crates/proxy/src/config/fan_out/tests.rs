use crate::config::Config;
use curtail_config::ConfigErrors;
use expect_test::{Expect, expect};

/// Four upstreams, and a route with this target.
fn read(target: &str) -> Result<Config, ConfigErrors> {
    let text = format!(
        "listeners: [{{address: \"127.0.0.1:0\"}}]\n\
         upstreams:\n  \
           shard-1: {{replicas: [\"http://a\"]}}\n  \
           shard-0: {{replicas: [\"http://b\"]}}\n  \
           other: {{replicas: [\"http://c\", \"http://d\"]}}\n\
         routes: [{{{target}}}]\n"
    );
    Config::from_yaml("f", &text)
}

fn check(target: &str, expected: &Expect) {
    expected.assert_eq(&read(target).err().map_or_else(String::new, |errors| errors.to_string()));
}

#[test]
fn a_prefix_selects_upstreams_in_the_order_of_the_file() {
    for (upstream, expected) in
        [("shard-*", vec![0, 1]), ("shard-0", vec![1]), ("*", vec![0, 1, 2])]
    {
        let config = read(&format!("upstream: {upstream:?}, fan_out: {{}}")).expect("valid");
        let shards: Vec<usize> = config.routes[0].shards(&config.upstreams).collect();
        assert_eq!(shards, expected, "{upstream}");
    }
}

#[test]
fn shards_that_cannot_be_are_errors() {
    check(
        "upstream: \"shard-*\"",
        &expect![[
            r#"f:6:21: routes[0].upstream: "shard-*" is not defined: did you mean shard-1?"#
        ]],
    );
    check(
        "upstream: \"x*\", fan_out: {}",
        &expect![[
            r#"f:6:21: routes[0].upstream: "x*" selects no upstream: expected one of shard-1, shard-0, other"#
        ]],
    );
    check(
        "upstream: shard-2, fan_out: {}",
        &expect![[
            r#"f:6:21: routes[0].upstream: "shard-2" selects no upstream: did you mean shard-1?"#
        ]],
    );
    check(
        "upstream: \"shard-*\", fan_out: {needed: 3, canaries: 4}",
        &expect![[r#"
        f:6:50: routes[0].fan_out.needed: 3 of 2 shards: expected at most 2
        f:6:63: routes[0].fan_out.canaries: 4 of 2 shards: expected at most 2"#]],
    );
}

#[test]
fn a_fan_out_to_replicas_has_one_upstream_and_a_call_for_each_replica() {
    let config = read("upstream: other, fan_out: {to: replicas, needed: 2}").expect("valid");
    assert_eq!(config.routes[0].calls(&config.upstreams), Some(2));
    let config = read("upstream: \"shard-*\", fan_out: {}").expect("valid");
    assert_eq!(config.routes[0].calls(&config.upstreams), Some(2));
    check(
        "upstream: \"shard-*\", fan_out: {to: replicas}",
        &expect![[
            r#"f:6:21: routes[0].upstream: "shard-*" selects 2 upstreams: expected one with fan_out.to: replicas"#
        ]],
    );
    check(
        "upstream: none, fan_out: {to: replicas}",
        &expect![[
            r#"f:6:21: routes[0].upstream: "none" selects no upstream: expected one of shard-1, shard-0, other"#
        ]],
    );
    check(
        "upstream: other, fan_out: {to: replicas, needed: 3, canaries: 3}",
        &expect![[r#"
        f:6:60: routes[0].fan_out.needed: 3 of 2 replicas: expected at most 2
        f:6:73: routes[0].fan_out.canaries: 3 of 2 replicas: expected at most 2"#]],
    );
    check(
        "upstream: other, fan_out: {to: leaves, rest: wait}",
        &expect![[r#"
        f:6:42: routes[0].fan_out.to: leaves is not known: expected one of upstreams, replicas
        f:6:56: routes[0].fan_out.rest: wait is not known: expected one of cancel, finish"#]],
    );
}

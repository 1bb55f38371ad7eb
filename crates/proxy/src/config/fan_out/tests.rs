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
           other: {{replicas: [\"http://c\"]}}\n\
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

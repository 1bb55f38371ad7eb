//! Reading as callers see it: texts in, values or messages out.

use crate::{
    CONFIG_ERRORS_MAX, KeyError, NESTING_MAX, NODES_MAX, Section, TEXT_BYTES_MAX, describe,
    json_schema, key_errors, read, read_and_check, read_with_sets, reference_markdown,
};
use curtail_units::{Bytes, Duration, Quantile, Ratio, Rng};
use expect_test::{Expect, expect, expect_file};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Class {
    Interactive,
    Batch,
}

#[derive(Debug, PartialEq)]
enum Balance {
    RoundRobin,
    Prequal { probes: u32, quantile: Quantile },
}

#[derive(Debug, PartialEq)]
struct Upstream {
    name: String,
    replicas: Vec<(SocketAddr, u32)>,
    balance: Balance,
    hedge: Option<(Quantile, Duration, Duration)>,
}

#[derive(Debug, PartialEq)]
struct Config {
    listen: SocketAddr,
    journal: Option<PathBuf>,
    body_max: Bytes,
    share: Ratio,
    class: Class,
    verbose: bool,
    loads: Vec<f64>,
    upstreams: Vec<Upstream>,
}

fn balance(s: &mut Section<'_>) -> Balance {
    s.cases("policy", "How the replica is chosen.").default("round_robin", |cases| {
        cases.case("round_robin", "Each in turn.", |_| Balance::RoundRobin);
        cases.case("prequal", "Probe, then choose.", |s| Balance::Prequal {
            probes: s.field("probes", "Probes for a request.").range(1..=16).default(3),
            quantile: s.field("quantile", "Hot above.").default(Quantile::P90),
        });
    })
}

fn hedge(s: &mut Section<'_>) -> (Quantile, Duration, Duration) {
    let quantile = s.field("quantile", "Hedge what is slower.").required();
    let delay_min = s.field("delay_min", "Never sooner.").default(Duration::from_ms(1));
    let delay_max = s.field("delay_max", "Never later.").default(Duration::from_secs(1));
    if delay_min > delay_max {
        s.error("delay_min", format!("{delay_min} is above delay_max ({delay_max})"));
    }
    (quantile, delay_min, delay_max)
}

fn upstream(name: &str, s: &mut Section<'_>) -> Upstream {
    Upstream {
        name: name.to_owned(),
        replicas: s.list("replicas", "Servers of the upstream.", |s| {
            let address = s.field("address", "Where it listens.").alone().required();
            (address, s.field("weight", "Its share.").at_least(1).default(1))
        }),
        balance: s.section("balance", "How a replica is chosen.", balance),
        hedge: s.optional_section("hedge", "Second attempts.", hedge),
    }
}

fn config(s: &mut Section<'_>) -> Config {
    let classes = [("interactive", Class::Interactive), ("batch", Class::Batch)];
    Config {
        listen: s.field("listen", "Where clients connect.").required(),
        journal: s.field("journal", "Where decisions are written.").optional(),
        body_max: s.field("body_max", "Longest body kept.").default(Bytes::from_kib(64)),
        share: s.field("share", "Share of extra attempts.").default(Ratio::ZERO),
        class: s.choice("class", "Of requests without one.", &classes).default(Class::Interactive),
        verbose: s.field("verbose", "Say more.").default(false),
        loads: s.values("loads", "Loads to try."),
        upstreams: s.map("upstreams", "Who is asked, by name.", upstream),
    }
}

const WHOLE: &str = r#"
# A file that uses everything.
listen: 127.0.0.1:8080
journal: "out/run 1.journal"
body_max: 1.5MiB
share: 0.02
class: batch
verbose: true
loads: [0.5, 1, 1e0]
upstreams:
  search:
    replicas:
      - 127.0.0.1:9001
      - {address: "[::1]:9002", weight: 2}
    balance: {policy: prequal, probes: 5}
    hedge:
      quantile: 0.99
      delay_min: 10ms
  no:
    balance: round_robin
"#;

/// Checks the messages for `text`.
fn check(text: &str, expect: Expect) {
    check_sets(text, &[], expect);
}

fn check_sets(text: &str, sets: &[&str], expect: Expect) {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    let errors = read_with_sets("curtail.yaml", text, &sets, config);
    expect.assert_eq(&errors.expect_err("the text has errors").to_string());
}

/// What `yaml` is as a value of type `T`, or the message.
fn one<T: crate::Value>(yaml: &str) -> Result<T, String> {
    read("f", &format!("key: {yaml}\n"), |s| s.field("key", "A key.").required())
        .map_err(|errors| errors.to_string())
}

#[test]
fn a_whole_file_becomes_typed_values() {
    let config = read("curtail.yaml", WHOLE, config).expect("the file is right");
    let address = |text: &str| text.parse().expect("an address");
    assert_eq!(
        config,
        Config {
            listen: address("127.0.0.1:8080"),
            journal: Some(PathBuf::from("out/run 1.journal")),
            body_max: Bytes::from_kib(1_536),
            share: Ratio::new(0.02).expect("a ratio"),
            class: Class::Batch,
            verbose: true,
            loads: vec![0.5, 1.0, 1.0],
            upstreams: vec![
                Upstream {
                    name: "search".to_owned(),
                    replicas: vec![(address("127.0.0.1:9001"), 1), (address("[::1]:9002"), 2)],
                    balance: Balance::Prequal { probes: 5, quantile: Quantile::P90 },
                    hedge: Some((Quantile::P99, Duration::from_ms(10), Duration::from_secs(1))),
                },
                Upstream {
                    name: "no".to_owned(),
                    replicas: Vec::new(),
                    balance: Balance::RoundRobin,
                    hedge: None,
                },
            ],
        }
    );
}

#[test]
fn every_error_of_a_file_is_named_at_its_place() {
    check(
        "\
body_max: 64
class: bulk
verbose: yes
loads: [0.5, much, 2ms]
upstream: {}
upstreams:
  search:
    replicas:
      - 127.0.0.1
      - address: 127.0.0.1:9002
        wieght: 2
      - weight: 0
    balance: {policy: prequal, probes: 99, quantile: 99}
    hedge:
      delay_min: 10
      delay_max: -1ms
  index: 7
  logs: [a]
  mail:
",
        expect![[r#"
            curtail.yaml:1:1: listen: missing: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted)
            curtail.yaml:1:11: body_max: 64 has no unit (B, KiB, MiB, GiB or TiB): expected a size such as 512B, 64KiB or 1.5MiB
            curtail.yaml:2:8: class: bulk is not known: expected one of interactive, batch
            curtail.yaml:3:10: verbose: yes is text in YAML 1.2: expected true or false
            curtail.yaml:4:14: loads[1]: much is text: expected a number such as 2 or 0.5
            curtail.yaml:4:20: loads[2]: 2ms is text: expected a number such as 2 or 0.5
            curtail.yaml:5:1: upstream: unknown key: did you mean upstreams?
            curtail.yaml:9:9: upstreams.search.replicas[0]: 127.0.0.1 has no port: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted)
            curtail.yaml:11:9: upstreams.search.replicas[1].wieght: unknown key: did you mean weight?
            curtail.yaml:12:9: upstreams.search.replicas[2].address: missing: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted)
            curtail.yaml:12:17: upstreams.search.replicas[2].weight: 0 is out of range: expected a whole number of at least 1
            curtail.yaml:13:40: upstreams.search.balance.probes: 99 is out of range: expected a whole number from 1 to 16
            curtail.yaml:13:54: upstreams.search.balance.quantile: 99 is out of range: expected a quantile from 0 to 1 (0.99, not 99)
            curtail.yaml:14:5: upstreams.search.hedge.quantile: missing: expected a quantile from 0 to 1 (0.99, not 99)
            curtail.yaml:15:18: upstreams.search.hedge.delay_min: 10 has no unit (ns, us, ms, s, m or h): expected a duration such as 10ms or 1.5s
            curtail.yaml:16:18: upstreams.search.hedge.delay_max: -1ms is negative: expected a duration such as 10ms or 1.5s
            curtail.yaml:17:10: upstreams.index: 7 is a number: expected a section of keys
            curtail.yaml:18:9: upstreams.logs: this is a list: expected a section of keys
            curtail.yaml:19:3: upstreams.mail: nothing is here: expected a section of keys ({} for all defaults)"#]],
    );
}

#[test]
fn a_message_says_what_is_wrong_with_a_value() {
    let results = [
        one::<Duration>("5").map(|_| ()),
        one::<Duration>("5 sec").map(|_| ()),
        one::<Duration>("1.5").map(|_| ()),
        one::<Duration>("soon").map(|_| ()),
        one::<Bytes>("64KB").map(|_| ()),
        one::<Bytes>("-1B").map(|_| ()),
        one::<bool>("on").map(|_| ()),
        one::<SocketAddr>("127.0.0.1:99999").map(|_| ()),
        one::<SocketAddr>("localhost:80").map(|_| ()),
        one::<SocketAddr>("127.0.0.1:http").map(|_| ()),
        one::<SocketAddr>("::1:80").map(|_| ()),
        one::<SocketAddr>("8080").map(|_| ()),
        one::<SocketAddr>("127.0.0.1").map(|_| ()),
        one::<SocketAddr>("':80'").map(|_| ()),
    ];
    let messages: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    expect![[r#"
        f:1:6: key: 5 has no unit (ns, us, ms, s, m or h): expected a duration such as 10ms or 1.5s
        f:1:6: key: 5 sec has the unit sec, not ns, us, ms, s, m or h: expected a duration such as 10ms or 1.5s
        f:1:6: key: 1.5 has no unit (ns, us, ms, s, m or h): expected a duration such as 10ms or 1.5s
        f:1:6: key: soon is text: expected a duration such as 10ms or 1.5s
        f:1:6: key: 64KB has the unit KB, not B, KiB, MiB, GiB or TiB: expected a size such as 512B, 64KiB or 1.5MiB
        f:1:6: key: -1B is negative: expected a size such as 512B, 64KiB or 1.5MiB
        f:1:6: key: on is text in YAML 1.2: expected true or false
        f:1:6: key: 127.0.0.1:99999 has the port 99999, which is above 65535: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted)
        f:1:6: key: localhost:80 has the name localhost, not an IP address: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted)
        f:1:6: key: 127.0.0.1:http has the port "http", which is not a number: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted)
        f:1:6: key: ::1:80 has an IPv6 address without brackets, or no port: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted)
        f:1:6: key: 8080 has no address: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted)
        f:1:6: key: 127.0.0.1 has no port: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted)
        f:1:6: key: ":80" has no address: 0.0.0.0 and [::] stand for all: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted)"#]].assert_eq(&messages.join("\n"));
    let switch = |s: &mut Section<'_>| s.switch("hedge", "Second attempts.", None, |_| ());
    let errors = read("f", "hedge: on", switch).expect_err("a text").to_string();
    assert_eq!(errors, "f:1:8: hedge: on is text in YAML 1.2: expected true or false");
    check_sets(
        "listen: 127.0.0.1:1\nupstreams: {a: {replicas: [127.0.0.1:1]}}\n",
        &["upstreams.a.replicas.0.weight=2"],
        expect![[
            r#"--set upstreams.a.replicas.0.weight=2: "0" lies in a list: expected an index in brackets, [0]"#
        ]],
    );
}

#[test]
fn a_mistyped_key_is_one_error() {
    check(
        "listne: 127.0.0.1:1\nupstreams: {a: {hedge: {quantil: 0.9, delay_min: 2s}}}\n",
        expect![[r#"
            curtail.yaml:1:1: listne: unknown key: did you mean listen?
            curtail.yaml:2:25: upstreams.a.hedge.quantil: unknown key: did you mean quantile?"#]],
    );
    let absent = |s: &mut Section<'_>| {
        let (low, high) = s.section("pair", "Two numbers.", |s| {
            (
                s.field("low", "A number.").default(1_u32),
                s.field("high", "A number.").default(1_u32),
            )
        });
        s.check_order(("pair.low", low), ("pair.high", high));
    };
    for text in ["pari: {low: 2, high: 3}", "pair: {low: 2, hihg: 3}"] {
        let errors = read("f", text, absent).expect_err(text).to_string();
        assert!(errors.contains("did you mean") && errors.lines().count() == 1, "{errors}");
    }
    let with_check = read_and_check(("f", "listne: 127.0.0.1:1\n"), &[], config, |_| {
        vec![KeyError::new("listen", "cannot be used")]
    });
    let errors = with_check.expect_err("the key is mistyped").to_string();
    assert_eq!(errors, "f:1:1: listne: unknown key: did you mean listen?");
}

#[test]
fn an_item_that_cannot_be_read_does_not_shift_the_later_ones() {
    let odd = |s: &mut Section<'_>| {
        for (index, number) in s.values::<u32>("even", "Numbers.").into_iter().enumerate() {
            if number % 2 == 1 {
                s.value_error(&format!("even[{index}]"), "is odd");
            }
        }
    };
    let errors = read("f", "even: [2, x, 4, 5]", odd).expect_err("two errors").to_string();
    expect![[r#"
        f:1:11: even[1]: x is text: expected a whole number from 0 to 4294967295
        f:1:17: even[3]: is odd"#]]
    .assert_eq(&errors);
}

#[test]
fn unknown_keys_are_met_with_the_nearest_known_one_or_with_all() {
    check(
        "listen: 127.0.0.1:1\nlistne: 127.0.0.1:1\ntracing: {}\n",
        expect![[r#"
            curtail.yaml:2:1: listne: unknown key: did you mean listen?
            curtail.yaml:3:1: tracing: unknown key: expected one of body_max, class, journal, listen, loads, share, upstreams, verbose"#]],
    );
}

#[test]
fn an_unknown_case_hides_the_keys_that_cannot_be_judged() {
    check(
        "listen: 127.0.0.1:1\nupstreams: {a: {balance: {policy: prequel, probes: x, other: 1}}}\n",
        expect![
            "curtail.yaml:2:35: upstreams.a.balance.policy: prequel is not known: expected one of round_robin, prequal"
        ],
    );
}

#[test]
fn a_key_of_another_case_is_unknown() {
    check(
        "listen: 127.0.0.1:1\nupstreams: {a: {balance: {policy: round_robin, probes: 3}}}\n",
        expect![
            "curtail.yaml:2:48: upstreams.a.balance.probes: unknown key with policy: round_robin: expected only policy"
        ],
    );
}

#[test]
fn contradictions_are_reported_unless_a_key_could_not_be_read() {
    check(
        "
listen: 127.0.0.1:1
upstreams:
  a: {hedge: {quantile: 0.9, delay_min: 2s}}
  b: {hedge: {quantile: 0.9, delay_min: 2s, delay_max: soon}}
",
        expect![[r#"
            curtail.yaml:4:41: upstreams.a.hedge.delay_min: 2 s is above delay_max (1 s)
            curtail.yaml:5:56: upstreams.b.hedge.delay_max: soon is text: expected a duration such as 10ms or 1.5s"#]],
    );
}

#[test]
fn an_empty_file_is_one_error() {
    for text in ["", "\n# nothing\n", "---\n", "~\n"] {
        let errors = read("f", text, config).expect_err("nothing is there");
        let expected = "f:1:1: the file is empty: expected a section of keys ({} for all defaults)";
        assert_eq!(errors.to_string(), expected, "{text:?}");
    }
}

#[test]
fn a_file_that_is_no_section_is_one_error() {
    check("- listen\n", expect!["curtail.yaml:1:1: this is a list: expected a section of keys"]);
    check("listen\n", expect!["curtail.yaml:1:1: listen is text: expected a section of keys"]);
}

#[test]
fn what_yaml_offers_beyond_trees_is_refused_by_name() {
    check(
        "\
listen: &here 127.0.0.1:1
journal: *here
share: !!float 0.5
upstreams:
  a:
    <<: {balance: round_robin}
    hedge: {quantile: 0.5, quantile: 0.6}
    ? [x, y]
    : 1
    '': 2
",
        expect![[r#"
            curtail.yaml:1:9: listen: anchors (&name) are not supported: write the value where it is used
            curtail.yaml:2:10: journal: aliases (*name) are not supported: write the value out
            curtail.yaml:3:8: share: the tag !!float is not supported: leave it out
            curtail.yaml:6:5: upstreams.a.<<: merge keys are not supported: write the keys out
            curtail.yaml:7:28: upstreams.a.hedge.quantile: the key is here twice: expected it once
            curtail.yaml:8:7: upstreams.a: a list or a mapping stands for a key: expected a word
            curtail.yaml:10:5: upstreams.a: a key is empty: expected a word"#]],
    );
    check(
        "listen: 127.0.0.1:1\n---\nlisten: 127.0.0.1:2\n",
        expect!["curtail.yaml:2:1: a second document begins: expected one document"],
    );
}

#[test]
fn text_that_is_not_yaml_is_one_error_at_its_place() {
    check(
        "listen: [1, 2\n",
        expect![
            "curtail.yaml:2:1: this is not YAML: while parsing a flow sequence, expected ',' or ']'"
        ],
    );
    check(
        "upstreams:\n\ta: {}\n",
        expect![
            "curtail.yaml:2:2: this is not YAML: tabs disallowed within this context (block indentation)"
        ],
    );
    check(
        "listen: 'open\n",
        expect![
            "curtail.yaml:1:9: this is not YAML: while scanning a quoted scalar, found unexpected end of stream"
        ],
    );
    check(
        "a: b: c\n",
        expect![
            "curtail.yaml:1:5: this is not YAML: mapping values are not allowed in this context"
        ],
    );
    check(
        "listen: *nowhere\n",
        expect!["curtail.yaml:1:9: this is not YAML: while parsing node, found unknown anchor"],
    );
}

#[test]
fn the_traps_of_yaml_1_1_are_read_as_in_1_2_or_refused() {
    assert_eq!(one::<String>("no"), Ok("no".to_owned()));
    assert_eq!(one::<String>("12:30:45"), Ok("12:30:45".to_owned()));
    assert_eq!(one::<u32>("0o14"), Ok(12));
    assert_eq!(one::<f64>("1e3"), Ok(1_000.0));
    let results = [
        one::<bool>("no").map(|_| ()),
        one::<bool>("\"true\"").map(|_| ()),
        one::<u32>("1e3").map(|_| ()),
        one::<u32>("012").map(|_| ()),
        one::<u32>("1_000").map(|_| ()),
        one::<u32>("\"10\"").map(|_| ()),
        one::<u32>("-1").map(|_| ()),
        one::<u16>("65536").map(|_| ()),
        one::<u32>("1.0").map(|_| ()),
        one::<u32>("").map(|_| ()),
        one::<String>("10").map(|_| ()),
        one::<String>("1.10").map(|_| ()),
        one::<String>("true").map(|_| ()),
        one::<String>("~").map(|_| ()),
        one::<f64>(".nan").map(|_| ()),
        one::<f64>("1e999").map(|_| ()),
        one::<Duration>("10").map(|_| ()),
        one::<Duration>("10msec").map(|_| ()),
        one::<Duration>("0.5ns").map(|_| ()),
        one::<Bytes>("64kB").map(|_| ()),
        one::<Quantile>("99").map(|_| ()),
        one::<Ratio>("2%").map(|_| ()),
        one::<SocketAddr>("localhost:80").map(|_| ()),
        one::<SocketAddr>("[::1]:80").map(|_| ()),
        one::<PathBuf>("''").map(|_| ()),
    ];
    let messages: Vec<String> = results.into_iter().filter_map(Result::err).collect();
    expect![[r#"
        f:1:6: key: no is text in YAML 1.2: expected true or false
        f:1:6: key: "true" is text: expected true or false
        f:1:6: key: 1e3 is a number with a point or an exponent: expected a whole number from 0 to 4294967295
        f:1:6: key: 012 is a number with a leading zero: expected a whole number from 0 to 4294967295
        f:1:6: key: 1_000 is text: expected a whole number from 0 to 4294967295
        f:1:6: key: "10" is text: expected a whole number from 0 to 4294967295
        f:1:6: key: -1 is out of range: expected a whole number from 0 to 4294967295
        f:1:6: key: 65536 is out of range: expected a whole number from 0 to 65535
        f:1:6: key: 1.0 is a number with a point or an exponent: expected a whole number from 0 to 4294967295
        f:1:4: key: an empty value is nothing: expected a whole number from 0 to 4294967295
        f:1:6: key: 10 is a number: expected text (in quotes if it looks like a number)
        f:1:6: key: 1.10 is a number with a point or an exponent: expected text (in quotes if it looks like a number)
        f:1:6: key: true is a truth value: expected text (in quotes if it looks like a number)
        f:1:6: key: an empty value is nothing: expected text (in quotes if it looks like a number)
        f:1:6: key: .nan is out of range: expected a number such as 2 or 0.5
        f:1:6: key: 1e999 is out of range: expected a number such as 2 or 0.5
        f:1:6: key: 10 has no unit (ns, us, ms, s, m or h): expected a duration such as 10ms or 1.5s
        f:1:6: key: 10msec has the unit msec, not ns, us, ms, s, m or h: expected a duration such as 10ms or 1.5s
        f:1:6: key: 0.5ns is out of range: expected a duration such as 10ms or 1.5s
        f:1:6: key: 64kB has the unit kB, not B, KiB, MiB, GiB or TiB: expected a size such as 512B, 64KiB or 1.5MiB
        f:1:6: key: 99 is out of range: expected a quantile from 0 to 1 (0.99, not 99)
        f:1:6: key: 2% is text: expected a ratio from 0 to 1 (0.02 for 2 %)
        f:1:6: key: localhost:80 has the name localhost, not an IP address: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted)
        f:1:11: this is not YAML: while parsing a block mapping, did not find expected key
        f:1:6: key: "" is text: expected a path such as /path/to/file"#]].assert_eq(&messages.join("\n"));
}

#[test]
fn sets_win_over_the_file_and_later_ones_over_earlier_ones() {
    let sets = [
        "listen=127.0.0.1:1",
        "upstreams.search.hedge.quantile=0.5",
        "upstreams.search.hedge.quantile=0.6",
        "upstreams.search.replicas[1].weight=7",
        "upstreams.search.balance={policy: prequal, probes: 2}",
        "upstreams.new.hedge.quantile=0.7",
        "journal=a=b",
    ];
    let sets = sets.map(str::to_owned);
    let config = read_with_sets("f", WHOLE, &sets, config).expect("file and sets are right");
    assert_eq!(config.listen.port(), 1);
    assert_eq!(config.journal, Some(PathBuf::from("a=b")));
    let [search, no, new] = config.upstreams.as_slice() else { panic!("three upstreams") };
    assert_eq!(search.hedge.map(|(quantile, ..)| quantile.get()), Some(0.6));
    assert_eq!(search.replicas[1].1, 7);
    assert_eq!(search.balance, Balance::Prequal { probes: 2, quantile: Quantile::P90 });
    assert_eq!(no.name, "no");
    assert_eq!(new.hedge.map(|(quantile, ..)| quantile.get()), Some(0.7));
}

#[test]
fn errors_in_sets_name_the_argument() {
    check_sets(
        WHOLE,
        &[
            "upstreams.search.hedge.quantile=99",
            "upstreams.search.hegde.quantile=0.9",
            "upstreams.search.replicas[2].weight=1",
            "upstreams.search.hedge[0]=1",
            "listen.port=1",
            "upstreams.no={balance: {policy: prequal, probes: 0}}",
            "verbose=[",
            "share",
            "=1",
            "a..b=1",
            "a[x]=1",
            "body_max=",
        ],
        expect![[r#"
            --set upstreams.search.hedge.quantile=99: 99 is out of range: expected a quantile from 0 to 1 (0.99, not 99)
            --set upstreams.search.hegde.quantile=0.9: upstreams.search.hegde: unknown key: did you mean hedge?
            --set upstreams.search.replicas[2].weight=1: there is no item 2 in a list of 2
            --set upstreams.search.hedge[0]=1: item 0 lies in no list: expected an index into a list
            --set listen.port=1: "port" lies in no section: the key before it is 127.0.0.1:8080: expected a section, such as {port: …}
            --set upstreams.no={balance: {policy: prequal, probes: 0}}: upstreams.no.balance.probes: 0 is out of range: expected a whole number from 1 to 16
            --set verbose=[: this is not YAML: while parsing a node, did not find expected node content
            --set share: expected section.key=value
            --set =1: "" is not a key: expected one such as hedge.quantile or list[0].key
            --set a..b=1: "a..b" is not a key: expected one such as hedge.quantile or list[0].key
            --set a[x]=1: "a[x]" is not a key: expected one such as hedge.quantile or list[0].key
            --set body_max=: an empty value is nothing: expected a size such as 512B, 64KiB or 1.5MiB"#]],
    );
}

#[test]
fn a_set_in_a_missing_section_is_one_error() {
    let none = "listen: 127.0.0.1:1\n";
    check_sets(
        WHOLE,
        &["upstreams.serach.hedge.delay_min=2s", "upstreams.other.hegde=false"],
        expect![[r#"
            --set upstreams.serach.hedge.delay_min=2s: upstreams.serach: not defined: did you mean search?
            --set upstreams.other.hegde=false: upstreams.other: not defined: expected one of search, no"#]],
    );
    check_sets(
        none,
        &["upstreams.search.hegde=false"],
        expect![
            "--set upstreams.search.hegde=false: upstreams.search: not defined: there is no such section to change"
        ],
    );
}

#[test]
fn sets_can_stand_for_a_whole_file() {
    let sets = ["listen=127.0.0.1:1".to_owned()];
    let config = read_with_sets("f", "", &sets, config).expect("the set is enough");
    assert_eq!(config.listen.port(), 1);
}

#[test]
fn bounds_hold() {
    let nested = |depth: usize| format!("a: {}{}\n", "[".repeat(depth), "]".repeat(depth));
    check(
        &nested(NESTING_MAX + 1),
        expect!["curtail.yaml:1:36: nested too deeply: expected at most 32 levels"],
    );
    check(
        &nested(100_000),
        expect!["curtail.yaml:1:259: this is not YAML: recursion limit exceeded"],
    );
    check(
        &format!("a: [{}]\n", "1,".repeat(NODES_MAX)),
        expect!["curtail.yaml:1:399999: too many keys and values: expected at most 200000"],
    );
    check(
        &" ".repeat(TEXT_BYTES_MAX + 1),
        expect!["curtail.yaml:1:1: 4194305 bytes of text: expected at most 4194304"],
    );
    let many: String = (0..CONFIG_ERRORS_MAX + 23).map(|n| format!("key{n}: 1\n")).collect();
    let errors = read("f", &many, |_| ()).expect_err("no key is known");
    assert_eq!(errors.count(), CONFIG_ERRORS_MAX + 23);
    let message = errors.to_string();
    assert_eq!(message.lines().last(), Some("f: and 23 more errors"));
    assert_eq!(message.lines().count(), CONFIG_ERRORS_MAX + 1);
}

#[test]
fn values_in_messages_stay_on_one_line_and_short() {
    check(
        &format!("listen: \"a\\nb\\e{}\"\n", "x".repeat(100)),
        expect![[
            r#"curtail.yaml:1:9: listen: "a\nb\u{1b}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… has no port: expected an address with a port such as 127.0.0.1:8080 or "[::1]:8080" (quoted)"#
        ]],
    );
}

#[test]
fn damaged_files_give_messages_and_no_panic() {
    const SEED: u64 = 20_260_801;
    println!("seed {SEED}");
    let mut rng = Rng::new(SEED);
    let pieces: Vec<char> = "{}[]:,-&*!|>'\"%#?@`~ \n\t\r\u{feff}é0a.<=".chars().collect();
    let (mut right, mut wrong) = (0, 0);
    for _ in 0..20_000 {
        let mut text: Vec<char> = WHOLE.chars().collect();
        for _ in 0..=rng.below(4) {
            let at = rng.below(text.len());
            match rng.below(3) {
                0 => text[at] = pieces[rng.below(pieces.len())],
                1 => text.insert(at, pieces[rng.below(pieces.len())]),
                _ => drop(text.drain(at..(at + 1 + rng.below(20)).min(text.len()))),
            }
        }
        match read("f", &text.into_iter().collect::<String>(), config) {
            Ok(_) => right += 1,
            Err(errors) => {
                assert!(!errors.to_string().is_empty());
                wrong += 1;
            }
        }
    }
    assert!(right > 100 && wrong > 10_000, "{right} right, {wrong} wrong");
}

#[test]
fn the_reference_page_lists_every_key() {
    expect_file!["tests/reference.md"].assert_eq(&reference_markdown(&describe(config)));
}

#[test]
fn the_json_schema_knows_every_key() {
    expect_file!["tests/schema.json"].assert_eq(&json_schema(&describe(config)));
}

#[test]
fn keys_have_unique_paths_within_a_case() {
    let keys = describe(config);
    let mut names: Vec<_> = keys.iter().map(|key| (&key.path, &key.case)).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn errors_of_a_check_have_the_places_of_their_keys_unless_these_cannot_be_read() {
    let text = "listen: 127.0.0.1:80\njournal: a.journal\nshare: 2\nloads: [1]\n";
    let check = |config: &Config| {
        assert_eq!(config.journal.as_deref(), Some(Path::new("a.journal")));
        ["journal", "share", "loads[0]", "class", ""].map(|key| KeyError::new(key, "no")).to_vec()
    };
    let errors = read_and_check(("f", text), &["journal=a.journal".to_owned()], config, check);
    let errors = errors.expect_err("there are some");
    expect![[r#"
        f:1:1: class: no
        f:1:1: no
        f:3:8: share: 2 is out of range: expected a ratio from 0 to 1 (0.02 for 2 %)
        f:4:9: loads[0]: no
        --set journal=a.journal: no"#]]
    .assert_eq(&errors.to_string());
    assert!(!errors.are_of_checks());
    let only = |_: &Config| vec![KeyError::new("journal", "no")];
    let errors = read_and_check(("f", &text.replace("share: 2", "share: 1")), &[], config, only);
    let errors = errors.expect_err("there is one");
    assert!(errors.are_of_checks());
    assert_eq!(errors.to_string(), "f:2:10: journal: no");
    for (text, says) in [
        ("listen: [\njournal: }", "f:2:1: this is not YAML: invalid indentation"),
        ("", "f:1:1: the file is empty: expected a section of keys ({} for all defaults)"),
        ("5", "f:1:1: 5 is a number: expected a section of keys"),
    ] {
        let errors = read_and_check(("f", text), &[], config, only).expect_err("no section");
        assert_eq!(errors.to_string(), says, "all keys have placeholders");
    }
    let later = key_errors(("f", text), &[], KeyError::new("loads", "no"));
    assert_eq!(later.to_string(), "f:4:8: loads: no");
}

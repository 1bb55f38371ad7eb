//! The journal: ten thousand requests with every remedy, replayed by the simulator's own machines, byte for
//! byte.

use crate::client::Client;
use crate::deadline::run_within;
use crate::directory::Directory;
use crate::proxy::{Proxy, Setup};
use crate::replica::{Replica, Speaks, abort, ok};
use crate::wire::Wire;
use curtail_policy::journal::Checksum;
use curtail_proxy::Options;
use curtail_sim::{End, Replayed, replay};
use curtail_units::Rng;
use http::{StatusCode, Version};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

const CLIENTS: usize = 20;

/// A server that now and then takes its time, fails, or breaks off.
async fn moody(seed: u64) -> Replica {
    let rng = Mutex::new(Rng::new(seed));
    Replica::start(Speaks::Http2, move |request| {
        let mood = rng.lock().expect("no panic").unit();
        async move {
            if request.headers().contains_key("curtail-class") {
                // A hedge: it finds a server that has got over it.
                return ok("good");
            }
            match mood {
                // Until it is cancelled for a hedge that is faster.
                m if m < 0.02 => std::future::pending().await,
                m if m < 0.03 => abort(),
                m if m < 0.05 => crate::replica::status(StatusCode::SERVICE_UNAVAILABLE),
                _ => ok("good"),
            }
        }
    })
    .await
}

/// Sends requests, some of which may not be repeated; returns how many succeeded.
async fn load(proxy: &Proxy, requests: usize) -> usize {
    let client = Client::connect(proxy.address(), Version::HTTP_2).await;
    let mut asking = tokio::task::JoinSet::new();
    for nth in 0..CLIENTS {
        let mut client = client.share();
        asking.spawn(async move {
            let mut good = 0;
            for turn in 0..requests / CLIENTS {
                let method = if (nth + turn) % 10 == 0 { "POST" } else { "GET" };
                let request = client.request(method, &format!("/{}", nth % 2));
                let response = client.send(request).await;
                good += usize::from(response.status == StatusCode::OK);
            }
            good
        });
    }
    let mut good = 0;
    while let Some(responded) = asking.join_next().await {
        good += responded.expect("no panic");
    }
    good
}

pub(crate) fn replayed(file: &Path) -> Replayed {
    let file = std::fs::File::open(file).expect("the journal");
    replay(std::io::BufReader::new(file)).expect("it is a journal")
}

/// The journal of requests to three moody servers behind leaves, under this policy.
async fn journal(directory: &Directory, policy: &str, requests: usize) -> PathBuf {
    let seed = 11;
    println!("seed {seed}, {policy:?}");
    let servers = [moody(seed).await, moody(seed + 1).await, moody(seed + 2).await];
    let leaf = |(name, server): (usize, &Replica)| {
        format!(
            "{{name: leaf-{name}, address: \"127.0.0.1:0\", server: \"http://{}\", concurrency: 8, \
             connect: {{protocol: http2}}}}",
            server.address()
        )
    };
    let leaves: Vec<_> = servers.iter().enumerate().map(leaf).collect();
    let leaves = Proxy::of_leaves(&leaves);
    let addresses = [0, 1, 2].map(|nth| leaves.listener(&format!("leaf-{nth}")));
    let file = directory.path("root.journal");
    let proxy = Setup::before(&addresses)
        .upstream(&format!(
            "connect: {{protocol: http2}}\nholdout: 0.1\nbudget: {{ratio: 0.2}}\ntimeout: 500ms\n{policy}"
        ))
        .journal(file.clone())
        .seed(seed)
        .start();
    // Looking at a machine changes nothing that it decides.
    let look = async {
        loop {
            proxy.metrics().await;
            proxy.admin("/state").await;
        }
    };
    let good = tokio::select! {
        good = load(&proxy, requests) => good,
        () = look => unreachable!("it never ends"),
    };
    // POSTs fail as often as their servers do.
    assert!(good > requests * 98 / 100, "{good} of {requests} succeeded");
    let metrics = proxy.metrics().await;
    for (what, count) in
        [("retries", metrics.attempts("retry")), ("cancelled attempts", metrics.cancelled("lost"))]
    {
        assert!(count > 0, "no {what}: {metrics}");
    }
    if policy.contains("prequal") {
        assert!(metrics.sum("curtail_probes_total", &[]) > 0, "no probes: {metrics}");
        assert!(metrics.attempts("tie_second") > 0, "no ties: {metrics}");
    }
    proxy.stop(Duration::from_secs(10)).await.expect("it stops");
    file
}

#[test]
fn ten_thousand_requests_are_replayed_effect_by_effect() {
    // Hedges after short delays, retries, and with ties or probes, which each have events of their own.
    const ALWAYS: &str =
        "hedge: {quantile: 0.8, delay_min: 1us, delay_max: 1s}\nretry: {backoff: 1ms}";
    let prequal = format!("{ALWAYS}\ntie: true\nbalance: {{policy: prequal, probe_timeout: 1s}}");
    let peak_ewma = format!("{ALWAYS}\nbalance: peak_ewma");
    run_within(Duration::from_secs(180), async {
        for (policy, requests) in [(prequal, 10_000), (peak_ewma, 2_000)] {
            let directory = Directory::new();
            let file = journal(&directory, &policy, requests).await;
            let replayed = replayed(&file);
            println!("{replayed:?}");
            assert_eq!(replayed.end, End::Complete);
            assert_eq!(replayed.requests, requests as u64);
            assert!(replayed.effects >= 2 * requests as u64, "each is sent and gets a response");
            tampered(&directory, &file);
        }
    });
}

#[test]
fn upstreams_of_a_group_are_replayed_in_the_order_of_their_events() {
    let seed = 12;
    println!("seed {seed}");
    run_within(Duration::from_secs(120), async {
        let directory = Directory::new();
        let file = directory.path("group.journal");
        let servers = [moody(seed).await, moody(seed + 1).await, moody(seed + 2).await];
        let urls = servers.each_ref().map(|server| format!("\"http://{}\"", server.address()));
        // Each upstream sends some hedges and skips others, because the other one has spent the budget.
        let upstream = format!(
            "{{replicas: [{}], group: data, connect: {{protocol: http2}}, retry: {{backoff: 1ms}}, \
             hedge: {{quantile: 0.8, delay_min: 1us}}, budget: {{ratio: 0.01}}, timeout: 500ms}}",
            urls.join(", ")
        );
        let yaml = format!(
            "workers: 2\n\
             listeners: [{{address: \"127.0.0.1:0\"}}]\n\
             admin: {{address: \"127.0.0.1:0\"}}\n\
             routes: [{{path_prefix: /0, upstream: even}}, {{path_prefix: /1, upstream: odd}}]\n\
             upstreams:\n  even: {upstream}\n  odd: {upstream}\n"
        );
        let proxy = Proxy::start(
            &yaml,
            &Options { journal: Some(file.clone()), seed, ..Options::default() },
        );
        load(&proxy, 4_000).await;
        let metrics = proxy.metrics().await;
        assert!(metrics.attempts("slower_than_quantile") > 0, "no hedges: {metrics}");
        proxy.stop(Duration::from_secs(10)).await.expect("it stops");
        let text = std::fs::read_to_string(&file).expect("the journal");
        assert!(text.contains("\"budget_spent\""), "the budget was never spent");
        assert_eq!(replayed(&file).end, End::Complete);
        // Without the group, each upstream would have a budget and latencies of its own.
        let mut checksum = Checksum::default();
        let opened = text.lines().map(|line| checksum.open(line).expect("its checksum"));
        let entries: Vec<String> = opened.map(|entry| entry.replace(",\"group\":0", "")).collect();
        let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
        let apart = directory.write("apart.journal", &sealed(&entries));
        assert!(matches!(replayed(&apart).end, End::Different(_)), "the group made no difference");
    });
}

#[test]
fn requests_that_fan_out_are_replayed_with_all_their_calls() {
    let seed = 13;
    println!("seed {seed}");
    run_within(Duration::from_secs(120), async {
        let directory = Directory::new();
        let file = directory.path("fan-out.journal");
        let servers = [moody(seed).await, moody(seed + 1).await, moody(seed + 2).await];
        let urls = servers.each_ref().map(|server| format!("\"http://{}\"", server.address()));
        let upstream = |keys: &str| {
            format!(
                "{{replicas: [{}], connect: {{protocol: http2}}, timeout: 300ms, {keys}}}",
                urls.join(", ")
            )
        };
        let yaml = format!(
            "workers: 2\n\
             listeners: [{{address: \"127.0.0.1:0\"}}]\n\
             admin: {{address: \"127.0.0.1:0\"}}\n\
             routes:\n  \
               - {{path_prefix: /0, upstream: all, fan_out: {{to: replicas, needed: 2, rest: finish}}}}\n  \
               - {{path_prefix: /1, upstream: \"shard-*\", fan_out: {{canaries: 1, deadline: 100ms}}}}\n  \
               - {{path_prefix: /2, upstream: \"shard-*\", fan_out: {{}}}}\n\
             upstreams:\n  all: {}\n  shard-0: {}\n  shard-1: {}\n",
            upstream("retry: false"),
            upstream("hedge: {delay_max: 5ms}"),
            upstream("hedge: false, retry: false"),
        );
        let proxy = Proxy::start(
            &yaml,
            &Options { journal: Some(file.clone()), seed, ..Options::default() },
        );
        load(&proxy, 1_000).await;
        // Some clients leave at once.
        for _ in 0..20 {
            let mut client = Client::connect(proxy.address(), Version::HTTP_2).await;
            let request = client.request("GET", "/2");
            tokio::select! {
                biased;
                _ = client.try_send(request) => {}
                () = tokio::task::yield_now() => {}
            }
        }
        // Some leave within an upload, before the calls begin.
        for _ in 0..20 {
            let mut wire = Wire::connect(proxy.address()).await;
            wire.send("POST /2 HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\nx").await;
        }
        let gone = [("result", "client_gone")];
        proxy.until(|metrics| metrics.sum("curtail_fan_out_requests_total", &gone) >= 20).await;
        proxy.stop(Duration::from_secs(10)).await.expect("it stops");
        let text = std::fs::read_to_string(&file).expect("the journal");
        let gathers = text.matches("\"entry\":\"gather\"").count();
        assert!(gathers >= 1_000, "{gathers} requests fanned out");
        for what in ["enough", "too_many_failed", "deadline", "canaries_succeeded"] {
            assert!(text.contains(&format!("\"{what}\"")), "nothing was {what}");
        }
        assert!(text.contains("\"eligible\":[2]"), "no call was pinned");
        let replayed = replayed(&file);
        println!("{replayed:?}");
        assert_eq!(replayed.end, End::Complete);
        // Another number of needed calls is found out at the first request.
        let mut checksum = Checksum::default();
        let opened = text.lines().map(|line| checksum.open(line).expect("its checksum"));
        let entries: Vec<String> = opened
            .map(|e| e.replace("\"calls\":3,\"needed\":2", "\"calls\":3,\"needed\":1"))
            .collect();
        let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
        let other = directory.write("other.journal", &sealed(&entries));
        let End::Different(difference) = self::replayed(&other).end else {
            panic!("a quorum of one made no difference")
        };
        assert_eq!(difference.machine, "/0", "{difference:?}");
    });
}

/// A journal that has been changed in one place is found out there.
fn tampered(directory: &Directory, file: &Path) {
    let text = std::fs::read_to_string(file).expect("the journal");
    let mut checksum = Checksum::default();
    let entries: Vec<String> =
        text.lines().map(|line| checksum.open(line).expect("its checksum")).collect();
    let lines: Vec<&str> = entries.iter().map(String::as_str).collect();
    assert!(lines[lines.len() - 1].starts_with("{\"entry\":\"end\""), "{:?}", lines.last());
    let sends = |line: &&str| line.contains("\"send\"") && line.contains("\"replica\":0");
    let victim = lines.iter().rposition(sends).expect("something went to the first replica");
    let mut changed = lines.clone();
    let line = changed[victim].replacen("\"replica\":0", "\"replica\":1", 1);
    changed[victim] = &line;
    let changed = directory.write("changed.journal", &sealed(&changed));
    match replayed(&changed).end {
        End::Different(difference) => {
            assert_eq!(difference.line, victim as u64 + 1, "{difference:?}")
        }
        end @ (End::Complete | End::Unfinished | End::Cut { .. }) => {
            panic!("the change in line {} was not noticed: {end:?}", victim + 1)
        }
    }
    // One event less, and what follows does not follow any more.
    let mut shorter = lines;
    let arrival = shorter.iter().position(|line| line.contains("\"arrived\"")).expect("an arrival");
    shorter.remove(arrival);
    shorter.pop();
    let shorter = directory.write("shorter.journal", &sealed(&shorter));
    let found = replay(std::io::BufReader::new(std::fs::File::open(shorter).expect("a file")));
    let unnoticed = found.is_ok_and(|replayed| replayed.end == End::Unfinished);
    assert!(!unnoticed, "the replay did not notice a missing event");
}

/// A journal with these entries and valid checksums.
fn sealed(entries: &[&str]) -> String {
    let mut checksum = Checksum::default();
    let lines = entries.iter().flat_map(|entry| checksum.seal(entry.as_bytes()));
    String::from_utf8(lines.collect()).expect("it was text")
}

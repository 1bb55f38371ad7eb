//! Attempts that belong to the upstream: a probe outlives the request that caused it.

use crate::deadline::run;
use crate::directory::Directory;
use crate::proxy::Setup;
use crate::raw_replica::RawReplica;
use crate::wire::Wire;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};

#[test]
fn a_probe_outlives_the_request_that_caused_it() {
    run(async {
        let directory = Directory::new();
        let file = directory.path("probes.journal");
        let (arrived, mut arrivals) = mpsc::channel(4);
        // A request gets no response, and a probe one for each permit.
        let gate = Arc::new(Semaphore::new(0));
        let replica = || {
            let (arrived, gate) = (arrived.clone(), Arc::clone(&gate));
            RawReplica::start(move |mut wire, record, _| {
                let (arrived, gate) = (arrived.clone(), Arc::clone(&gate));
                async move {
                    while let Some(request) = record.read(&mut wire).await {
                        let path = request.head.request().1.to_owned();
                        let is_probe = path == "/.curtail/load";
                        arrived.send(path).await.expect("the test waits");
                        if is_probe {
                            gate.acquire().await.expect("never closed").forget();
                            let load = "curtail-load: in_flight=1;latency_ns=1000";
                            wire.send(format!("HTTP/1.1 204 No Content\r\n{load}\r\n\r\n")).await;
                        }
                    }
                }
            })
        };
        let replicas = [replica().await, replica().await];
        let proxy = Setup::before(&replicas.each_ref().map(RawReplica::address))
            .upstream(
                "hedge: false\nretry: false\n\
                 balance: {policy: prequal, probes_per_request: 1.0, idle_interval: 600s, probe_timeout: 600s}",
            )
            .journal(file.clone())
            .start();
        let mut client = Wire::connect(proxy.address()).await;
        client.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        let mut paths =
            [arrivals.recv().await, arrivals.recv().await].map(Option::unwrap_or_default);
        paths.sort_unstable();
        assert_eq!(paths, ["/", "/.curtail/load"]);

        client.reset();
        let gone = [("status", "none")];
        proxy.until(|metrics| metrics.sum("curtail_requests_total", &gone) == 1).await;
        gate.add_permits(1);
        // The connection of the probe goes back to its pool; that of the request was closed.
        proxy.until(|metrics| metrics.sum("curtail_connections_idle", &[]) == 1).await;
        proxy.stop(Duration::ZERO).await.expect("it stops");
        let text = std::fs::read_to_string(&file).expect("the journal");
        let place = |event: &str| text.find(event).unwrap_or_else(|| panic!("no {event}: {text}"));
        assert!(place("\"abandoned\"") < place("\"probe_succeeded\""), "{text}");
    });
}

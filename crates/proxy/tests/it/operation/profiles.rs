//! Profiles of the proxy, through its admin port.

use crate::client::Client;
use crate::deadline::run;
use crate::proxy::Setup;
use crate::raw_replica::RawReplica;
use http::Version;
use serde_json::Value;

#[test]
fn the_admin_port_serves_profiles_while_the_workers_serve_requests() {
    run(async {
        let replica = RawReplica::responding("good").await;
        let proxy = Setup::before(&[replica.address()]).workers(1).start();
        let listing = proxy.admin("/debug/pprof/").await;
        assert!(listing.body.starts_with(b"profile?seconds=10"), "{listing:?}");
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let requests = async {
            loop {
                assert_eq!(client.get("/").await.status, 200);
            }
        };
        let profiles = async {
            let profile = proxy.admin("/debug/pprof/profile?seconds=1").await;
            (profile, proxy.admin("/debug/pprof/threads?seconds=1").await)
        };
        let (profile, threads) = tokio::select! {
            profiles = profiles => profiles,
            () = requests => unreachable!("requests go on without an end"),
        };
        assert_eq!(profile.head.status(), 200, "{profile:?}");
        assert!(profile.body.starts_with(&[0x1f, 0x8b]), "gzip");
        let threads: Value = serde_json::from_slice(&threads.body).expect("JSON");
        let of_worker = |thread: &&Value| thread["name"] == "worker-0";
        let worker = threads["threads"].as_array().expect("a list").iter().find(of_worker);
        let worker = worker.unwrap_or_else(|| panic!("no worker: {threads:#}"));
        assert!(worker["voluntary_switches"].as_u64() > Some(0), "{threads:#}");
    });
}

//! What a name leads to: aliases, both families of addresses, TLS, SRV records.

use super::{Fleet, replicas, state, until_replicas};
use crate::certificates::Authority;
use crate::client::Client;
use crate::deadline::run;
use crate::proxy::Setup;
use crate::raw_replica::{RawReplica, serve};
use crate::replica::{Replica, Speaks};
use curtail_testbed::{NameRecord, NameServer};
use http::{StatusCode, Version};
use std::net::Ipv6Addr;

#[test]
fn addresses_of_both_families_and_of_aliases_are_replicas() {
    run(async {
        let fleet = Fleet::start("dual.test", 31, 1, 0).await;
        let script = |wire, record, _| serve(wire, record, "six");
        let six = RawReplica::start_at((Ipv6Addr::LOCALHOST, fleet.port).into(), script).await;
        let addresses = [fleet.ip(0), six.address().ip()].map(NameRecord::Address);
        fleet.names.set("real.dual.test", 0, &addresses);
        fleet.names.set("dual.test", 0, &[NameRecord::Alias("real.dual.test".to_owned())]);
        let proxy = fleet.setup().upstream(&format!(
            "discovery: {{dns: \"http://dual.test:{}\"}}\nbalance: round_robin",
            fleet.port
        ));
        let proxy = proxy.start();
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        let mut bodies = vec![client.get("/").await.body, client.get("/").await.body];
        bodies.sort();
        assert_eq!(bodies, ["good", "six"]);
        for (family, count) in [("ipv4", 1), ("ipv6", 1), ("both", 2)] {
            let only = fleet.setup().upstream(&format!(
                "discovery: {{dns: \"http://dual.test:{}\", addresses: {family}}}",
                fleet.port
            ));
            proxy.reload(&only).expect("it is good");
            until_replicas(&proxy, count).await;
        }
    });
}

#[test]
fn certificates_are_checked_for_the_name_and_not_for_the_address() {
    run(async {
        let authority = Authority::new();
        let certificate = authority.issue("secure.test");
        let tls = Speaks::Tls(certificate.server(&["http/1.1"]));
        let replica = Replica::responding(tls, "secret").await;
        let names = NameServer::start().expect("loopback");
        let record = NameRecord::Address(replica.address().ip());
        names.set("secure.test", 0, std::slice::from_ref(&record));
        names.set("other.test", 0, &[record]);
        for (name, status) in
            [("secure.test", StatusCode::OK), ("other.test", StatusCode::SERVICE_UNAVAILABLE)]
        {
            let proxy = Setup::before_urls([])
                .upstream(&format!(
                    "discovery: {{dns: \"https://{name}:{}\"}}\nconnect: {{ca_file: {}}}",
                    replica.address().port(),
                    authority.file().display()
                ))
                .top(&format!("dns: {{servers: [\"{}\"]}}", names.address()))
                .start();
            assert_eq!(replicas(&proxy).await[0].1, format!("https://{}", replica.address()));
            let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
            assert_eq!(client.get("/").await.status, status, "{name}");
        }
    });
}

#[test]
fn targets_of_srv_records_are_replicas_with_ports_of_their_own() {
    run(async {
        let first = RawReplica::responding("0").await;
        let second = RawReplica::responding("1").await;
        let spare = RawReplica::responding("spare").await;
        let names = NameServer::start().expect("loopback");
        let server = |priority, replica: &RawReplica, target: &str| NameRecord::Server {
            priority,
            weight: 0,
            port: replica.address().port(),
            target: target.to_owned(),
        };
        let local = [NameRecord::Address(first.address().ip())];
        names.set("a.srv.test", 0, &local);
        names.set("b.srv.test", 0, &local);
        let service = "_http._tcp.srv.test";
        let spare_record = server(20, &spare, "b.srv.test");
        let records = [
            server(10, &first, "a.srv.test"),
            server(10, &second, "b.srv.test"),
            spare_record.clone(),
        ];
        names.set(service, 0, &records);
        let proxy = Setup::before_urls([])
            .upstream(&format!("discovery: {{srv: \"http://{service}\"}}"))
            .top(&format!(
                "dns: {{servers: [\"{}\"], refresh_min: 100ms, timeout: 100ms}}",
                names.address()
            ))
            .start();
        let urls = async || -> Vec<String> {
            let mut urls: Vec<_> = replicas(&proxy).await.into_iter().map(|(_, url)| url).collect();
            urls.sort();
            urls
        };
        let mut expected = [&first, &second].map(|replica| format!("http://{}", replica.address()));
        expected.sort();
        assert_eq!(urls().await, expected, "the lowest priority value");
        // Targets without addresses count as none.
        names.set(service, 0, &[server(10, &first, "none.srv.test"), spare_record.clone()]);
        let spare_url = [format!("http://{}", spare.address())];
        while urls().await != spare_url {
            tokio::task::yield_now().await;
        }
        let mut client = Client::connect(proxy.address(), Version::HTTP_11).await;
        assert_eq!(client.get("/").await.body, "spare");
        names.set(service, 0, &records[..1]);
        while urls().await != [format!("http://{}", first.address())] {
            tokio::task::yield_now().await;
        }
        assert_eq!(client.get("/").await.body, "0");
        let discovery = state(&proxy).await["discovery"].clone();
        assert_eq!(discovery["source"], format!("SRV records of http://{service}"));
    });
}

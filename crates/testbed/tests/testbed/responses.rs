//! The responses of servers.

use crate::client::{Client, Version, request, start};
use http::StatusCode;

const TWO_SHARDS: &str = "
name: two
shards: 2
replicas: 2
server: {service: {shape: constant, value: 0ms}}
";

#[tokio::test]
async fn every_replica_gives_the_same_values_in_both_versions_of_http() {
    let testbed = start(TWO_SHARDS, 1);
    let mut bodies = Vec::new();
    for version in [Version::Http1, Version::Http2] {
        for replica in 0..2 {
            let mut client = Client::connect(testbed.address(1, replica), version).await;
            let response = client.get("/shard/1/keys?k=alpha&k=beta-2_.x").await;
            assert_eq!(response.status, StatusCode::OK);
            let own = format!("\"replica\":{replica}");
            assert!(response.body.contains(&own), "{}", response.body);
            bodies.push(response.body.replace(&own, ""));
        }
    }
    let mut client = Client::connect(testbed.address(1, 0), Version::Http1).await;
    let response = client.get("/keys?k=alpha&k=beta-2_.x").await;
    bodies.push(response.body.replace("\"replica\":0", ""));
    assert!(bodies[0].contains("\"alpha\":\"") && bodies[0].contains("\"beta-2_.x\":\""));
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]), "{bodies:?}");
    assert_eq!(testbed.executions(), 5);
    assert_eq!(testbed.executions_of_server(0, 0), 0);
    assert_eq!(testbed.executions_of_server(1, 0), 3);
}

#[tokio::test]
async fn what_is_not_a_read_of_this_shard_is_refused_and_costs_nothing() {
    let testbed = start(TWO_SHARDS, 1);
    let mut client = Client::connect(testbed.address(0, 0), Version::Http1).await;
    let long = "k".repeat(65);
    for (path, status, says) in [
        ("/shard/1/keys?k=a", StatusCode::MISDIRECTED_REQUEST, "this server holds shard 0"),
        ("/shard/x/keys?k=a", StatusCode::NOT_FOUND, "/shard/NUMBER/keys"),
        ("/shard/0", StatusCode::NOT_FOUND, "/shard/NUMBER/keys"),
        ("/shard/0/keys", StatusCode::BAD_REQUEST, "0 keys"),
        ("/shard/0/keys?k=", StatusCode::BAD_REQUEST, "1 to 64 letters"),
        ("/shard/0/keys?k=a%22", StatusCode::BAD_REQUEST, "1 to 64 letters"),
        (&format!("/shard/0/keys?k={long}"), StatusCode::BAD_REQUEST, "1 to 64 letters"),
        ("/shard/0/keys?key=a", StatusCode::BAD_REQUEST, "expected k=KEY"),
    ] {
        let response = client.get(path).await;
        assert_eq!(response.status, status, "{path}");
        assert!(response.body.contains(says), "{path}: {}", response.body);
    }
    let many = format!("/shard/0/keys?{}", "k=a&".repeat(1_001));
    assert_eq!(client.get(&many).await.status, StatusCode::BAD_REQUEST);
    let response = client.send(request("PUT", "/shard/0/keys?k=a")).await;
    assert_eq!(response.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(testbed.executions(), 0);
}

#[tokio::test]
async fn health_and_executions_have_endpoints() {
    let testbed = start(TWO_SHARDS, 1);
    let mut client = Client::connect(testbed.address(0, 1), Version::Http2).await;
    assert_eq!(client.get("/healthz").await.body, "ok\n");
    assert_eq!(client.get("/executions").await.body, "0\n");
    assert_eq!(client.get("/shard/0/keys?k=a").await.status, StatusCode::OK);
    assert_eq!(client.get("/executions").await.body, "1\n");
}

#[tokio::test]
async fn executions_are_counted_for_the_tenant_of_the_request() {
    let testbed = start(TWO_SHARDS, 1);
    let mut client = Client::connect(testbed.address(0, 0), Version::Http1).await;
    for tenant in ["hedged", "direct", "hedged"] {
        let mut request = request("GET", "/shard/0/keys?k=a");
        request.headers_mut().insert("x-tenant", tenant.parse().expect("a word"));
        assert_eq!(client.send(request).await.status, StatusCode::OK);
    }
    assert_eq!(testbed.executions_of_tenant("hedged"), 2);
    assert_eq!(testbed.executions_of_tenant("direct"), 1);
    assert_eq!(testbed.executions_of_tenant("tied"), 0);
}

//! Clients that do not read the response: they are cut off, and their resources are freed.

use crate::access_log::lines_after;
use crate::client::Client;
use crate::deadline::run;
use crate::directory::Directory;
use crate::frames::{
    DATA, END_HEADERS, END_STREAM, Frames, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, request,
};
use crate::proxy::{Proxy, Setup};
use crate::raw_replica::{self, RawReplica};
use crate::wire::Wire;
use http::{StatusCode, Version};

const WHOLE: u8 = END_HEADERS | END_STREAM;

/// A replica whose responses never end, except to `/fast`. It never responds to `/silent`.
async fn endless() -> RawReplica {
    RawReplica::start(|mut wire, record, _| async move {
        while let Some(request) = record.read(&mut wire).await {
            match request.head.request().1 {
                "/fast" => {
                    wire.send(raw_replica::response("fast")).await;
                    continue;
                }
                "/silent" => {
                    wire.read_to_close().await;
                    return;
                }
                _ => {}
            }
            let upgrades = request.head.get("upgrade").is_some();
            let head = if upgrades {
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: test\r\n\r\n"
            } else {
                "HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n"
            };
            let mut sent = wire.write(head).await;
            while sent.is_ok() {
                sent = wire.write(vec![b'x'; 1 << 20]).await;
            }
            return;
        }
    })
    .await
}

fn before(replica: &RawReplica) -> Proxy {
    Setup::before(&[replica.address()])
        .top("limits: {write_timeout: 300ms}")
        .upstream("hedge: false\nretry: false\nconnect: {connections_max: 40}")
        .start()
}

/// A client whose windows are wide open. If it does not read, the connection itself is full.
async fn open_wide(proxy: &Proxy) -> Frames {
    let mut frames = Frames::connect(proxy.address()).await;
    let most = 0x7fff_ffff_u32.to_be_bytes();
    frames.send(SETTINGS, 0, 0, &[&[0, 4], &most[..]].concat()).await;
    let more = (0x7fff_ffff_u32 - 65_535).to_be_bytes();
    frames.send(WINDOW_UPDATE, 0, 0, &more).await;
    frames
}

/// Waits until only the count of these clients is left.
async fn until_cut_off(proxy: &Proxy, clients: u64) {
    let open = "curtail_connections_open";
    let metrics = proxy.until(|m| m.in_flight() == 0 && m.sum(open, &[]) == 0).await;
    let cut_off = metrics.sum("curtail_client_timeouts_total", &[("reason", "write")]);
    assert_eq!(cut_off, clients, "{metrics}");
}

#[test]
fn unread_http_2_streams_are_reset_and_free_their_connections() {
    run(async {
        let replica = endless().await;
        let proxy = before(&replica);
        let mut frames = Frames::connect(proxy.address()).await;
        // SETTINGS_INITIAL_WINDOW_SIZE is zero.
        frames.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]).await;
        for nth in 0..20 {
            frames.send(HEADERS, WHOLE, 2 * nth + 1, &request("GET", "/")).await;
        }
        let (mut heads, mut resets) = (0, 0);
        while resets < 20 {
            match frames.read().await.expect("the connection goes on").kind {
                HEADERS => heads += 1,
                RST_STREAM => resets += 1,
                kind => panic!("a frame of kind {kind}"),
            }
        }
        assert_eq!(heads, 20);
        until_cut_off(&proxy, 20).await;
    });
}

#[test]
fn the_access_log_tells_a_slow_client_from_one_that_left() {
    run(async {
        let replica = endless().await;
        let directory = Directory::new();
        let file = directory.path("access.log");
        let log = file.display();
        let keys = format!("limits: {{write_timeout: 300ms}}\naccess_log: {{file: {log}}}");
        let proxy = Setup::before(&[replica.address()]).top(&keys).start();
        let mut frames = Frames::connect(proxy.address()).await;
        // SETTINGS_INITIAL_WINDOW_SIZE is zero.
        frames.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]).await;
        frames.send(HEADERS, WHOLE, 1, &request("GET", "/http2")).await;
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET /http1 HTTP/1.1\r\nhost: h\r\n\r\n").await;
        wire.read_head().await.expect("held").expect("a response");
        let mut full = open_wide(&proxy).await;
        full.send(HEADERS, WHOLE, 1, &request("GET", "/silent")).await;
        full.send(HEADERS, END_HEADERS, 3, &request("POST", "/unfinished")).await;
        full.send(HEADERS, WHOLE, 5, &request("GET", "/full")).await;
        for line in lines_after(&proxy, 5, &file).await {
            assert_eq!(line["error"], "client_slow", "{line}");
            let attempt = &line["attempts"][0];
            let outcome = (attempt["outcome"].as_str(), attempt["outcome_reason"].as_str());
            assert_eq!(outcome, (Some("cancelled"), Some("client_slow")), "{line}");
        }
        let mut leaving = Wire::connect(proxy.address()).await;
        leaving.send("GET /left HTTP/1.1\r\nhost: h\r\n\r\n").await;
        leaving.read_head().await.expect("held").expect("a response");
        drop(leaving);
        let line = lines_after(&proxy, 6, &file).await.remove(5);
        assert_eq!(line["error"], "client_gone", "{line}");
    });
}

#[test]
fn a_stream_that_is_granted_a_byte_at_a_time_is_reset() {
    run(async {
        let replica = endless().await;
        let proxy = before(&replica);
        let mut frames = Frames::connect(proxy.address()).await;
        frames.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]).await;
        frames.send(HEADERS, WHOLE, 1, &request("GET", "/")).await;
        assert_eq!(frames.read().await.expect("a response").kind, HEADERS);
        loop {
            frames.send(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()).await;
            let frame = frames.read().await.expect("the connection goes on");
            if frame.kind == RST_STREAM {
                break;
            }
            assert_eq!((frame.kind, frame.payload.len()), (DATA, 1), "{frame:?}");
            // As slow as the metrics are polled: far slower than the write timeout allows.
            proxy.metrics().await;
        }
        until_cut_off(&proxy, 1).await;
    });
}

#[test]
fn an_unread_http_2_connection_is_closed() {
    run(async {
        let replica = endless().await;
        let proxy = before(&replica);
        let mut frames = open_wide(&proxy).await;
        frames.send(HEADERS, WHOLE, 1, &request("GET", "/")).await;
        let open = "curtail_client_connections_open";
        proxy.until(|m| m.sum("curtail_requests_total", &[]) == 1 && m.sum(open, &[]) == 0).await;
        until_cut_off(&proxy, 1).await;
    });
}

#[test]
fn an_http_1_client_that_reads_nothing_is_cut_off_and_counted() {
    run(async {
        let replica = endless().await;
        let proxy = before(&replica);
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        wire.read_head().await.expect("held").expect("a response");
        let open = "curtail_client_connections_open";
        proxy.until(|m| m.sum("curtail_requests_total", &[]) == 1 && m.sum(open, &[]) == 0).await;
        until_cut_off(&proxy, 1).await;
    });
}

#[test]
fn a_client_that_does_not_read_an_upgraded_connection_is_cut_off() {
    run(async {
        let replica = endless().await;
        let proxy = before(&replica);
        let mut wire = Wire::connect(proxy.address()).await;
        wire.send("GET / HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: test\r\n\r\n")
            .await;
        assert_eq!(wire.read_head().await.expect("held").expect("a response").status(), 101);
        let open = "curtail_client_connections_open";
        proxy.until(|m| m.sum("curtail_requests_total", &[]) == 1 && m.sum(open, &[]) == 0).await;
        until_cut_off(&proxy, 1).await;
    });
}

#[test]
fn others_are_served_while_a_client_reads_nothing() {
    run(async {
        let replica = endless().await;
        let proxy =
            Setup::before(&[replica.address()]).upstream("hedge: false\nretry: false").start();
        let mut frames = Frames::connect(proxy.address()).await;
        frames.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]).await;
        // As many streams as one client may have: by default, a quarter of the connections to a replica.
        for nth in 0..256 {
            frames.send(HEADERS, WHOLE, 2 * nth + 1, &request("GET", "/")).await;
            let response = frames.read().await.expect("the connection goes on");
            assert_eq!((response.kind, response.stream), (HEADERS, 2 * nth + 1), "{response:?}");
        }
        frames.send(HEADERS, WHOLE, 1_001, &request("GET", "/")).await;
        assert_eq!(frames.read().await.expect("it goes on").kind, RST_STREAM, "one too many");
        for version in [Version::HTTP_11, Version::HTTP_2] {
            for _ in 0..4 {
                let mut client = Client::connect(proxy.address(), version).await;
                assert_eq!(client.get("/fast").await.status, StatusCode::OK);
            }
        }
    });
}

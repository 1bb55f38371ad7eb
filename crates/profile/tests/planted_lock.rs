//! A lock that is held on purpose is named by the report of the threads.

use curtail_profile::respond;
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::Value;
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;
use std::thread::Builder;

fn report() -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let body = runtime.block_on(async {
        let response = respond(&Method::GET, "/debug/pprof/threads", Some("seconds=1")).await;
        response.into_body().collect().await.expect("it is whole").to_bytes()
    });
    serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&body)))
}

#[test]
fn threads_that_wait_for_one_lock_are_named_and_idle_threads_are_not() {
    let planted = Mutex::new(0);
    let (client, requests) = sync_channel::<()>(0);
    let report = std::thread::scope(|scope| {
        let held = planted.lock().expect("it is free");
        for nth in 0..3 {
            let waiter = Builder::new().name(format!("waiter-{nth}"));
            let work = || *planted.lock().expect("the holder does not panic") += 1;
            waiter.spawn_scoped(scope, work).expect("a thread");
        }
        let idle = Builder::new().name("idle".to_owned());
        // The receiver must end with the thread, for the sender to see that.
        let wait = move || requests.recv().is_err();
        idle.spawn_scoped(scope, wait).expect("a thread");
        let report = report();
        drop(held);
        drop(client);
        report
    });
    assert_eq!(planted.into_inner().expect("nothing panicked"), 3);
    let threads = report["threads"].as_array().expect("a list");
    let lock_ms = |name: &str| {
        let thread = threads.iter().find(|thread| thread["name"] == name);
        thread.unwrap_or_else(|| panic!("no {name}: {report:#}"))["lock_ms"].as_u64()
    };
    for waiter in ["waiter-0", "waiter-1", "waiter-2"] {
        assert!(lock_ms(waiter) > Some(500), "{report:#}");
    }
    assert_eq!(lock_ms("idle"), Some(0), "{report:#}");
    let lock = &report["locks"][0];
    let mut names: Vec<_> = lock["threads"].as_array().expect("a list").iter().collect();
    names.sort_by_key(|name| name.as_str());
    assert_eq!(names, ["waiter-0", "waiter-1", "waiter-2"], "{report:#}");
    assert!(lock["wait_ms"].as_u64() > Some(1_500), "{report:#}");
    assert_eq!(report["locks"][1], Value::Null, "there is one lock: {report:#}");
}

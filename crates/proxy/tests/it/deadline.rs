//! The time limit of a test.

use std::future::Future;
use std::time::Duration;

/// Far more than any test needs on a busy machine; this separates a hang from a slow run.
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs a test to its end on a runtime of its own: the proxy has threads of its own, clients and replicas
/// share this one.
pub(crate) fn run(test: impl Future<Output = ()>) {
    run_within(DEADLINE, test);
}

/// The same for a test that is known to be long.
pub(crate) fn run_within(deadline: Duration, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("the system gives a runtime");
    let ended = runtime.block_on(async { tokio::time::timeout(deadline, test).await });
    assert!(ended.is_ok(), "not over after {deadline:?}");
}

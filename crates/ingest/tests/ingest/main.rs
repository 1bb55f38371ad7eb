//! The receivers, over real sockets.

mod bad_input;
mod client;
mod disk;
mod durable;
mod received;
mod receiver;

/// Far more than any test needs on a busy machine.
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);

/// Runs a test, which must end.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let in_time = async { tokio::time::timeout(DEADLINE, test).await.expect("it hangs") };
    runtime.expect("a runtime").block_on(in_time);
}

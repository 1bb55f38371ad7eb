//! The proxy as a process of its own, whose memory can be measured.

use crate::directory::Directory;
use crate::metrics::Metrics;
use crate::program::Program;
use crate::proxy::ask_admin;
use std::net::SocketAddr;

/// A proxy that is killed in the end.
pub(super) struct ProxyProcess {
    program: Program,
    address: SocketAddr,
    admin: SocketAddr,
    _directory: Directory,
}

impl ProxyProcess {
    pub(super) async fn start(yaml: &str) -> Self {
        let directory = Directory::new();
        let file = directory.write("proxy.yaml", yaml);
        let program = Program::start(&["--config", file.to_str().expect("a UTF-8 path")]);
        let (address, admin) = (program.address().await, program.admin_address().await);
        Self { program, address, admin, _directory: directory }
    }

    /// Where clients connect.
    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the listener with this name listens.
    pub(super) async fn listener(&self, name: &str) -> SocketAddr {
        self.program.listener(name).await
    }

    pub(super) async fn metrics(&self) -> Metrics {
        let page = ask_admin(self.admin, "/metrics").await.expect("the admin port responds");
        Metrics::new(String::from_utf8(page.body.to_vec()).expect("metrics are text"))
    }

    /// Waits until the metrics say so; each look is a round trip to the admin port.
    pub(super) async fn until(&self, so: impl Fn(&Metrics) -> bool) -> Metrics {
        loop {
            let metrics = self.metrics().await;
            if so(&metrics) {
                return metrics;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until this many client connections are open, and no more.
    pub(super) async fn until_clients(&self, open: u64) {
        self.until(|metrics| metrics.sum("curtail_client_connections_open", &[]) <= open).await;
    }

    /// Starts a new measurement of the peak; returns the memory now.
    pub(super) fn reset_peak(&self) -> u64 {
        // Linux: "5" sets the peak to the present size.
        std::fs::write(self.file("clear_refs"), "5").expect("a process of ours");
        self.status("VmRSS:")
    }

    /// The maximum resident memory since [`Self::reset_peak`].
    pub(super) fn peak_bytes(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, key: &str) -> u64 {
        let status = std::fs::read_to_string(self.file("status")).expect("a process of ours");
        let kib = status.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next());
        kib.and_then(|kib| kib.parse::<u64>().ok()).expect("Linux has the key") << 10
    }

    fn file(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.program.pid())
    }
}

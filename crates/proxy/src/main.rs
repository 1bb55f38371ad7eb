//! `curtail-proxy`: the proxy alone, for fleets that want a sidecar and no analytics.

use clap::Parser;
use curtail_proxy::cli::{EXIT_CONFIG, ProxyArgs, run, version};
use curtail_proxy::log::log_service;
use std::io::Write as _;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A proxy that cuts the latency tail of HTTP services.
#[derive(Parser)]
#[command(name = "curtail-proxy", version = version(option_env!("CURTAIL_REVISION")), term_width = 80)]
struct Cli {
    #[command(flatten)]
    proxy: ProxyArgs,
}

fn main() -> ExitCode {
    // The allocator asks for huge pages, which take more memory than a small proxy needs. An old kernel may refuse.
    let _refused = rustix::thread::disable_transparent_huge_pages(true);
    let args = Cli::parse().proxy;
    if let Err(error) = log_service() {
        // Standard error may be closed; then the error cannot be reported.
        let _written = writeln!(std::io::stderr(), "{error}");
        return ExitCode::from(EXIT_CONFIG);
    }
    ExitCode::from(run(&args))
}

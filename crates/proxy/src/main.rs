//! `curtail-proxy`: the proxy alone, for fleets that want a sidecar and no analytics.

use clap::Parser;
use curtail_proxy::cli::{ProxyArgs, run};
use std::io::IsTerminal;
use std::process::ExitCode;

/// A proxy that cuts the latency tail of HTTP services.
#[derive(Parser)]
#[command(name = "curtail-proxy", version, term_width = 80)]
struct Cli {
    #[command(flatten)]
    proxy: ProxyArgs,
}

fn main() -> ExitCode {
    let args = Cli::parse().proxy;
    curtail_proxy::cli::log_to_stderr(std::io::stderr().is_terminal());
    ExitCode::from(run(&args))
}

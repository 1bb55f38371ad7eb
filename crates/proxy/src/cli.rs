//! The command line of the proxy: `curtail proxy`, and `curtail-proxy`, a smaller program with only this command.
//!
//! Exit codes: 0 done; 2 usage or configuration; 3 environment (an address in use, a file that cannot be read).

use crate::StartError;
use crate::config::{Config, ReplicaUrl};
use crate::restart::systemd;
use crate::running::{Options, ReloadError, Running};
use crate::signals::{ReloadSignal, RestartSignal, StopSignals};
use clap::Args;
use curtail_config::ConfigErrors;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::JoinHandle;

/// The exit code for an error of usage or configuration.
pub const EXIT_CONFIG: u8 = 2;
/// The exit code for an error of the environment.
const EXIT_ENVIRONMENT: u8 = 3;

/// Run a proxy that balances, hedges and retries the requests to a service, and states a reason for each decision.
#[derive(Args, Clone, Debug)]
#[command(
    group = clap::ArgGroup::new("source").args(["config", "upstream"]).required(true).multiple(true),
    after_help = "\
Examples:
  curtail proxy --listen 127.0.0.1:7300 \\
      --upstream http://127.0.0.1:8080 --upstream http://127.0.0.1:8081
  curtail proxy --upstream http://127.0.0.1:8080 \\
      --set upstreams.service.retry=false
  curtail proxy --config curtail.yaml --check
  curtail proxy --config curtail.yaml --journal /tmp/requests.journal
  curl -s http://127.0.0.1:7301/state"
)]
pub struct ProxyArgs {
    /// Configuration file (YAML); reloaded on SIGHUP and when it changes.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "upstream", "admin"])]
    pub config: Option<PathBuf>,
    /// Change a key of the configuration, by its path: `upstreams.search.hedge.quantile=0.995`. Without
    /// --config, the only upstream is named `service`. Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Address on which the proxy accepts requests; only without --config.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7300")]
    pub listen: SocketAddr,
    /// URL of a replica of the service; only without --config. Repeatable.
    #[arg(long, value_name = "URL")]
    pub upstream: Vec<ReplicaUrl>,
    /// Address on which the proxy serves metrics, health and state; only without --config.
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 7301)))]
    pub admin: SocketAddr,
    /// File to which the proxy writes all events and decisions of the policies, for `curtail simulate --replay`. An
    /// earlier file is kept as FILE.previous, unless a longer one is there.
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Seed of the policies' randomness [default: random, and printed].
    #[arg(long)]
    pub seed: Option<u64>,
    /// Check the configuration and its files, then exit without listening or sending.
    #[arg(long)]
    pub check: bool,
}

/// The version of a program, with the revision of the sources if the build names one: `make release` sets the environment
/// variable `CURTAIL_REVISION`.
#[must_use]
pub fn version(revision: Option<&str>) -> &'static str {
    let version = env!("CARGO_PKG_VERSION");
    match revision.filter(|revision| !revision.is_empty()) {
        // Once for each process.
        Some(revision) => format!("{version} ({revision})").leak(),
        None => version,
    }
}

/// Runs a proxy until a signal stops it; returns the exit code.
#[must_use]
pub fn run(args: &ProxyArgs) -> u8 {
    if args.check {
        return check(args);
    }
    // Registered first, because an unhandled SIGHUP would end the process.
    let registered =
        tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
            let _entered = runtime.enter();
            let reload = ReloadSignal::new(args.config.as_deref())?;
            Ok(((StopSignals::new()?, reload, RestartSignal::new()?), runtime))
        });
    let (signals, runtime) = match registered {
        Ok(registered) => registered,
        Err(error) => {
            tracing::error!(%error, "signals cannot be received");
            return EXIT_ENVIRONMENT;
        }
    };
    let config = match configuration(args) {
        Ok(config) => config,
        Err(code) => return code,
    };
    raise_open_files(&config);
    let seed = args.seed.unwrap_or_else(|| crate::trace_context::entropy_rng().next_u64());
    let options = Options { journal: args.journal.clone(), seed, notifies_systemd: true };
    let running = match crate::start(config, &options) {
        Ok(running) => running,
        Err(error) => {
            tracing::error!("{}", with_line(args, &error));
            return EXIT_ENVIRONMENT;
        }
    };
    for (name, address) in running.all_listeners() {
        tracing::info!(listener = name, %address, "listening");
    }
    if let Some(address) = running.admin() {
        tracing::info!(%address, "metrics, health and state");
    }
    tracing::info!(%seed, zone = running.zone(), "ready");
    runtime.block_on(serve(args, &running, signals));
    let drain = running.drain();
    tracing::info!(?drain, "stopping: no new connections, requests in progress may end");
    running.stop(drain);
    tracing::info!("stopped");
    0
}

/// Logs the errors that [`crate::check()`] finds; returns the exit code.
fn check(args: &ProxyArgs) -> u8 {
    let config = match configuration(args) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let errors = crate::check(&config);
    errors.iter().for_each(|error| tracing::error!("{}", with_line(args, error)));
    if !errors.is_empty() {
        return EXIT_ENVIRONMENT;
    }
    tracing::info!("the configuration is correct");
    0
}

/// Raises the limit of open files as far as the system allows. At the limit, new clients would wait, even for an error.
fn raise_open_files(config: &Config) {
    // That of the client, and that to a replica.
    let needed = 2 * config.limits.connections_max as u64 * config.listeners.len() as u64;
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(allowed) if allowed < needed => tracing::warn!(
            allowed,
            needed,
            "too few open files are allowed for limits.connections_max: raise the limit (LimitNOFILE, ulimit -Hn) or lower the key"
        ),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "the limit of open files cannot be raised"),
    }
}

/// Returns when the proxy must stop.
async fn serve(
    args: &ProxyArgs,
    running: &Running,
    (mut stop, mut changed, mut restart): (StopSignals, ReloadSignal, RestartSignal),
) {
    let mut starting = None;
    let new = loop {
        tokio::select! {
            biased;
            // A process that is replaced does not reload.
            new = running.replaced() => break new,
            () = stop.received() => return systemd::notify_stopping(),
            () = changed.received() => reload(args, running),
            () = restart.received() => start_new_process(running, &mut starting),
        }
    };
    tracing::info!(
        pid = new.pid,
        "replaced by a new process: each connection closes after its next response"
    );
    tokio::select! {
        () = stop.received() => {}
        () = running.drained() => {}
    }
}

/// Starts this program again, with the same arguments. It takes over when it is ready. `starting` waits for the end of the
/// process that was started before.
fn start_new_process(running: &Running, starting: &mut Option<JoinHandle<()>>) {
    let refused = if !running.can_be_replaced() {
        Some("a restart without interruption needs the key restart.socket")
    } else if starting.as_ref().is_some_and(|waiter| !waiter.is_finished()) {
        Some("the process that was started before has not taken over yet")
    } else {
        None
    };
    if let Some(why) = refused {
        return tracing::error!("SIGUSR2 ignored: {why}");
    }
    let mut arguments = std::env::args_os();
    let Some(program) = arguments.next() else {
        return tracing::error!("restart: this process does not know its program");
    };
    match Command::new(&program).args(arguments).spawn() {
        Ok(new) => {
            tracing::info!(pid = new.id(), program = %program.display(), "restart: started a new process");
            // Waits for its end: a process whose end nobody waits for stays in the process table.
            let wait = std::thread::Builder::new().name("new-process".to_owned());
            match wait.spawn(move || report_exit(new)) {
                Ok(waiter) => *starting = Some(waiter),
                Err(error) => {
                    tracing::warn!(%error, "restart: nobody waits for the end of the new process");
                }
            }
        }
        Err(error) => {
            tracing::error!(program = %program.display(), %error, "restart: the new process cannot be started");
        }
    }
}

fn report_exit(mut new: Child) {
    match new.wait() {
        Ok(status) if status.success() => {}
        Ok(status) => tracing::error!(pid = new.id(), %status, "restart: the new process ended"),
        Err(error) => tracing::warn!(%error, "restart: the new process cannot be waited for"),
    }
}

/// Reads the configuration file, or builds a configuration from the other arguments.
///
/// # Errors
/// The exit code, after the errors have been printed.
pub fn configuration(args: &ProxyArgs) -> Result<Config, u8> {
    let read = match &args.config {
        None => Config::from_arguments(args.listen, &args.upstream, args.admin, &args.set),
        Some(file) => {
            let text = read(file).map_err(|error| {
                tracing::error!("{}: {error}", file.display());
                EXIT_ENVIRONMENT
            })?;
            parse(file, text, &args.set)
        }
    };
    read.map_err(|errors| errors.to_string()).and_then(or_environment_zone).map_err(|errors| {
        tracing::error!("{errors}");
        EXIT_CONFIG
    })
}

fn or_environment_zone(config: Config) -> Result<Config, String> {
    config.or_environment_zone(std::env::var_os("CURTAIL_ZONE").as_deref())
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    curtail_config::read_bytes(File::open(file)?)
}

fn parse(file: &Path, bytes: Vec<u8>, set: &[String]) -> Result<Config, ConfigErrors> {
    let name = file.display().to_string();
    let text = curtail_config::text_of(&name, bytes)?;
    curtail_config::read_with_sets(&name, &text, set, Config::read)
}

/// An error of a start or a reload. One about a key also has the line of the key in the configuration file.
fn with_line(args: &ProxyArgs, error: &StartError) -> String {
    let located = || {
        let (file, key_error) = (args.config.as_ref()?, error.key_error()?);
        let text = String::from_utf8(read(file).ok()?).ok()?;
        let name = file.display().to_string();
        Some(curtail_config::key_errors((&name, &text), &args.set, key_error).to_string())
    };
    located().unwrap_or_else(|| error.to_string())
}

fn reload(args: &ProxyArgs, running: &Running) {
    let config = match &args.config {
        // The file of an access log is opened again, and certificates are read again.
        None => Config::from_arguments(args.listen, &args.upstream, args.admin, &args.set)
            .map_err(|errors| errors.to_string()),
        Some(file) => read(file)
            .map_err(|error| format!("{}: {error}", file.display()))
            .and_then(|bytes| parse(file, bytes, &args.set).map_err(|errors| errors.to_string())),
    };
    let before = running.all_listeners();
    let taken = config.and_then(or_environment_zone).and_then(|config| {
        running.reload(config).map_err(|error| match &error {
            ReloadError::Start(start) => with_line(args, start),
            ReloadError::NeedsRestart { .. } => error.to_string(),
        })
    });
    match taken {
        Ok(changed) => {
            let changed = if changed.is_empty() { "none".to_owned() } else { changed.join(", ") };
            let file = args.config.as_deref().map(|file| tracing::field::display(file.display()));
            tracing::info!(file, changed, "configuration reloaded");
            let opened = running.all_listeners().into_iter().filter(|open| !before.contains(open));
            opened.for_each(|(name, address)| {
                tracing::info!(listener = name, %address, "listening");
            });
        }
        Err(why) => {
            running.reload_failed();
            tracing::error!("new configuration rejected, the old one stays in effect:\n{why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn a_version_has_the_revision_that_the_build_names() {
        let plain = env!("CARGO_PKG_VERSION");
        assert_eq!((version(None), version(Some(""))), (plain, plain));
        assert_eq!(version(Some("1a2b3c")), format!("{plain} (1a2b3c)"));
    }
}

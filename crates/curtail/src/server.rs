//! `curtail server`: receives spans, logs and metrics, stores them, and serves queries.

use crate::{input, open_files};
use clap::Args;
use curtail_config::{ConfigErrors, Section};
use curtail_proxy::log::{ServiceLog, check_levels};
use curtail_proxy::signals::{ReloadSignal, StopSignals};
use curtail_server::{Config, Running};
use curtail_text::describe_error;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Receive OpenTelemetry data, store every span, and serve queries
///
/// The server receives spans, logs and metrics as OTLP over gRPC and HTTP, and
/// acknowledges them when they are durable. It stores them in Delta Lake tables of
/// Parquet files (DATA/tables/spans, logs, points), which other engines can read.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
--data, --tables, --otlp and --api set the keys in parentheses, and take
precedence over the configuration file. --set takes precedence over all of them.
`curtail config --kind server reference` lists all keys.

Tables may be in an object store: s3://bucket/prefix, gs://bucket/prefix or
az://container/prefix. Environment variables hold credentials and endpoints
(AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …; GOOGLE_…; AZURE_…).

Examples:
  curtail server
  curtail server --data /var/lib/curtail --otlp 0.0.0.0:4317 --otlp 0.0.0.0:4318
  curtail server --data /var/lib/curtail --tables s3://traces/production
  curtail server --config server.yaml --set retention.days=7
  curl -s localhost:3200/api/traces/4bf92f3577b34da6a3ce929d0e0e4736"
)]
pub(crate) struct ServerArgs {
    /// Configuration file (YAML); reloaded on SIGHUP and when it changes. `-` is standard input.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Change a key of the configuration, by its path: `retention.days=7`. Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Data folder (data) [default: curtail-data]. A URL here sets --tables instead.
    #[arg(long, value_name = "DIR|URL")]
    data: Option<String>,
    /// Folder or object store of the tables (tables) [default: in the data folder].
    #[arg(long, value_name = "DIR|URL")]
    tables: Option<String>,
    /// Address of an OTLP receiver, gRPC and HTTP (otlp.addresses)
    /// [default: 127.0.0.1:4317 and 127.0.0.1:4318]. Repeatable.
    #[arg(long, value_name = "ADDRESS")]
    otlp: Vec<SocketAddr>,
    /// Address of the query API (api.address) [default: 127.0.0.1:3200].
    #[arg(long, value_name = "ADDRESS")]
    api: Option<SocketAddr>,
}

impl ServerArgs {
    fn config(&self) -> anyhow::Result<Config> {
        let (name, text) = match &self.config {
            Some(file) => input::text(file)?,
            None => (String::new(), "{}".to_owned()),
        };
        Ok(read_config(&name, &text, &self.sets())?)
    }

    /// The options as `key=value`; those of `--set` come last.
    fn sets(&self) -> Vec<String> {
        let is_url = |data: &&String| {
            self.tables.is_none() && matches!(curtail_objects::folder(data), Ok(None))
        };
        let (tables, data) = match self.data.as_ref().filter(is_url) {
            Some(url) => (Some(url), None),
            None => (self.tables.as_ref(), self.data.as_ref()),
        };
        let mut sets = Vec::new();
        // JSON is YAML: it quotes what needs quotes.
        let mut set = |key: &str, value: serde_json::Value| sets.push(format!("{key}={value}"));
        if let Some(data) = data {
            set("data", data.as_str().into());
        }
        if let Some(tables) = tables {
            set("tables", tables.as_str().into());
        }
        if !self.otlp.is_empty() {
            set("otlp.addresses", self.otlp.iter().map(ToString::to_string).collect());
        }
        if let Some(api) = self.api {
            set("api.address", api.to_string().into());
        }
        sets.extend(self.set.iter().cloned());
        sets
    }
}

/// Reads the text of a configuration, changed by `sets`.
pub(crate) fn read_config(name: &str, text: &str, sets: &[String]) -> Result<Config, ConfigErrors> {
    curtail_config::read_with_sets(name, text, sets, read)
}

/// Reads a configuration section by section, and checks its log levels.
pub(crate) fn read(s: &mut Section<'_>) -> Config {
    let config = Config::read(s);
    if let Some(Err(error)) = config.log.as_deref().map(check_levels) {
        s.value_error("log", error.to_string());
    }
    config
}

/// Runs the server until SIGINT or SIGTERM; a SIGHUP or a changed file reloads the configuration.
pub(crate) fn run(args: &ServerArgs, log: &ServiceLog) -> anyhow::Result<ExitCode> {
    let config = args.config()?;
    log.set_levels(config.log.as_deref())?;
    open_files::allow(0)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Registered before the addresses are printed: their reader may send a signal at once.
        let mut signals = StopSignals::new()?;
        let mut changed = ReloadSignal::new(args.config.as_deref())?;
        let mut server = curtail_server::start(config)?;
        print(&server)?;
        loop {
            tokio::select! {
                () = signals.received() => break,
                () = server.failed() => break,
                () = changed.received() => reload(args, &server, log),
            }
        }
        server.stop()?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Applies the current content of the configuration file.
fn reload(args: &ServerArgs, server: &Running, log: &ServiceLog) {
    if args.config.as_deref() == Some(Path::new("-")) {
        return tracing::warn!("not reloaded: standard input can be read only once");
    }
    let applied = match args.config() {
        Ok(config) => {
            let levels = config.log.clone();
            server.reload(config).map(|()| levels).map_err(|error| describe_error(&error))
        }
        Err(error) => {
            server.reload_failed();
            Err(describe_error(error.as_ref()))
        }
    };
    match applied {
        Ok(levels) => {
            // Under the old levels or the new ones: each may hide the line.
            let report = || tracing::info!("configuration, certificates and tokens reloaded");
            let is_shown = tracing::enabled!(tracing::Level::INFO);
            if is_shown {
                report();
            }
            if let Err(error) = log.set_levels(levels.as_deref()) {
                tracing::error!("the log levels stay: {error}");
            }
            if !is_shown {
                report();
            }
        }
        Err(error) => tracing::error!("not reloaded, the old configuration stays: {error}"),
    }
}

fn print(server: &Running) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let scheme = |has_tls| if has_tls { "https" } else { "http" };
    let [otlp_tls, api_tls] = server.has_tls();
    for address in server.otlp() {
        writeln!(out, "otlp {}://{address} (gRPC and HTTP)", scheme(otlp_tls))?;
    }
    writeln!(out, "api  {}://{}", scheme(api_tls), server.api())?;
    out.flush()
}

//! `curtail`: the one command and its subcommands.
//!
//! Standard output carries results, standard error everything else.

mod bench;
mod config;
mod demo;
mod exit;
mod explain;
mod import;
mod input;
mod open_files;
mod output;
mod predict;
mod query;
mod scorecard;
mod server;
mod server_access;
mod server_traces;
mod server_url;
mod simulate;
mod sql;
mod terminal;
mod testbed;

use clap::{Parser, Subcommand};
use curtail_proxy::cli::version;
use curtail_proxy::log::{log_problems, log_service};
use std::process::ExitCode;

/// Finds, explains, predicts and cuts the latency tail of services.
#[derive(Debug, Parser)]
#[command(name = "curtail", version = version(option_env!("CURTAIL_REVISION")), arg_required_else_help = true, term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(Box<bench::BenchArgs>),
    Demo(demo::DemoArgs),
    Explain(explain::ExplainArgs),
    Predict(predict::PredictArgs),
    Proxy(curtail_proxy::cli::ProxyArgs),
    Query(query::QueryArgs),
    Scorecard(scorecard::ScorecardArgs),
    Server(server::ServerArgs),
    Import(import::ImportArgs),
    Simulate(simulate::SimulateArgs),
    Sql(sql::SqlArgs),
    Testbed(testbed::TestbedArgs),
    Config(config::ConfigArgs),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    std::panic::catch_unwind(|| exit::code(run(&command))).unwrap_or_else(|_| exit::panicked())
}

fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Bench(args) => {
            log_problems()?;
            bench::run(args)
        }
        Command::Config(args) => config::run(args),
        Command::Demo(args) => {
            // Its output is a table that lines of a log would tear apart.
            log_problems()?;
            demo::run(args)
        }
        Command::Explain(args) => explain::run(args),
        Command::Predict(args) => predict::run(args),
        Command::Proxy(args) => {
            log_service()?;
            Ok(ExitCode::from(curtail_proxy::cli::run(args)))
        }
        Command::Query(args) => query::run(args),
        Command::Scorecard(args) => scorecard::run(args),
        Command::Server(args) => server::run(args, &log_service()?),
        Command::Import(args) => import::run(args),
        Command::Simulate(args) => simulate::run(args),
        Command::Sql(args) => sql::run(args),
        Command::Testbed(args) => {
            log_problems()?;
            testbed::run(args)
        }
    }
}

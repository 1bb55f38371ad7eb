//! `curtail-sql`: a separate program for SQL over the tables of a server.

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    curtail_sql::command::run(&curtail_sql::command::Cli::parse())
}

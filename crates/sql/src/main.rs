//! `curtail-sql`: SQL over the tables of a server, in a program of its own.

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    curtail_sql::command::run(&curtail_sql::command::Cli::parse())
}

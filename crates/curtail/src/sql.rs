//! `curtail sql`: hands over to `curtail-sql`, a program of its own.
//!
//! The API finds the program and reports a missing one ([`SqlProgram`]), because it serves SQL with it too.

use clap::Args;
use curtail_api::SqlProgram;
use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Query the tables of a server in SQL
///
/// This command passes all arguments to the program `curtail-sql`, which `make sql`
/// builds. Output and exit code are those of `curtail-sql`.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail sql 'SELECT service, count(*) FROM spans GROUP BY service'
  curtail sql --data /var/lib/curtail --format json - < query.sql
  curtail-sql --help"
)]
pub(crate) struct SqlArgs {
    /// Arguments of `curtail-sql`.
    #[arg(
        value_name = "ARGUMENT",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<OsString>,
}

/// Becomes `curtail-sql`; returns only when that fails.
pub(crate) fn run(args: &SqlArgs) -> anyhow::Result<ExitCode> {
    let become_it = |path: &Path| Err(Command::new(path).args(&args.arguments).exec());
    match program()?.start::<Infallible>(become_it) {
        Ok(never) => match never {},
        Err(error) => Err(error.into()),
    }
}

/// The program, which may be beside this one.
pub(crate) fn program() -> std::io::Result<SqlProgram> {
    Ok(SqlProgram::beside(&std::env::current_exe()?))
}

//! `curtail sql`: runs the separate program `curtail-sql` in its place.
//!
//! [`SqlProgram`] of the API finds the program and reports a missing one, because the API runs the program as well.

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

/// Replaces this process with `curtail-sql`; returns only if that fails.
pub(crate) fn run(args: &SqlArgs) -> anyhow::Result<ExitCode> {
    let become_it = |path: &Path| Err(Command::new(path).args(&args.arguments).exec());
    match program()?.start::<Infallible>(become_it) {
        Ok(never) => match never {},
        Err(error) => Err(error.into()),
    }
}

/// The program, which may be in the folder of this program.
pub(crate) fn program() -> std::io::Result<SqlProgram> {
    Ok(SqlProgram::in_folder_of(&std::env::current_exe()?))
}

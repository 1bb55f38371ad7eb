//! `curtail sql`: hands over to `curtail-sql`, a program of its own.
//!
//! It links a query engine that takes longer to build than all the rest, so it need not be there: then it is said
//! how to get it. It is looked for beside this program first, then on the `PATH`.

use clap::Args;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

/// Ask the tables of a server in SQL
///
/// Hands over to the program `curtail-sql`, which `make sql` builds: all
/// arguments are its own, and so are its output and its exit code.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Examples:
  curtail sql 'SELECT service, count(*) FROM spans GROUP BY service'
  curtail sql --data /var/lib/curtail --format json - < question.sql
  curtail-sql --help"
)]
pub(crate) struct SqlArgs {
    /// What `curtail-sql` is told.
    #[arg(
        value_name = "ARGUMENT",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    arguments: Vec<OsString>,
}

const PROGRAM: &str = "curtail-sql";

/// There is no such program.
#[derive(Debug)]
pub(crate) struct Missing {
    beside: PathBuf,
}

impl std::error::Error for Missing {}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let beside = self.beside.display();
        write!(f, "there is no {beside}, and no {PROGRAM} on the PATH: `make sql` builds it")
    }
}

/// Becomes `curtail-sql`; returns only when that fails.
///
/// # Errors
/// Always: the program is missing, or cannot be run.
pub(crate) fn run(args: &SqlArgs) -> anyhow::Result<std::process::ExitCode> {
    let beside = std::env::current_exe()?.with_file_name(PROGRAM);
    for program in [beside.clone(), PathBuf::from(PROGRAM)] {
        let failed: io::Error = Command::new(&program).args(&args.arguments).exec();
        if failed.kind() != ErrorKind::NotFound {
            return Err(anyhow::Error::new(failed).context(program.display().to_string()));
        }
    }
    Err(Missing { beside }.into())
}

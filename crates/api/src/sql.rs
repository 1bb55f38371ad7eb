//! Queries in SQL, which the program `curtail-sql` runs: one process for each query.
//!
//! The body of a `POST /api/v1/sql` is the query, whatever its content type. The response is JSON, an array with an
//! object for each row; or CSV, or an object a line (`application/x-ndjson`), if that is accepted.
//!
//! | exit of the program | response |
//! |---|---|
//! | 0 | 200, with what it printed |
//! | 2 | 400: the question is wrong, or needs more memory than it may |
//! | 3 | 500: the tables cannot be read; with the program's error |
//! | otherwise, or by a signal | 500, with the way in which it ended; the program's output is only in the log |
//! | not in time | 504; it is killed |
//!
//! **Invariant**: who asks sees the rows of their tenant alone: the program is told whose (its `--tenant`), and no
//! SQL gets around that.
//! **Invariant**: a process is killed when nobody waits for its result: the client has gone, the time is over, or the
//! server ends. One whose server was killed gives up by itself, after [`LAST_S`].
//!
//! **Limits**: [`AT_ONCE`] queries at once, further ones are rejected; a body of [`SQL_BYTES_MAX`], a result of
//! [`RESULT_BYTES_MAX`], which is kept until it is complete: the client gets all of it, or an error. The memory of a query
//! is what the program grants by default. Rows that are in no file yet are not seen.

mod program;

use crate::answer::Answer;
use crate::asked::Asked;
use crate::refusal::Refusal;
use bytes::Bytes;
use curtail_store::SQL_BYTES_MAX;
use http::StatusCode;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body;
pub use program::{NotStarted, SqlProgram};
use std::error::Error;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;

/// Where it is asked.
pub(crate) const PATH: &str = "/api/v1/sql";

/// So many processes run at once.
const AT_ONCE: usize = 2;

/// Maximum size of a result.
const RESULT_BYTES_MAX: usize = 16 << 20;

/// So much is passed on of what the program says is wrong.
const SAID_BYTES_MAX: usize = 16 << 10;

/// Signals by number, the same on every Unix.
const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;
const SIGTERM: i32 = 15;

/// Rows are not counted here: a bound on them would cut the result.
const ROWS_MAX: u32 = u32::MAX;

/// Seconds after which the program gives up by itself: later than we do, so that it is we who say so.
const LAST_S: u32 = 90;

/// The exit code that says that the question is to blame.
const QUESTION: i32 = 2;

/// The exit code that says that the tables cannot be read.
const ENVIRONMENT: i32 = 3;

/// The program for SQL and the tables that it queries.
#[derive(Clone, Debug)]
pub struct Sql {
    program: SqlProgram,
    tables: Option<PathBuf>,
}

impl Sql {
    /// By this program, of the tables in a folder; without one they are where it cannot read them.
    #[must_use]
    pub const fn new(program: SqlProgram, tables: Option<PathBuf>) -> Self {
        Self { program, tables }
    }
}

/// Runs queries, a few at once.
#[derive(Debug)]
pub(crate) struct Asking {
    sql: Sql,
    turns: Semaphore,
}

impl Asking {
    pub(crate) const fn new(sql: Sql) -> Self {
        Self { sql, turns: Semaphore::const_new(AT_ONCE) }
    }

    /// Runs a query of a tenant. Dropping this kills the process.
    pub(crate) async fn answer<B>(&self, asked: &Asked<'_>, body: B) -> Result<Answer, Refusal>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let Some(tables) = &self.sql.tables else {
            return Err(Refusal::unsupported(
                "the tables are in an object store, and SQL is answered only of a folder",
            ));
        };
        let question = Limited::new(body, SQL_BYTES_MAX).collect().await.map_err(unread)?;
        let _turn = self.turns.try_acquire().map_err(|_| busy())?;
        let (tenant, form) = (asked.tenant, Form::of(asked));
        let mut child = self.sql.program.start(|path| spawn(path, tables, tenant, form))?;
        let printed = answered(&mut child, &question.to_bytes(), form.begin()).await?;
        Ok(Answer::of(form.content_type(), form.end(printed)))
    }
}

fn spawn(program: &Path, tables: &Path, tenant: &str, form: Form) -> io::Result<Child> {
    Command::new(program)
        .arg("--tables")
        .arg(tables)
        .arg(format!("--tenant={tenant}"))
        .args(["--format", form.name()])
        .args(["--rows", &ROWS_MAX.to_string(), "--timeout", &LAST_S.to_string()])
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// Passes a query to a process; returns its output, appended to `there`.
async fn answered(child: &mut Child, question: &[u8], there: Vec<u8>) -> Result<Vec<u8>, Refusal> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        unreachable!("all three are piped");
    };
    let told = async move {
        // Who has heard enough does not read on; what it says then is what counts.
        let _told = stdin.write_all(question).await;
        Ok(())
    };
    let printed = async {
        let printed = read(stdout, there, RESULT_BYTES_MAX).await?;
        if printed.len() > RESULT_BYTES_MAX { Err(large()) } else { Ok(printed) }
    };
    let said = read(stderr, Vec::new(), SAID_BYTES_MAX);
    let ((), printed, said) = tokio::try_join!(told, printed, said)?;
    let status = child.wait().await.map_err(failed)?;
    if status.success() { Ok(printed) } else { Err(ended(status, &String::from_utf8_lossy(&said))) }
}

/// Reads all that comes, but for what is beyond the first byte too many.
async fn read(
    from: impl AsyncRead + Unpin,
    mut to: Vec<u8>,
    max: usize,
) -> Result<Vec<u8>, Refusal> {
    let left = (max + 1).saturating_sub(to.len());
    from.take(left as u64).read_to_end(&mut to).await.map_err(failed)?;
    Ok(to)
}

/// The form of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    /// A line of JSON for each row.
    JsonLines,
    Csv,
}

impl Form {
    fn of(asked: &Asked<'_>) -> Self {
        if asked.accepts("text/csv") {
            Self::Csv
        } else if asked.accepts("application/x-ndjson") {
            Self::JsonLines
        } else {
            Self::Json
        }
    }

    /// As the program knows it.
    const fn name(self) -> &'static str {
        match self {
            Self::Json | Self::JsonLines => "json",
            Self::Csv => "csv",
        }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::JsonLines => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
        }
    }

    /// What comes before that which is printed.
    fn begin(self) -> Vec<u8> {
        match self {
            Self::Json => b"[".to_vec(),
            Self::JsonLines | Self::Csv => Vec::new(),
        }
    }

    /// The program prints an object a line, and a line ends nowhere else.
    fn end(self, mut printed: Vec<u8>) -> Vec<u8> {
        if self == Self::Json {
            printed.iter_mut().filter(|byte| **byte == b'\n').for_each(|end| *end = b',');
            printed.pop_if(|last| *last == b',');
            printed.extend(b"]\n");
        }
        printed
    }
}

impl From<NotStarted> for Refusal {
    fn from(error: NotStarted) -> Self {
        match error {
            NotStarted::Missing(_) => Self::unsupported(error.to_string()),
            NotStarted::Failed { program, source } => {
                tracing::error!(program = %program.display(), error = %source, "cannot be run");
                Self::failed()
            }
        }
    }
}

fn unread(error: Box<dyn Error + Send + Sync>) -> Refusal {
    if error.is::<LengthLimitError>() {
        let kib = SQL_BYTES_MAX >> 10;
        let message =
            format!("the query is longer than {kib} KiB ({SQL_BYTES_MAX} bytes), the maximum");
        return Refusal { status: StatusCode::PAYLOAD_TOO_LARGE, message };
    }
    Refusal::wrong(format!("the question did not come as a whole: {error}"))
}

fn busy() -> Refusal {
    let message = format!("{AT_ONCE} questions in SQL are being answered: ask again later");
    Refusal { status: StatusCode::TOO_MANY_REQUESTS, message }
}

fn large() -> Refusal {
    let mib = RESULT_BYTES_MAX >> 20;
    let message = format!("the result has more than {mib} MiB: group by more, or add a LIMIT");
    Refusal { status: StatusCode::UNPROCESSABLE_ENTITY, message }
}

fn failed(error: io::Error) -> Refusal {
    tracing::error!(%error, "curtail-sql cannot be heard");
    Refusal::failed()
}

fn ended(status: ExitStatus, said: &str) -> Refusal {
    let said = said.trim_end();
    if status.code() == Some(QUESTION) {
        return Refusal::wrong(said);
    }
    tracing::error!(%status, said, "curtail-sql has failed");
    let message = match (status.code(), status.signal()) {
        (Some(ENVIRONMENT), _) => format!("the tables cannot be read: {said}"),
        (_, Some(SIGKILL)) => {
            "curtail-sql was killed, usually because the machine ran out of memory: query a smaller range"
                .to_owned()
        }
        (_, Some(SIGABRT | SIGSEGV)) => {
            "curtail-sql ran out of memory or of stack: query a smaller range or simplify the query"
                .to_owned()
        }
        (_, Some(SIGTERM)) => "curtail-sql was terminated: retry".to_owned(),
        (_, Some(signal)) => format!("curtail-sql was killed by signal {signal}"),
        _ => "curtail-sql failed: see the server's log for its error".to_owned(),
    };
    Refusal { status: StatusCode::INTERNAL_SERVER_ERROR, message }
}

//! Runs queries in SQL with the program `curtail-sql`: one process for each query.
//!
//! The body of a `POST /api/v1/sql` is the query, whatever its content type. The response is a JSON array with an
//! object for each row. A client that accepts CSV or `application/x-ndjson` (an object a line) gets that format
//! instead.
//!
//! | exit of the program | response |
//! |---|---|
//! | 0 | 200, with the output of the program |
//! | 2 | 400: the query is invalid, or needs too much memory |
//! | 3 | 500: the tables cannot be read; with the program's error |
//! | otherwise, or by a signal | 500, with the exit code or the signal; the program's output is only in the log |
//! | not in time | 504; the program is killed |
//!
//! **Invariant**: a query reads only the rows of its tenant, which `--tenant` passes to the program.
//! **Invariant**: a process is killed if its result is not needed, because the client has disconnected, the time is
//! over, or the server ends. A process whose server was killed ends after [`LAST_S`].
//!
//! **Limits**: [`AT_ONCE`] queries at once (further queries are rejected), [`SQL_BYTES_MAX`] for a body, and
//! [`RESULT_BYTES_MAX`] for a result. The client gets the whole result or an error. Rows in memtables are not read.

mod program;

use crate::api_error::ApiError;
use crate::query_request::QueryRequest;
use crate::query_service::{ApiResponse, ApiResult};
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

/// The path of SQL queries.
pub(crate) const PATH: &str = "/api/v1/sql";

/// Maximum number of processes at once.
const AT_ONCE: usize = 2;

/// Maximum size of a result.
const RESULT_BYTES_MAX: usize = 16 << 20;

/// Maximum size of the program's error message.
const ERROR_BYTES_MAX: usize = 16 << 10;

/// Numbers of signals, the same on every Unix.
const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;
const SIGTERM: i32 = 15;

/// The program's maximum number of rows: unlimited, because a maximum would cut the result.
const ROWS_MAX: u32 = u32::MAX;

/// The program's own time limit, in seconds: longer than the limit of a request.
const LAST_S: u32 = 90;

/// The exit code for an invalid query.
const INVALID_QUERY: i32 = 2;

/// The exit code for tables that cannot be read.
const ENVIRONMENT: i32 = 3;

/// The program for SQL and the tables that it queries.
#[derive(Clone, Debug)]
pub struct Sql {
    program: SqlProgram,
    tables: Option<PathBuf>,
}

impl Sql {
    /// Runs `program` on the tables in a folder; [`None`] if they are in an object store, which SQL cannot read.
    #[must_use]
    pub const fn new(program: SqlProgram, tables: Option<PathBuf>) -> Self {
        Self { program, tables }
    }
}

/// Runs queries, at most [`AT_ONCE`] at once.
#[derive(Debug)]
pub(crate) struct SqlRunner {
    sql: Sql,
    turns: Semaphore,
}

impl SqlRunner {
    pub(crate) const fn new(sql: Sql) -> Self {
        Self { sql, turns: Semaphore::const_new(AT_ONCE) }
    }

    /// Runs a query of a tenant. Dropping this future kills the process.
    pub(crate) async fn respond<B>(&self, request: &QueryRequest<'_>, body: B) -> ApiResult
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        request.only(&[])?;
        let Some(tables) = &self.sql.tables else {
            return Err(ApiError::unsupported(
                "the tables are in an object store, and SQL reads only folders",
            ));
        };
        let query = Limited::new(body, SQL_BYTES_MAX).collect().await.map_err(unread)?;
        let _turn = self.turns.try_acquire().map_err(|_| busy())?;
        let (tenant, form) = (request.tenant, ResultForm::of(request));
        let mut child = self.sql.program.start(|path| spawn(path, tables, tenant, form.name))?;
        let begin = if form.is_array() { b"[".to_vec() } else { Vec::new() };
        let printed = run_query(&mut child, &query.to_bytes(), begin).await?;
        Ok(ApiResponse::of(form.content_type, form.end(printed)))
    }
}

fn spawn(program: &Path, tables: &Path, tenant: &str, format: &str) -> io::Result<Child> {
    Command::new(program)
        .arg("--tables")
        .arg(tables)
        .arg(format!("--tenant={tenant}"))
        .args(["--format", format])
        .args(["--rows", &ROWS_MAX.to_string(), "--timeout", &LAST_S.to_string()])
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// Passes a query to a process; returns `output` with the output of the process appended.
async fn run_query(child: &mut Child, query: &[u8], output: Vec<u8>) -> Result<Vec<u8>, ApiError> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (stdin, stdout, stderr) else {
        unreachable!("all three are piped");
    };
    let written = async move {
        // The program may end before it has read all; its exit code counts then.
        let _written = stdin.write_all(query).await;
        Ok(())
    };
    let printed = async {
        let printed = read(stdout, output, RESULT_BYTES_MAX).await?;
        if printed.len() > RESULT_BYTES_MAX { Err(large()) } else { Ok(printed) }
    };
    let errors = read(stderr, Vec::new(), ERROR_BYTES_MAX);
    let ((), printed, errors) = tokio::try_join!(written, printed, errors)?;
    let status = child.wait().await.map_err(failed)?;
    if status.success() {
        Ok(printed)
    } else {
        Err(ended(status, &String::from_utf8_lossy(&errors)))
    }
}

/// Reads up to `max` bytes and one more byte, to detect a longer output.
async fn read(
    from: impl AsyncRead + Unpin,
    mut to: Vec<u8>,
    max: usize,
) -> Result<Vec<u8>, ApiError> {
    let left = (max + 1).saturating_sub(to.len());
    from.take(left as u64).read_to_end(&mut to).await.map_err(failed)?;
    Ok(to)
}

/// The form of a result.
#[derive(Debug)]
struct ResultForm {
    /// The media type that selects this form in `accept`.
    accepted: &'static str,
    /// The name of the form in the program's option.
    name: &'static str,
    content_type: &'static str,
}

/// An array of objects.
static JSON: ResultForm =
    ResultForm { accepted: "application/json", name: "json", content_type: "application/json" };

/// All forms except [`JSON`]: CSV, and a line of JSON for each row.
static OTHER_FORMS: [ResultForm; 2] = [
    ResultForm { accepted: "text/csv", name: "csv", content_type: "text/csv; charset=utf-8" },
    ResultForm {
        accepted: "application/x-ndjson",
        name: "json",
        content_type: "application/x-ndjson",
    },
];

impl ResultForm {
    fn of(request: &QueryRequest<'_>) -> &'static Self {
        OTHER_FORMS.iter().find(|form| request.accepts(form.accepted)).unwrap_or(&JSON)
    }

    fn is_array(&self) -> bool {
        self.content_type == JSON.content_type
    }

    /// Ends the result. The program prints an object a line, and objects contain no line ends.
    fn end(&self, mut printed: Vec<u8>) -> Vec<u8> {
        if self.is_array() {
            printed.iter_mut().filter(|byte| **byte == b'\n').for_each(|end| *end = b',');
            printed.pop_if(|last| *last == b',');
            printed.extend(b"]\n");
        }
        printed
    }
}

impl From<NotStarted> for ApiError {
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

fn unread(error: Box<dyn Error + Send + Sync>) -> ApiError {
    if error.is::<LengthLimitError>() {
        let kib = SQL_BYTES_MAX >> 10;
        let message =
            format!("the query is longer than {kib} KiB ({SQL_BYTES_MAX} bytes), the maximum");
        return ApiError { status: StatusCode::PAYLOAD_TOO_LARGE, message };
    }
    ApiError::wrong(format!("the query was not received completely: {error}"))
}

fn busy() -> ApiError {
    let message = format!("{AT_ONCE} SQL queries are running: retry later");
    ApiError { status: StatusCode::TOO_MANY_REQUESTS, message }
}

fn large() -> ApiError {
    let mib = RESULT_BYTES_MAX >> 20;
    let message = format!("the result has more than {mib} MiB: group by more, or add a LIMIT");
    ApiError { status: StatusCode::UNPROCESSABLE_ENTITY, message }
}

fn failed(error: io::Error) -> ApiError {
    tracing::error!(%error, "cannot read the output of curtail-sql");
    ApiError::failed()
}

fn ended(status: ExitStatus, errors: &str) -> ApiError {
    let message = errors.trim_end();
    if status.code() == Some(INVALID_QUERY) {
        return ApiError::wrong(message);
    }
    tracing::error!(%status, stderr = message, "curtail-sql has failed");
    let message = match (status.code(), status.signal()) {
        (Some(ENVIRONMENT), _) => format!("the tables cannot be read: {message}"),
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
    ApiError { status: StatusCode::INTERNAL_SERVER_ERROR, message }
}

//! The tables of a folder, and their cache between queries: the list of their files, and the footers of those that
//! were read.
//!
//! Each query first follows the log of each table. Without a new commit, that is one lookup of the next one.

use crate::error::{AskError, OpenError};
use crate::files::Files;
use crate::footers::Footers;
use crate::query_result::QueryResult;
use crate::table::StoredTable;
use curtail_store::schema::{Schema, logs::LOGS, points::POINTS, spans::SPANS, traces::TRACES};
use curtail_store::{SQL_BYTES_MAX, delta};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::{SQLOptions, SessionContext};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionConfig;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use std::num::NonZeroUsize;
use std::sync::Arc;
use tokio::sync::Mutex;

/// The limits of a query.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Bytes that sorting, grouping and joining may keep in memory, all questions together.
    pub memory_bytes: usize,
    /// How many parts of a question are worked on at once.
    pub threads: NonZeroUsize,
}

/// The tables of a folder.
pub struct Tables {
    context: SessionContext,
    stored: Mutex<Vec<Stored>>,
    footers: Arc<Footers>,
    tenant: Option<Arc<str>>,
    bounds: Bounds,
}

/// A table at the version that was read last.
struct Stored {
    name: &'static str,
    schema: &'static Schema,
    root: Path,
    log: delta::Table,
    files: Arc<Files>,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { tenant, bounds, .. } = self;
        let mut shown = f.debug_struct("Tables");
        shown.field("tenant", tenant).field("bounds", bounds).finish_non_exhaustive()
    }
}

impl Tables {
    /// Opens the tables of a folder, for all tenants or for one.
    ///
    /// # Errors
    /// When it has none, or one cannot be read.
    pub async fn open(
        folder: &std::path::Path,
        tenant: Option<&str>,
        bounds: Bounds,
    ) -> Result<Self, OpenError> {
        let none = || OpenError::None(folder.to_path_buf());
        if !folder.is_dir() {
            return Err(none());
        }
        let objects = LocalFileSystem::new_with_prefix(folder)
            .map_err(|source| OpenError::Folder { path: folder.to_path_buf(), source })?;
        let objects: Arc<dyn ObjectStore> = Arc::new(objects);
        let known: [(_, &'static Schema); 4] = [
            ("spans", SPANS.schema()),
            ("logs", LOGS.schema()),
            ("points", POINTS.schema()),
            ("traces", TRACES.schema()),
        ];
        let mut stored = Vec::new();
        for (name, schema) in known {
            let root = Path::from(name);
            let opened = delta::Table::open(Arc::clone(&objects), root.clone()).await?;
            let files = Arc::default();
            stored.extend(opened.map(|log| Stored { name, schema, root, log, files }));
        }
        if stored.is_empty() {
            return Err(none());
        }
        let footers = Arc::new(Footers::new(objects));
        let (context, tenant) = (context(bounds)?, tenant.map(Arc::from));
        for table in &mut stored {
            table.look(&context, &footers, tenant.as_ref())?;
        }
        Ok(Self { context, stored: Mutex::new(stored), footers, tenant, bounds })
    }

    /// Executes a query with at most `rows_max` rows.
    ///
    /// # Errors
    /// When it is none, when it would change something, or when a table cannot be read.
    pub async fn ask(&self, question: &str, rows_max: usize) -> Result<QueryResult, AskError> {
        if question.len() > SQL_BYTES_MAX {
            return Err(AskError::Long(question.len()));
        }
        // Locked until the plan is made: all parts of a query read the same versions.
        let stored = &mut *self.stored.lock().await;
        self.refresh(stored).await?;
        let state = self.context.state();
        let dialect = state.config_options().sql_parser.dialect;
        let statement = state.sql_to_statement(question, &dialect).map_err(AskError::of)?;
        if !is_question(&statement) {
            return Err(AskError::refused(question));
        }
        let named = state.resolve_table_references(&statement).map_err(AskError::of)?;
        let plan = match state.statement_to_plan(statement).await {
            Ok(plan) => plan,
            Err(error) => {
                let missing = named.iter().find(|table| !self.knows(table.table()));
                let missing = missing.filter(|table| error.to_string().contains(table.table()));
                return Err(missing.map_or_else(
                    || AskError::of(error),
                    |table| AskError::no_table(table.table(), &self.names()),
                ));
            }
        };
        let read_only = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        read_only.verify_plan(&plan).map_err(|_| AskError::refused(question))?;
        let plan = at_most(plan, rows_max).map_err(AskError::of)?;
        let plan = state.create_physical_plan(&plan).await.map_err(AskError::of)?;
        let rows = execute_stream(plan, self.context.task_ctx()).map_err(AskError::of)?;
        Ok(QueryResult::new(rows, self.context.runtime_env(), Arc::clone(&self.footers), rows_max))
    }

    /// Reads the commits since the last query.
    async fn refresh(&self, stored: &mut [Stored]) -> Result<(), OpenError> {
        let mut has_changed = false;
        for table in &mut *stored {
            let version = table.log.version();
            table.log.refresh().await?;
            if table.log.version() != version {
                table.look(&self.context, &self.footers, self.tenant.as_ref())?;
                has_changed = true;
            }
        }
        if has_changed {
            self.footers.retain(&stored.iter().flat_map(|table| table.files.paths()).collect());
        }
        Ok(())
    }

    fn knows(&self, name: &str) -> bool {
        self.context.table_exist(name).unwrap_or_default()
    }

    fn names(&self) -> Vec<String> {
        let catalog = self.context.catalog("datafusion");
        let schema = catalog.and_then(|catalog| catalog.schema("public"));
        let mut names = schema.map(|schema| schema.table_names()).unwrap_or_default();
        names.sort();
        names
    }
}

impl Stored {
    /// Registers the table at the current version of its log.
    fn look(
        &mut self,
        context: &SessionContext,
        footers: &Arc<Footers>,
        tenant: Option<&Arc<str>>,
    ) -> Result<(), OpenError> {
        let columns = crate::columns::in_files(self.schema);
        self.files = Arc::new(Files::of(self.log.snapshot(), &self.root, &columns));
        let (files, footers) = (Arc::clone(&self.files), Arc::clone(footers));
        let table = StoredTable::new(self.schema, files, footers, tenant.cloned());
        context.deregister_table(self.name)?;
        context.register_table(self.name, Arc::new(table))?;
        Ok(())
    }
}

/// A session without tables that cannot spill to disk.
fn context(bounds: Bounds) -> Result<SessionContext, OpenError> {
    let disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(GreedyMemoryPool::new(bounds.memory_bytes)))
        .with_disk_manager_builder(disk)
        .build_arc()?;
    let mut config = SessionConfig::new()
        .with_information_schema(true)
        .with_target_partitions(bounds.threads.get());
    config.options_mut().execution.parquet.pushdown_filters = true;
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .build();
    Ok(SessionContext::new_with_state(state))
}

/// Whether a statement only reads.
fn is_question(statement: &Statement) -> bool {
    use ast::Statement as Sql;
    match statement {
        Statement::Explain(explain) => is_question(&explain.statement),
        Statement::Statement(statement) => matches!(
            **statement,
            Sql::Query(_)
                | Sql::ExplainTable { .. }
                | Sql::ShowColumns { .. }
                | Sql::ShowFunctions { .. }
                | Sql::ShowTables { .. }
                | Sql::ShowVariable { .. }
        ),
        Statement::CreateExternalTable(_) | Statement::CopyTo(_) | Statement::Reset(_) => false,
    }
}

/// Limits a query to one row more than the maximum, to detect that there are more.
fn at_most(plan: LogicalPlan, rows_max: usize) -> datafusion::common::Result<LogicalPlan> {
    let tells_of_plans = matches!(
        plan,
        LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) | LogicalPlan::DescribeTable(_)
    );
    if tells_of_plans {
        return Ok(plan);
    }
    LogicalPlanBuilder::from(plan).limit(0, rows_max.checked_add(1))?.build()
}

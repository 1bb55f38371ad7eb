//! The tables of a folder, at their versions at the time when the folder is opened.

use crate::columns;
use crate::error::{OpenError, QueryError};
use crate::files::Files;
use crate::footers::Footers;
use crate::query_result::QueryResult;
use crate::table::StoredTable;
use curtail_store::{SQL_BYTES_MAX, delta, schema};
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

/// The limits of a query.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum memory for sorting, grouping and joining, in bytes.
    pub memory_bytes: usize,
    /// Maximum number of parts of a query that run at once.
    pub threads: NonZeroUsize,
}

/// The tables of a folder, which are opened for a query.
pub struct Tables {
    context: SessionContext,
    footers: Arc<Footers>,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tables").finish_non_exhaustive()
    }
}

impl Tables {
    /// Opens the tables of a folder, for all tenants or for one.
    ///
    /// # Errors
    /// When the folder has no tables, or a table cannot be read.
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
        let tenant: Option<Arc<str>> = tenant.map(Arc::from);
        let context = context(bounds)?;
        let footers = Arc::new(Footers::new(Arc::clone(&objects)));
        let mut has_table = false;
        for table in schema::tables() {
            let (name, schema) = (table.name, table.schema());
            let root = Path::from(name);
            let log = delta::Table::open(Arc::clone(&objects), root.clone()).await?;
            let Some(log) = log else { continue };
            let files = Files::of(log.snapshot(), &root, &columns::in_files(schema));
            let table = StoredTable::new(schema, files, Arc::clone(&footers), tenant.clone());
            context.register_table(name, Arc::new(table))?;
            has_table = true;
        }
        if has_table { Ok(Self { context, footers }) } else { Err(none()) }
    }

    /// Executes a query with at most `rows_max` rows.
    ///
    /// # Errors
    /// When the text is not a query, the query would change something, or a table cannot be read.
    pub async fn query(&self, query: &str, rows_max: usize) -> Result<QueryResult, QueryError> {
        if query.len() > SQL_BYTES_MAX {
            return Err(QueryError::Long(query.len()));
        }
        let state = self.context.state();
        let dialect = state.config_options().sql_parser.dialect;
        let statement = state.sql_to_statement(query, &dialect).map_err(QueryError::of)?;
        if !is_read_only(&statement) {
            return Err(QueryError::refused(query));
        }
        let named = state.resolve_table_references(&statement).map_err(QueryError::of)?;
        let plan = match state.statement_to_plan(statement).await {
            Ok(plan) => plan,
            Err(error) => {
                let missing = named.iter().find(|table| !self.knows(table.table()));
                let missing = missing.filter(|table| error.to_string().contains(table.table()));
                let Some(table) = missing else { return Err(QueryError::of(error)) };
                let (name, known) = (table.table().to_owned(), self.names().join(", "));
                return Err(QueryError::NoTable { name, known });
            }
        };
        let read_only = SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false);
        read_only.verify_plan(&plan).map_err(|_| QueryError::refused(query))?;
        let plan = at_most(plan, rows_max).map_err(QueryError::of)?;
        let plan = state.create_physical_plan(&plan).await.map_err(QueryError::of)?;
        let rows = execute_stream(plan, self.context.task_ctx()).map_err(QueryError::of)?;
        let (runtime, footers) = (self.context.runtime_env(), Arc::clone(&self.footers));
        Ok(QueryResult { rows, runtime, footers, left: rows_max, is_cut: false })
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

/// Creates a session without tables, which cannot spill to disk.
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
fn is_read_only(statement: &Statement) -> bool {
    use ast::Statement as Sql;
    match statement {
        Statement::Explain(explain) => is_read_only(&explain.statement),
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

/// Limits a query to one row more than `rows_max`, to detect that the result has more rows.
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

//! A table for DataFusion: the columns of the table, and plans that read its files.

use crate::columns;
use crate::files::Files;
use crate::footers::{Footers, Readers};
use crate::tenant::{self, RowsOf, TENANT};
use async_trait::async_trait;
use curtail_store::schema::Schema;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::pruning::PruningStatistics as _;
use datafusion::common::{DFSchema, Result};
use datafusion::datasource::TableType;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_optimizer::pruning::PruningPredicateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use std::sync::Arc;

/// The parameters of a scan.
struct Read {
    /// Whether to read each file.
    kept: Vec<bool>,
    /// The columns to read; absent: all columns.
    columns: Option<Vec<usize>>,
    /// The condition that prunes row groups, pages and rows.
    condition: Option<Expr>,
    /// Maximum number of rows.
    limit: Option<usize>,
}

/// A table at one version of its Delta log.
#[derive(Debug)]
pub(crate) struct StoredTable {
    columns: TableSchema,
    files: Files,
    footers: Arc<Footers>,
    /// The tenant; absent: all tenants.
    tenant: Option<Arc<str>>,
}

impl StoredTable {
    pub(crate) fn new(
        schema: &Schema,
        files: Files,
        footers: Arc<Footers>,
        tenant: Option<Arc<str>>,
    ) -> Self {
        let columns = TableSchema::builder(columns::in_files(schema))
            .with_table_partition_cols(vec![columns::day()])
            .build();
        Self { columns, files, footers, tenant }
    }

    /// Returns, for each file, whether it can have rows that match `filters`.
    fn kept(&self, state: &dyn Session, filters: &[Expr]) -> Result<Vec<bool>> {
        let all = vec![true; self.files.num_containers()];
        let Some(filter) = conjunction(filters.to_vec()) else { return Ok(all) };
        let columns = DFSchema::try_from(self.schema())?;
        let filter = state.create_physical_expr(filter, &columns)?;
        // A filter without bounds on a column gives no predicate.
        let pruning = PruningPredicateBuilder::new().with_file_schema(self.schema()).build(filter);
        pruning.map_or(Ok(all), |pruning| pruning.prune(&self.files))
    }

    fn read(&self, state: &dyn Session, read: Read) -> Result<Arc<dyn ExecutionPlan>> {
        let options = state.config_options().execution.parquet.clone();
        let mut source = ParquetSource::new(self.columns.clone())
            .with_pushdown_filters(options.pushdown_filters)
            .with_enable_page_index(true)
            .with_parquet_file_reader_factory(Arc::new(Readers(Arc::clone(&self.footers))));
        if let Some(condition) = read.condition {
            let columns = DFSchema::try_from(self.schema())?;
            source = source.with_predicate(state.create_physical_expr(condition, &columns)?);
        }
        let files = self.files.kept(&read.kept);
        let groups = FileGroup::new(files).split_files(state.config().target_partitions());
        // DataFusion looks for a store under this name; what is read comes from ours.
        let scan = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(self.files.statistics(&read.kept, &self.schema()))
            .with_projection_indices(read.columns)?
            .with_limit(read.limit)
            .build();
        Ok(DataSourceExec::from_data_source(scan))
    }

    /// Returns the plan that reads the rows of one tenant.
    fn read_of(
        &self,
        tenant: &Arc<str>,
        state: &dyn Session,
        mut read: Read,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = self.schema();
        let mut columns = read.columns.unwrap_or_else(|| (0..schema.fields().len()).collect());
        let shown = columns.len();
        let of_tenant = schema.index_of(TENANT)?;
        if !columns.contains(&of_tenant) {
            columns.push(of_tenant);
        }
        read.columns = Some(columns);
        let is_of = tenant::is_of(tenant);
        read.condition = Some(match read.condition {
            Some(condition) => is_of.and(condition),
            None => is_of,
        });
        // Whether the rows of others count is up to the reader of a file.
        read.limit = None;
        let scan = self.read(state, read)?;
        // DataFusion would do so itself, if it saw this scan.
        let parts = state.config().target_partitions();
        let in_parts = scan.repartitioned(parts, state.config_options())?;
        Ok(Arc::new(RowsOf::new(tenant, in_parts.unwrap_or(scan), shown, state)?))
    }
}

#[async_trait]
impl TableProvider for StoredTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.columns.table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    /// Declares that filters prune files, row groups and pages, and that DataFusion must still apply them to rows.
    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let filters: Vec<_> = match &self.tenant {
            None => filters.to_vec(),
            // The others are looked at above, where there are rows of the tenant alone.
            Some(_) => filters.iter().filter(|filter| tenant::is_sure(filter)).cloned().collect(),
        };
        let kept = self.kept(state, &filters)?;
        if !kept.contains(&true) {
            let columns = self.schema();
            let columns = match projection {
                Some(projection) => Arc::new(columns.project(projection)?),
                None => columns,
            };
            return Ok(Arc::new(EmptyExec::new(columns)));
        }
        let columns = projection.cloned();
        match &self.tenant {
            None => self.read(state, Read { kept, columns, condition: None, limit }),
            Some(tenant) => {
                let read = Read { kept, columns, condition: conjunction(filters), limit };
                self.read_of(tenant, state, read)
            }
        }
    }
}

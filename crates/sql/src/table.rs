//! A table as DataFusion asks for it: its columns, and a plan that reads its files.

use crate::columns;
use crate::files::Files;
use crate::footers::{Footers, Readers};
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

/// A table at one version of its log.
#[derive(Debug)]
pub(crate) struct StoredTable {
    columns: TableSchema,
    files: Arc<Files>,
    footers: Arc<Footers>,
}

impl StoredTable {
    pub(crate) fn new(schema: &Schema, files: Arc<Files>, footers: Arc<Footers>) -> Self {
        let columns = TableSchema::builder(columns::in_files(schema))
            .with_table_partition_cols(vec![columns::day()])
            .build();
        Self { columns, files, footers }
    }

    /// Which files can have rows for which `filters` hold.
    fn kept(&self, state: &dyn Session, filters: &[Expr]) -> Result<Vec<bool>> {
        let all = vec![true; self.files.num_containers()];
        let Some(filter) = conjunction(filters.to_vec()) else { return Ok(all) };
        let columns = DFSchema::try_from(self.schema())?;
        let filter = state.create_physical_expr(filter, &columns)?;
        // A filter that says nothing of extremes makes none.
        let pruning = PruningPredicateBuilder::new().with_file_schema(self.schema()).build(filter);
        pruning.map_or(Ok(all), |pruning| pruning.prune(&*self.files))
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

    /// They are used to leave out files, row groups and pages; what is left is looked at once more.
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
        let kept = self.kept(state, filters)?;
        let files = self.files.kept(&kept);
        if files.is_empty() {
            let columns = self.schema();
            let columns = match projection {
                Some(projection) => Arc::new(columns.project(projection)?),
                None => columns,
            };
            return Ok(Arc::new(EmptyExec::new(columns)));
        }
        let options = state.config_options().execution.parquet.clone();
        let source = ParquetSource::new(self.columns.clone())
            .with_pushdown_filters(options.pushdown_filters)
            .with_enable_page_index(true)
            .with_parquet_file_reader_factory(Arc::new(Readers(Arc::clone(&self.footers))));
        let groups = FileGroup::new(files).split_files(state.config().target_partitions());
        // DataFusion looks for a store under this name; what is read comes from ours.
        let scan = FileScanConfigBuilder::new(ObjectStoreUrl::local_filesystem(), Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(self.files.statistics(&kept, &self.schema()))
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .build();
        Ok(DataSourceExec::from_data_source(scan))
    }
}

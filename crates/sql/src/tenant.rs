//! Restricts queries to the rows of one tenant.
//!
//! For one tenant, every scan of a table is filtered by the column `tenant`. All SQL reads rows through scans (also
//! joins, subqueries, CTEs and UNION), so no query avoids the filter.
//!
//! **Invariant**: no expression of a query sees a value of another tenant. A filter of the result would not suffice:
//! `CAST(name AS BIGINT)` fails on a name, and the error contains the name. Only conditions that cannot fail are pushed
//! down to the files ([`is_sure`]). To DataFusion, a filtered scan has no inputs ([`RowsOf`]), so no optimizer rule
//! moves another expression below the filter, and no plan shows the files.
//!
//! **When it hurts**: DataFusion's dynamic filters (of a sort with a limit, of a join) skip pages only in queries for
//! all tenants.

use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator, ident, lit};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::filter::FilterExecBuilder;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use std::fmt;
use std::sync::Arc;

/// The column of the tenant, in every table.
pub(crate) const TENANT: &str = "tenant";

/// Returns the condition that selects the rows of a tenant.
pub(crate) fn is_of(tenant: &str) -> Expr {
    ident(TENANT).eq(lit(ScalarValue::Utf8View(Some(tenant.to_owned()))))
}

/// Comparisons that are defined for all values of one type.
const COMPARISONS: [Operator; 6] =
    [Operator::Eq, Operator::NotEq, Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq];

/// Whether a condition cannot fail for any value, because it only compares columns with constants.
pub(crate) fn is_sure(condition: &Expr) -> bool {
    let is_column = |of: &Expr| matches!(of, Expr::Column(_));
    let is_constant = |of: &Expr| matches!(of, Expr::Literal(..));
    if let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition {
        if op.is_logic_operator() {
            return is_sure(left) && is_sure(right);
        }
        let are_column_and_constant =
            is_column(left) && is_constant(right) || is_constant(left) && is_column(right);
        return COMPARISONS.contains(op) && are_column_and_constant;
    }
    if let Expr::InList(InList { expr, list, .. }) = condition {
        return is_column(expr) && list.iter().all(is_constant);
    }
    if let Expr::Not(not) = condition {
        return is_sure(not);
    }
    matches!(condition, Expr::IsNull(of) | Expr::IsNotNull(of) if is_column(of))
}

/// A scan of the rows of one tenant.
#[derive(Debug)]
pub(crate) struct RowsOf {
    tenant: Arc<str>,
    /// The plan: the filter, and the scan of files below it.
    rows: Arc<dyn ExecutionPlan>,
}

impl RowsOf {
    /// Filters the rows of a scan, and keeps its first `shown` columns.
    pub(crate) fn new(
        tenant: &Arc<str>,
        scan: Arc<dyn ExecutionPlan>,
        shown: usize,
        state: &dyn Session,
    ) -> Result<Self> {
        let columns = DFSchema::try_from(scan.schema())?;
        let filter = state.create_physical_expr(is_of(tenant), &columns)?;
        let rows = FilterExecBuilder::new(filter, scan)
            .apply_projection(Some((0..shown).collect()))?
            .build()?;
        Ok(Self { tenant: Arc::clone(tenant), rows: Arc::new(rows) })
    }
}

impl DisplayAs for RowsOf {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowsOf: tenant={}", self.tenant)
    }
}

impl ExecutionPlan for RowsOf {
    fn name(&self) -> &'static str {
        "RowsOf"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.rows.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    /// Resets the plan, which a recursive query executes again.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        let rows = reset_plan_states(Arc::clone(&self.rows))?;
        Ok(Arc::new(Self { tenant: Arc::clone(&self.tenant), rows }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.rows.execute(partition, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::DataType;
    use datafusion::logical_expr::cast;

    #[test]
    fn what_may_fail_over_a_value_is_not_sure() {
        let (name, ns) = (ident("name"), ident("duration_ns"));
        let sure = [
            name.clone().eq(lit("a")),
            lit(5).lt(ns.clone()),
            name.clone().is_null().or(ns.clone().in_list(vec![lit(1), lit(2)], true)),
            !ns.clone().gt_eq(lit(5)),
        ];
        for condition in sure {
            assert!(is_sure(&condition), "{condition}");
        }
        let number = cast(name.clone(), DataType::Int64);
        let unsure = [
            number.clone().gt(lit(0)),
            number.clone().is_not_null(),
            (lit(1) / ns.clone()).gt(lit(0)),
            ns.clone().in_list(vec![number.clone()], false),
            name.clone().eq(lit("a")).or(number.clone().eq(lit(1))),
            !number.eq(lit(1)),
            ns.clone().eq(ident("start_ns")),
            lit(true),
        ];
        for condition in unsure {
            assert!(!is_sure(&condition), "{condition}");
        }
    }
}

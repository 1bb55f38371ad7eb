//! The Arrow columns of a table, from the store's Parquet schema.
//!
//! Texts and bytes are Arrow views, which need fewer copies. Every column is nullable, because a file may be older than
//! the column.

use curtail_store::schema;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::parquet::arrow::parquet_to_arrow_schema;
use std::sync::Arc;

/// The name of the partition column, the day of arrival, which is in no file.
pub(crate) const DAY: &str = "day";

/// Returns the columns in files; columns that all tables share come last.
pub(crate) fn in_files(table: &schema::Schema) -> SchemaRef {
    let schema = parquet_to_arrow_schema(table.parquet(), None);
    let schema = schema.expect("each of our types is one of Arrow's");
    let mut fields: Vec<_> = schema.fields().iter().map(as_view).collect();
    fields.rotate_left(table.shared());
    Arc::new(Schema::new(fields))
}

/// Returns the partition column.
pub(crate) fn day() -> FieldRef {
    Arc::new(Field::new(DAY, DataType::Date32, true))
}

fn as_view(field: &FieldRef) -> FieldRef {
    let of = if *field.data_type() == DataType::Utf8 {
        DataType::Utf8View
    } else if *field.data_type() == DataType::Binary {
        DataType::BinaryView
    } else {
        field.data_type().clone()
    };
    Arc::new(Field::new(field.name(), of, true))
}

#[cfg(test)]
mod tests {
    use super::in_files;
    use curtail_store::schema::spans::SPANS;
    use datafusion::arrow::datatypes::DataType;

    #[test]
    fn what_says_most_comes_first_and_each_kind_has_its_type() {
        let columns = in_files(SPANS.schema());
        assert_eq!(columns.fields().len(), SPANS.schema().fields().len());
        assert_eq!(columns.field(0).name(), "trace_id");
        let of = |name| columns.field_with_name(name).expect("it is there").data_type().clone();
        assert_eq!(of("trace_id"), DataType::BinaryView);
        assert_eq!(of("service"), DataType::Utf8View);
        assert_eq!(of("duration_ns"), DataType::Int64);
        assert!(matches!(of("attributes_double"), DataType::Map(..)));
        assert!(matches!(of("events"), DataType::List(_)));
        assert!(columns.fields().iter().all(|field| field.is_nullable()));
    }
}

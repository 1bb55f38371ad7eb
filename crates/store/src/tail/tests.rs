//! What the tests below need.

use crate::columns::Columns;
use crate::schema::traces;

/// A row of the table of traces: whose it is, its ID, the operation of its root, how long it took, and how many of
/// its spans have failed.
pub(super) fn trace(
    rows: &mut Columns,
    tenant: &str,
    id: u128,
    root: Option<(&str, i64)>,
    errors: i64,
) {
    let mut set = |field: usize, value: &[u8]| rows.set_value(field, value);
    set(traces::TENANT, tenant.as_bytes());
    if let Some((name, duration_ns)) = root {
        set(traces::ROOT_SERVICE, b"gateway");
        set(traces::ROOT_NAME, name.as_bytes());
        set(traces::ROOT_DURATION, &duration_ns.to_le_bytes());
    }
    rows.push_wide(traces::TRACE_ID, id);
    // Longer than every root.
    rows.push_long(traces::DURATION, 1_000_000);
    rows.push_long(traces::SPAN_COUNT, 1);
    rows.push_long(traces::ERROR_COUNT, errors);
    rows.end_row();
}

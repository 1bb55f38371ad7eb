//! Queries in SQL to tables that the store has written.

mod bounds;
mod changes;
mod program;
mod reference;
mod refusals;
mod results;
mod tenants;
mod written;

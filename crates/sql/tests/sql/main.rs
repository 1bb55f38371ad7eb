//! Questions in SQL to tables that the store has written.

mod answers;
mod bounds;
mod changes;
mod program;
mod reference;
mod refusals;
mod tenants;
mod written;

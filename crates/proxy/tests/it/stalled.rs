//! Clients and replicas that stop taking or sending bytes: what they hold is bounded in size and in time, and
//! nobody else waits for them.

mod shared_connections;
mod silent_streams;
mod unread_responses;
mod unused_connections;

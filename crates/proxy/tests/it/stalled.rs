//! Clients and replicas that stop reading or sending: what they hold is bounded in size and time, and they delay
//! no other client.

mod shared_connections;
mod silent_streams;
mod unfinished_uploads;
mod unread_responses;
mod unused_connections;

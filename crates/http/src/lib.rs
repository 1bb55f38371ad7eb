//! HTTP: the codecs of HTTP/1.1 ([`http1`]) and HTTP/2 ([`http2`]) for both sides of a connection, connections
//! to servers with timed phases ([`connect`]) and their pools ([`pool`]), and TLS ([`tls`]).
//!
//! All servers have the same accept loop ([`accept`]), and those on hyper serve a connection alike ([`hyper_server`]). Requests outside the data path use one small [`client`]. The
//! head of a message keeps its fields as the received text ([`head`]). A request body can be sent to several servers
//! ([`replay`]). This crate does not decide which server gets a request, or when.

pub mod accept;
pub mod access;
pub mod client;
pub mod clock;
pub mod connect;
pub mod connection_counts;
pub mod drain;
pub mod forwarding;
pub mod grpc;
pub mod head;
pub mod http1;
pub mod http2;
pub mod hyper_server;
pub mod limit_breaker;
mod linger;
pub mod listen_socket;
pub mod origin;
pub mod outbound_request;
pub mod pool;
pub mod precise_timer;
pub mod preface;
pub mod progress;
pub mod proxy_protocol;
pub mod replay;
pub mod runtime_thread;
pub mod service;
pub mod small_file;
pub mod stream;
pub mod timers;
pub mod tls;
pub mod trailers;
mod turn;
pub mod websocket;
pub mod write_timeout;

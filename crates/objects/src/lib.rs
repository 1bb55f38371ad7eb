//! Object stores by their URL: a folder, Amazon S3 and what speaks like it, Google Cloud Storage, Azure.
//!
//! What a store is asked, how it is signed and what is asked again is the `object_store` crate's; which
//! store a URL means, what the environment must say, and the HTTP below it are here. `object_store` comes
//! with a client of its own; that one, with what it brings along, takes longer to build than all the rest.
//!
//! **Limits**: HTTP/1.1, no HTTP proxies, no redirections; credentials come from the environment, or from the
//! machine, task or pod, not from the files of command line tools. What bounds a request in time is in
//! [`http`].

mod abandoned;
mod folder;
mod http;
mod open;
#[cfg(test)]
mod server;

pub use open::{Objects, OpenError, check, folder, open};

//! Object stores by URL: a folder, Amazon S3 and compatible stores, Google Cloud Storage, Azure.
//!
//! The `object_store` crate makes, signs and retries requests. This crate reads the URL and the environment, and provides
//! HTTP, because `object_store`'s own client takes longer to compile than everything else together.
//!
//! **Limits**: HTTP/1.1 only, no HTTP proxies, no redirections. Credentials come from the environment, or from the
//! machine, task or pod, and not from the files of command line tools. [`http`] defines the timeouts.

mod abandoned;
mod folder;
mod http;
mod open;
#[cfg(test)]
mod server;

pub use open::{Objects, OpenError, check, folder, open};

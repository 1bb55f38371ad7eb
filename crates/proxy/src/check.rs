//! Checks beyond the text of a configuration: certificates, keys and authorities that cannot be used, and host names
//! that no certificate can have.
//!
//! A start runs the same checks, and stops at the first error. These checks continue after an error. They open no socket
//! and start no thread. They bind no address, because a running proxy uses the addresses.

use crate::StartError;
use crate::access_log::writer;
use crate::config::{Config, ConnectConfig, ReplicaUrl, ServerTls, load_listener_tls};
use crate::snapshot;
use crate::spans::receiver::Receiver;
use curtail_http::connect::Connector;
use curtail_http::small_file::read_small_file;
use curtail_http::tls::{TlsError, Trust};
use curtail_otlp::Signal;
use std::path::{Path, PathBuf};

/// All errors with which a start with `config` would fail, except addresses that cannot be bound.
#[must_use]
pub fn check(config: &Config) -> Vec<StartError> {
    let mut errors = Vec::new();
    for (index, listener) in config.listeners.iter().enumerate() {
        if let Some(tls) = &listener.tls {
            errors.extend(check_listener_tls(index, tls));
        }
    }
    errors.extend(snapshot::resolver(config).err());
    for upstream in &config.upstreams {
        let (section, urls) = (format!("upstreams.{}", upstream.name), upstream.urls());
        errors.extend(check_connections((&section, "replicas"), &urls, &upstream.connect));
    }
    for (index, leaf) in config.leaves.iter().enumerate() {
        let (section, server) = (format!("leaves[{index}]"), std::slice::from_ref(&leaf.server));
        errors.extend(check_connections((&section, "server"), server, &leaf.connect));
    }
    if let Some(spans) = &config.spans {
        let error = Receiver::new(spans, Signal::Traces).err();
        errors.extend(error.map(spans_error));
    }
    if let Some(access_log) = &config.access_log {
        errors.extend(writer::check(access_log).err());
    }
    errors
}

/// Reads each file on its own, so that one that is missing hides no other one. If all can be read, checks them together.
fn check_listener_tls(index: usize, tls: &ServerTls) -> Vec<StartError> {
    let files = listener_files(index, tls);
    let unreadable = files.iter().filter_map(|(key, file)| {
        let why = read_small_file(file).err()?.to_string();
        let error = TlsError::File { file: file.to_path_buf(), why };
        Some(StartError::from(error).within(key.clone()))
    });
    let unreadable: Vec<_> = unreadable.collect();
    if !unreadable.is_empty() {
        return unreadable;
    }
    let refused = load_listener_tls(tls).err();
    refused.map(|error| listener_tls_error(index, tls, error)).into_iter().collect()
}

/// Checks authorities, certificate and names each on their own, so that the error of one hides no other one.
fn check_connections(
    (section, servers): (&str, &str),
    replicas: &[ReplicaUrl],
    connect: &ConnectConfig,
) -> Vec<StartError> {
    let any = Trust::any_certificate();
    let has_tls = replicas.iter().any(|replica| replica.tls);
    let authorities = Trust::load(connect.ca_file.as_deref(), has_tls).err();
    let presented = connect.client_certificate.as_ref();
    let presented = presented.and_then(|files| any.clone().with_certificate(files).err());
    let names = replicas.iter().filter_map(|one| Connector::new(one, connect, &any).err());
    let errors = authorities.into_iter().chain(presented).chain(names);
    let with_key = |error| connections_error((section, servers), connect, StartError::from(error));
    errors.map(with_key).collect()
}

/// The keys of the files of a listener, with their values.
fn listener_files(index: usize, tls: &ServerTls) -> Vec<(String, &Path)> {
    let section = format!("listeners[{index}].tls");
    let mut files = Vec::new();
    for (place, certificate) in tls.certificates.iter().enumerate() {
        let section = match place {
            0 => section.clone(),
            _ => format!("{section}.further_certificates[{}]", place - 1),
        };
        files.extend(certificate_keys(&section, certificate));
    }
    let client_ca = tls.client_ca_file.as_deref();
    files.extend(client_ca.map(|file| (format!("{section}.client_ca_file"), file)));
    files
}

fn certificate_keys<'c>(
    section: &str,
    (chain, key): &'c (PathBuf, PathBuf),
) -> [(String, &'c Path); 2] {
    [(format!("{section}.certificate_file"), chain), (format!("{section}.key_file"), key)]
}

/// The error of a listener, with the key of the file that cannot be used.
pub(crate) fn listener_tls_error(index: usize, tls: &ServerTls, error: TlsError) -> StartError {
    let section = format!("listeners[{index}].tls");
    let key = key_of(&error, &listener_files(index, tls)).unwrap_or(section);
    StartError::from(error).within(key)
}

/// The error of the receiver of spans, with its key.
pub(crate) fn spans_error(error: StartError) -> StartError {
    let key = if let StartError::Tls(TlsError::File { .. }) = &error {
        "spans.ca_file"
    } else if let StartError::Tls(_) = &error {
        "spans.endpoint"
    } else if let StartError::Token { .. } = &error {
        "spans.token_file"
    } else {
        "spans"
    };
    error.within(key.to_owned())
}

/// The error of connections to the servers at the key `servers`, with the key of the file that cannot be used.
pub(crate) fn connections_error(
    (section, servers): (&str, &str),
    connect: &ConnectConfig,
    error: StartError,
) -> StartError {
    let StartError::Tls(of_tls) = &error else { return error.within(section.to_owned()) };
    let within = format!("{section}.connect");
    let mut files: Vec<_> = Vec::new();
    files.extend(connect.ca_file.as_deref().map(|file| (format!("{within}.ca_file"), file)));
    if let Some(certificate) = &connect.client_certificate {
        files.extend(certificate_keys(&format!("{within}.client_certificate"), certificate));
    }
    let key = match of_tls {
        TlsError::File { .. } => key_of(of_tls, &files).unwrap_or(within),
        TlsError::NoAuthorities | TlsError::Name { .. } => format!("{section}.{servers}"),
    };
    error.within(key)
}

/// The key of the file that an error is about.
fn key_of(error: &TlsError, files: &[(String, &Path)]) -> Option<String> {
    let TlsError::File { file: unusable, .. } = error else { return None };
    files.iter().find(|(_, file)| file == unusable).map(|(key, _)| key.clone())
}

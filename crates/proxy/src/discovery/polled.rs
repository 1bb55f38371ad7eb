//! Sources that the proxy reads again and again: a file and a URL with lists of targets, in the JSON of Prometheus.
//!
//! A list that cannot be read or used changes nothing: the endpoints of the last good one stay.
//! **Source**: Prometheus documentation, `file_sd_config` and `http_sd_config`.
//! **Limits**: a target is an IP address with a port, because the list has no TTL by which a name could be looked up;
//! [`LIST_BYTES_MAX`], and for a file [`curtail_http::small_file::SMALL_FILE_BYTES_MAX`];
//! [`super::feed::ENDPOINTS_MAX`]. Labels other than `__weight__` and
//! `__zone__` are ignored.

use super::control_plane::{client, cut, headers};
use super::endpoint_list::{Endpoint, Part, Validity};
use super::feed::{ENDPOINTS_MAX, Feed};
use super::is_of_server;
use crate::config::{
    ControlPlaneAccess, FileSource, HttpSource, Placement, Protocol, ReplicaUrl, parse_weight,
};
use bytes::Bytes;
use curtail_http::small_file::read_small_file;
use curtail_policy::Weight;
use curtail_text::numbers::counted;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::Empty;
use serde::Deserialize;
use std::collections::HashSet;
use std::convert::Infallible;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Time between two looks at a file.
const FILE_INTERVAL: Duration = Duration::from_secs(1);
/// A file that was changed within this time before it was read is read again, because its time may have been too
/// coarse to show a second change.
const SETTLED_AFTER: Duration = Duration::from_secs(2);
/// Maximum size of a list that a URL serves.
const LIST_BYTES_MAX: usize = 16 << 20;
/// Maximum time of a request for a list.
const RESPONSE_MAX: Duration = Duration::from_secs(10);

/// A group of targets.
#[derive(Debug, Deserialize)]
struct TargetGroup {
    targets: Vec<String>,
    labels: Option<Labels>,
}

/// The labels of a group that are used, as texts.
#[derive(Debug, Default, Deserialize)]
struct Labels {
    #[serde(rename = "__weight__")]
    weight: Option<String>,
    #[serde(rename = "__zone__")]
    zone: Option<String>,
}

impl Labels {
    /// # Errors
    /// The label that cannot be used, and what was expected.
    fn placement(&self) -> Result<Placement, String> {
        let text = self.weight.as_deref().unwrap_or("1");
        let weight = parse_weight(text).ok_or_else(|| {
            let (text, min, max) = (cut(text), Weight::MIN, Weight::MAX);
            format!("__weight__: {text:?}: expected 0, or a number from {min} to {max} without an exponent")
        })?;
        Ok(Placement { weight, zones: self.zone.iter().cloned().collect() })
    }
}

/// What identifies the content of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint {
    device: u64,
    inode: u64,
    len: u64,
    modified: SystemTime,
}

/// Reads a file whenever it changes.
pub(super) async fn run_file(source: &FileSource, feed: &mut Feed) -> Result<Infallible, String> {
    let files = feed.files();
    let mut known = None;
    let mut is_good = false;
    loop {
        let path = source.path.clone();
        match feed.wait_for(files.read(move || read_if_changed(path, known))).await {
            Ok(None) if is_good => feed.confirm(),
            Ok(None) => {}
            Ok(Some((fingerprint, bytes))) => {
                known = fingerprint;
                is_good = take(&bytes, feed);
            }
            Err(error) => {
                (known, is_good) = (None, false);
                feed.fail(error);
            }
        }
        feed.wait_for(tokio::time::sleep(FILE_INTERVAL)).await;
    }
}

/// Requests a list again and again.
pub(super) async fn run_http(source: &HttpSource, feed: &mut Feed) -> Result<Infallible, String> {
    let server = ReplicaUrl::of(source.url.origin.clone());
    let access = ControlPlaneAccess {
        ca_file: source.ca_file.clone(),
        token_file: source.token_file.clone(),
        client_certificate: None,
    };
    let files = feed.files();
    let limits = (Protocol::Auto, LIST_BYTES_MAX);
    let client = client::<Empty<Bytes>>(&files, &server, &access, limits).await?;
    loop {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = source.url.path.parse().expect("the configuration has parsed it");
        *request.headers_mut() =
            feed.wait_for(headers(&files, access.token_file.as_deref())).await?;
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let sent = feed.wait_for(client.send(request, RESPONSE_MAX.into())).await;
        let response = sent.map_err(|error| error.to_string())?;
        if response.status != StatusCode::OK {
            return Err(format!("status {}: expected 200", response.status.as_u16()));
        }
        take(&response.body, feed);
        // Proxies that started together do not ask together for ever.
        let interval = Duration::from(source.interval).mul_f64(1.0 - feed.jitter() / 10.0);
        feed.wait_for(tokio::time::sleep(interval)).await;
    }
}

/// Takes a list; returns whether it can be used.
fn take(list: &[u8], feed: &mut Feed) -> bool {
    match parse_targets(list) {
        Ok(endpoints) => {
            let duplicates = duplicates(&endpoints);
            feed.report_duplicates(duplicates);
            let summary = match duplicates {
                0 => counted(endpoints.len() as u64, "target"),
                _ => format!(
                    "{}, {duplicates} of them duplicates",
                    counted(endpoints.len() as u64, "target")
                ),
            };
            let part = Part { endpoints, validity: Validity::UntilFailure };
            feed.set(vec![("targets".to_owned(), Ok(part))], summary);
            true
        }
        Err(error) => {
            feed.fail(error);
            false
        }
    }
}

/// The number of endpoints with the address of an earlier one. They are one replica.
fn duplicates(endpoints: &[Endpoint]) -> usize {
    let mut seen = HashSet::new();
    endpoints.iter().filter(|one| !seen.insert(one.address)).count()
}

/// The endpoints of a list.
///
/// # Errors
/// The line and column, or the entry, that cannot be used, and what was expected.
fn parse_targets(list: &[u8]) -> Result<Vec<Endpoint>, String> {
    let groups: Vec<TargetGroup> = serde_json::from_slice(list)
        .map_err(|error| format!("{error}; a valid list: [{{\"targets\": [\"10.0.0.1:80\"]}}]"))?;
    let mut endpoints = Vec::new();
    for (group, TargetGroup { targets, labels }) in groups.iter().enumerate() {
        let placement = labels.as_ref().map_or(Ok(Placement::default()), Labels::placement);
        let placement = placement.map_err(|error| format!("[{group}].labels.{error}"))?;
        for (place, target) in targets.iter().enumerate() {
            let address = target.parse().ok().filter(is_of_server);
            let address = address.ok_or_else(|| {
                let target = cut(target);
                format!("[{group}].targets[{place}]: {target:?}: expected an IP address with a port, such as 10.0.0.1:80")
            })?;
            endpoints.push(Endpoint { address, placement: placement.clone() });
            if endpoints.len() > ENDPOINTS_MAX {
                return Err(format!("expected at most {ENDPOINTS_MAX} targets"));
            }
        }
    }
    Ok(endpoints)
}

/// Reads a file unless it is the one that is known. The result has no fingerprint if the file may still be changing.
#[expect(clippy::type_complexity, reason = "a file that is unchanged, or its content")]
fn read_if_changed(
    path: PathBuf,
    known: Option<Fingerprint>,
) -> Result<Option<(Option<Fingerprint>, Vec<u8>)>, String> {
    let failed = |error: std::io::Error| error.to_string();
    let before = fingerprint(&path).map_err(failed)?;
    if known == Some(before) {
        return Ok(None);
    }
    let bytes = read_small_file(&path).map_err(failed)?;
    let age = SystemTime::now().duration_since(before.modified);
    // A time in the future is that of another clock, and says nothing about now.
    let is_settled = age.is_ok_and(|age| age >= SETTLED_AFTER);
    let is_same = fingerprint(&path).is_ok_and(|after| after == before);
    Ok(Some(((is_settled && is_same).then_some(before), bytes)))
}

fn fingerprint(path: &Path) -> std::io::Result<Fingerprint> {
    let file = std::fs::metadata(path)?;
    Ok(Fingerprint {
        device: file.dev(),
        inode: file.ino(),
        len: file.len(),
        modified: file.modified()?,
    })
}

#[cfg(test)]
mod tests {
    use super::{Endpoint, duplicates, parse_targets};

    #[test]
    fn a_list_has_the_targets_of_all_groups() {
        let list = br#"[
            {"targets": ["10.0.0.1:80", "[::1]:81"], "labels": {"env": "prod"}},
            {"targets": [], "labels": {}},
            {"targets": ["10.0.0.2:80"], "labels": {"__weight__": "0.5", "__zone__": "a"}}
        ]"#;
        let show = |one: &Endpoint| format!("{}{}", one.address, one.placement);
        let targets: Vec<String> = parse_targets(list).expect("a list").iter().map(show).collect();
        assert_eq!(targets, ["10.0.0.1:80", "[::1]:81", "10.0.0.2:80 weight=0.5 zone=a"]);
        assert_eq!(parse_targets(b"[]"), Ok(Vec::new()));
    }

    #[test]
    fn an_error_names_the_entry_or_the_place() {
        for (list, says) in [
            (&b""[..], "line 1 column 0; a valid list: [{\"targets\": [\"10.0.0.1:80\"]}]"),
            (b"[\n{\"targets\": [\"10.0.0.1:80\"", "line 2 column 26"),
            (b"{}", "; a valid list: "),
            (b"[{}]", "missing field `targets` at line 1 column 3"),
            (b"[{\"targets\": [7]}]", "line 1 column 15"),
            (b"[{\"targets\": [\"10.0.0.1:80\", \"a.test:80\"]}]", "[0].targets[1]: \"a.test:80\""),
            (b"[{\"targets\": []}, {\"targets\": [\"10.0.0.1\"]}]", "[1].targets[0]: \"10.0.0.1\""),
            (b"[{\"targets\": [\"0.0.0.0:80\"]}]", "expected an IP address with a port"),
            (
                b"[{\"targets\": [], \"labels\": {\"__weight__\": \"-1\"}}]",
                "[0].labels.__weight__: \"-1\": expected 0, or a number from 0.001 to 65535 without an exponent",
            ),
            (b"[{\"targets\": [], \"labels\": {\"__weight__\": \"1e3\"}}]", "__weight__: \"1e3\""),
            (
                b"[{\"targets\": [], \"labels\": {\"__weight__\": \"0.0001\"}}]",
                "__weight__: \"0.0001\"",
            ),
            (b"[{\"targets\": [], \"labels\": {\"__weight__\": 1}}]", "invalid type: integer"),
        ] {
            let error = parse_targets(list).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn duplicates_are_counted() {
        let list =
            br#"[{"targets": ["10.0.0.1:80", "10.0.0.2:80"]}, {"targets": ["10.0.0.1:80"]}]"#;
        assert_eq!(duplicates(&parse_targets(list).expect("a list")), 1);
    }
}

//! The keys of sources that report changes: a Kubernetes API server, and a control plane of Envoy.

use crate::config::ReplicaUrl;
use curtail_config::{Scalar, ScalarError, Section, certificate_files, displayed_value};
use std::path::PathBuf;

/// Certificates and tokens for a control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlPlaneAccess {
    /// Trusted certificate authorities (PEM).
    pub ca_file: Option<PathBuf>,
    /// File of the bearer token.
    pub token_file: Option<PathBuf>,
    /// Certificate chain and private key (PEM) of the proxy.
    pub client_certificate: Option<(PathBuf, PathBuf)>,
}

/// `EndpointSlices` of a Kubernetes service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesSource {
    /// The name of the service.
    pub service: String,
    /// The namespace of the service; absent: that of the pod.
    pub namespace: Option<String>,
    /// The port of the endpoints; absent: their only port.
    pub port: Option<PortSelector>,
    /// The API server; absent: that of the pod's cluster, with the pod's service account.
    pub server: Option<ReplicaUrl>,
    /// Certificates and the token.
    pub access: ControlPlaneAccess,
}

/// A port of an `EndpointSlice`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortSelector {
    /// The port with this name.
    Name(String),
    /// The port with this number.
    Number(u16),
}

/// Endpoints of a cluster of Envoy's discovery services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdsSource {
    /// The control plane.
    pub server: ReplicaUrl,
    /// The name of the cluster.
    pub cluster: String,
    /// The ID of the proxy's node.
    pub node_id: String,
    /// The cluster of the proxy's node; may be empty.
    pub node_cluster: String,
    /// Certificates and the token.
    pub access: ControlPlaneAccess,
}

/// Maximum length of a DNS label, and so of the names of services, namespaces and ports.
const LABEL_LEN_MAX: usize = 63;

fn is_label(name: &str) -> bool {
    let is_in = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=LABEL_LEN_MAX).contains(&name.len()) && name.bytes().all(is_in)
}

impl PortSelector {
    fn read(scalar: &Scalar) -> Result<Self, ScalarError> {
        let word = scalar.word();
        if let Ok(number) = word.parse() {
            return if number == 0 { Err(ScalarError::Range) } else { Ok(Self::Number(number)) };
        }
        let name = scalar.text().filter(|name| is_label(name)).ok_or(ScalarError::Kind)?;
        Ok(Self::Name(name.to_owned()))
    }
}

impl std::fmt::Display for PortSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Number(number) => number.fmt(f),
        }
    }
}

displayed_value!(
    PortSelector,
    "the name or number of a port",
    "such as http or 8080",
    Self::read,
    Self::Number(80),
    { "anyOf": [
        { "type": "string", "pattern": "^[a-z0-9-]{1,63}$" },
        { "type": "integer", "minimum": 1, "maximum": 65535 }
    ] }
);

impl std::fmt::Display for KubernetesSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EndpointSlices of service {}", self.service)?;
        if let Some(namespace) = &self.namespace {
            write!(f, ".{namespace}")?;
        }
        if let Some(port) = &self.port {
            write!(f, ", port {port}")?;
        }
        match &self.server {
            Some(server) => write!(f, ", at {server}"),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for EdsSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EDS cluster {:?} at {}", self.cluster, self.server)
    }
}

pub(super) fn kubernetes(s: &mut Section<'_>) -> KubernetesSource {
    let source = KubernetesSource {
        service: s.field("service", "Name of the service.").required(),
        namespace: s
            .field("namespace", "Namespace of the service; absent: that of the pod in which the proxy runs, or `default` with `server`.")
            .optional(),
        port: s
            .field("port", "Port of the pods, by name or number, as the EndpointSlices have it; not the port of the service. Absent: their only port.")
            .optional(),
        server: s
            .field("server", "Address of the API server. Absent: that of the cluster in which the proxy runs, with token and authority of the pod's service account.")
            .optional(),
        access: access(s),
    };
    for (key, name) in
        [("service", Some(&source.service)), ("namespace", source.namespace.as_ref())]
    {
        if let Some(name) = name.filter(|name| !is_label(name)) {
            let text = "expected 1 to 63 lower-case letters, digits and hyphens";
            s.value_error(key, format!("{name:?} is not a name in Kubernetes: {text}"));
        }
    }
    source
}

pub(super) fn eds(s: &mut Section<'_>) -> EdsSource {
    let source = EdsSource {
        server: s
            .field("server", "Address of the control plane (gRPC), such as http://127.0.0.1:18000.")
            .required(),
        cluster: s.field("cluster", "Name of the cluster: the resource name in EDS.").required(),
        node_id: s
            .field("node_id", "ID of the proxy's node, by which the control plane knows it.")
            .default("curtail-proxy".to_owned()),
        node_cluster: s
            .field("node_cluster", "Cluster of the proxy's node, if the control plane needs one.")
            .default(String::new()),
        access: access(s),
    };
    for (key, text) in [("cluster", &source.cluster), ("node_id", &source.node_id)] {
        if text.is_empty() {
            s.value_error(key, "expected a name, found an empty text");
        }
    }
    source
}

fn access(s: &mut Section<'_>) -> ControlPlaneAccess {
    ControlPlaneAccess {
        ca_file: s
            .field("ca_file", "Trusted certificate authorities (PEM file); absent: the system's, or with `kubernetes` without `server` that of the service account.")
            .optional(),
        token_file: s
            .field("token_file", "File of the bearer token, which the proxy reads again for each request; absent: none, or with `kubernetes` without `server` that of the service account.")
            .optional(),
        client_certificate: s.optional_section(
            "client_certificate",
            "Certificate of the proxy, for a server that requests client certificates; absent: none.",
            certificate_files,
        ),
    }
}

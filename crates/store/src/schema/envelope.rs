//! The fields that all tables of ingested rows have: tenant, resource, scope and attributes. They come first.
//!
//! **Source**: OpenTelemetry semantic conventions 1.38, for the attributes of resources.

use super::{Field, Form, Kind, fields, optional};

fields! {
    after 0;
    TENANT "tenant" optional(Kind::Text);
    SERVICE "service" optional(Kind::Text);
    RESOURCE "resource" optional(Kind::Text);
    RESOURCE_DROPPED "resource_dropped_attributes" optional(Kind::Int);
    RESOURCE_SCHEMA_URL "resource_schema_url" optional(Kind::Text);
    SCOPE_NAME "scope_name" optional(Kind::Text);
    SCOPE_VERSION "scope_version" optional(Kind::Text);
    SCOPE "scope" optional(Kind::Text);
    SCOPE_DROPPED "scope_dropped_attributes" optional(Kind::Int);
    SCOPE_SCHEMA_URL "scope_schema_url" optional(Kind::Text);
    DROPPED_ATTRIBUTES "dropped_attributes" optional(Kind::Int);
    ATTRIBUTES_TEXT "attributes_text" Form::Map(Kind::Text);
    ATTRIBUTES_INT "attributes_int" Form::Map(Kind::Int);
    ATTRIBUTES_DOUBLE "attributes_double" Form::Map(Kind::Double);
    ATTRIBUTES_BOOL "attributes_bool" Form::Map(Kind::Bool);
    ATTRIBUTES_JSON "attributes_json" Form::Map(Kind::Text);
}

/// The maps of attributes, and the kinds of their values.
pub(crate) const MAPS: [(usize, Kind); 5] = [
    (ATTRIBUTES_TEXT, Kind::Text),
    (ATTRIBUTES_INT, Kind::Int),
    (ATTRIBUTES_DOUBLE, Kind::Double),
    (ATTRIBUTES_BOOL, Kind::Bool),
    (ATTRIBUTES_JSON, Kind::Text),
];

/// The attributes of resources with a column of their own, besides `service.name`, which is in [`SERVICE`]. The columns
/// are copies: [`RESOURCE`] has all attributes.
const OF_RESOURCES: &[(&str, &str)] = &[
    ("service.namespace", "service_namespace"),
    ("service.version", "service_version"),
    ("service.instance.id", "service_instance_id"),
    ("deployment.environment.name", "deployment_environment_name"),
    ("deployment.environment", "deployment_environment"),
    ("host.name", "host_name"),
    ("cloud.region", "cloud_region"),
    ("cloud.availability_zone", "cloud_availability_zone"),
    ("k8s.cluster.name", "k8s_cluster_name"),
    ("k8s.namespace.name", "k8s_namespace_name"),
    ("k8s.deployment.name", "k8s_deployment_name"),
    ("k8s.pod.name", "k8s_pod_name"),
    ("k8s.node.name", "k8s_node_name"),
];

/// The number of the fields here. The numbers of a table's own fields follow.
pub(super) const LEN: usize = FIELDS.len() + OF_RESOURCES.len();

/// The fields.
pub(super) fn fields() -> Vec<Field> {
    let of_resources =
        OF_RESOURCES.iter().map(|(_, name)| Field { name, form: optional(Kind::Text) });
    FIELDS.iter().copied().chain(of_resources).collect()
}

/// The column with copies of an attribute of resources, if it has one.
#[must_use]
pub fn of_resource(key: &str) -> Option<usize> {
    if key == "service.name" {
        return Some(SERVICE);
    }
    let nth = OF_RESOURCES.iter().position(|(known, _)| *known == key)?;
    Some(FIELDS.len() + nth)
}

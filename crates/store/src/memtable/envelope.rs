//! The tenant, resource and scope of the rows of a batch.

use crate::columns::Columns;
use crate::schema::envelope::{
    RESOURCE, RESOURCE_DROPPED, RESOURCE_SCHEMA_URL, SCOPE, SCOPE_DROPPED, SCOPE_NAME,
    SCOPE_SCHEMA_URL, SCOPE_VERSION, TENANT, of_resource,
};
use curtail_otlp::{Attribute, Envelope, Resource, Scope, Slice, Value, plain};

/// The values that all rows of a scope share, as fields and codes.
#[derive(Clone, Debug, Default)]
pub(super) struct Shared(pub(super) Vec<(usize, u32)>);

impl Shared {
    /// The values of each scope of a batch.
    pub(super) fn of(
        columns: &mut Columns,
        tenant: &str,
        batch: &[u8],
        envelope: &Envelope,
    ) -> Vec<Self> {
        let tenant = (TENANT, columns.intern(TENANT, tenant.as_bytes()));
        let mut writer = EnvelopeWriter { columns, batch, attributes: &envelope.attributes };
        let resources: Vec<_> =
            envelope.resources.iter().map(|resource| writer.resource(resource)).collect();
        let scope = |scope: &Scope| {
            let mut shared = resources[scope.resource as usize].clone();
            shared.0.push(tenant);
            writer.scope(&mut shared, scope);
            shared
        };
        envelope.scopes.iter().map(scope).collect()
    }

    /// Sets these values in the next `count` rows.
    pub(super) fn set(&self, columns: &mut Columns, count: usize) {
        for (field, code) in &self.0 {
            columns.set_many(*field, *code, count);
        }
    }
}

struct EnvelopeWriter<'a> {
    columns: &'a mut Columns,
    batch: &'a [u8],
    attributes: &'a [Attribute],
}

impl EnvelopeWriter<'_> {
    fn resource(&mut self, resource: &Resource) -> Shared {
        let mut shared = Shared::default();
        let attributes = resource.attributes.of(self.attributes);
        for attribute in attributes {
            let Value::Text(text) = attribute.value else { continue };
            let key = std::str::from_utf8(attribute.key.of(self.batch)).unwrap_or_default();
            if let Some(field) = of_resource(key) {
                // An attribute with an empty text is not null.
                shared.0.push((field, self.columns.intern(field, text.of(self.batch))));
            }
        }
        self.json(&mut shared, RESOURCE, attributes);
        self.count(&mut shared, RESOURCE_DROPPED, resource.dropped_attributes);
        self.text(&mut shared, RESOURCE_SCHEMA_URL, resource.schema_url);
        shared
    }

    fn scope(&mut self, shared: &mut Shared, scope: &Scope) {
        self.text(shared, SCOPE_NAME, scope.name);
        self.text(shared, SCOPE_VERSION, scope.version);
        self.json(shared, SCOPE, scope.attributes.of(self.attributes));
        self.count(shared, SCOPE_DROPPED, scope.dropped_attributes);
        self.text(shared, SCOPE_SCHEMA_URL, scope.schema_url);
    }

    fn json(&mut self, shared: &mut Shared, field: usize, attributes: &[Attribute]) {
        if !attributes.is_empty() {
            let mut json = Vec::new();
            plain::attributes(&mut json, attributes, self.batch);
            shared.0.push((field, self.columns.intern(field, &json)));
        }
    }

    fn text(&mut self, shared: &mut Shared, field: usize, text: Slice) {
        if !text.is_empty() {
            shared.0.push((field, self.columns.intern(field, text.of(self.batch))));
        }
    }

    fn count(&mut self, shared: &mut Shared, field: usize, count: u32) {
        if count > 0 {
            let count = i64::from(count).to_le_bytes();
            shared.0.push((field, self.columns.intern(field, &count)));
        }
    }
}

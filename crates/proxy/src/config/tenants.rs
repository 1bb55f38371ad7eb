//! The keys of `tenants`: the header that names whose request it is.

use curtail_config::Section;

/// Latencies by tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantsConfig {
    /// The request header that names the tenant of a request, in lower case.
    pub header: String,
    /// Maximum number of tenants that a worker counts separately.
    pub max: usize,
}

pub(super) fn read(s: &mut Section<'_>) -> TenantsConfig {
    let header: String = s
        .field(
            "header",
            "Request header that names the tenant of a request, such as x-tenant. Its value is also the attribute curtail.tenant of spans.",
        )
        .required();
    if http::HeaderName::try_from(&header).is_err() {
        s.value_error("header", "expected the name of a header, such as x-tenant");
    }
    TenantsConfig {
        header: header.to_ascii_lowercase(),
        max: s
            .field(
                "max",
                "Maximum number of tenants that a worker counts separately. If there are more, those with the most requests are kept. A tenant takes about 2 KiB for each worker and each of two hours.",
            )
            .range(1..=10_000)
            .default(1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::TenantsConfig;
    use crate::Config;

    fn read(keys: &str) -> Result<Option<TenantsConfig>, String> {
        let yaml = format!(
            "listeners: [{{address: \"127.0.0.1:0\"}}]\nroutes: [{{upstream: a}}]\n\
             upstreams: {{a: {{replicas: [\"http://127.0.0.1:1\"]}}}}\n{keys}\n"
        );
        let config = Config::from_yaml("f", &yaml).map_err(|errors| errors.to_string())?;
        Ok(config.tenants)
    }

    #[test]
    fn the_header_is_a_name_in_any_case() {
        assert_eq!(read(""), Ok(None));
        let config = TenantsConfig { header: "x-tenant".to_owned(), max: 1_000 };
        assert_eq!(read("tenants: {header: X-Tenant}"), Ok(Some(config)));
        for (keys, expected) in [
            ("tenants: {header: \"x tenant\"}", "tenants.header: expected the name of a header"),
            ("tenants: {header: x-tenant, max: 0}", "tenants.max"),
            ("tenants: {}", "tenants.header"),
            (
                "spans: {endpoint: \"http://a\", tenant_header: x-tenant}",
                "tenant_header: unknown key",
            ),
        ] {
            let errors = read(keys).expect_err("it has an error");
            assert!(errors.contains(expected) && errors.lines().count() == 1, "{errors}");
        }
    }
}

//! Prepares a workload from its configuration: reads files and parses templates.

use super::config::{StepConfig, TenantConfig};
use super::{
    Body, BodyConfig, Journey, Request, RequestConfig, Step, Tenant, Workload, WorkloadConfig,
};
use crate::rows::Rows;
use crate::target::Target;
use crate::template::Template;
use curtail_units::{Duration, Rng};
use std::fmt;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

/// Maximum size of a body in a file.
const BODY_BYTES_MAX: u64 = 64 << 20;

/// The errors of a workload.
#[derive(Debug, thiserror::Error)]
#[error("{}", problems.join("\n"))]
pub struct PrepareError {
    /// The errors, each with its key, and with the name of its request if there are several requests.
    pub problems: Vec<String>,
}

impl Workload {
    /// Prepares `config` for `target`; paths of files are relative to `folder`.
    ///
    /// # Errors
    /// All errors of the configuration. If a data file cannot be read, no further errors of its request are found.
    pub fn prepare(
        config: &WorkloadConfig,
        target: &Target,
        folder: &Path,
        rng: &Rng,
    ) -> Result<Self, PrepareError> {
        let mut problems = Vec::new();
        let mut requests = Vec::new();
        for request in &config.requests {
            // A lone request needs no name in messages.
            let name = (config.requests.len() > 1).then_some(&*request.name);
            let mut reader = Reader { name, folder, problems: &mut problems };
            requests.extend(reader.request(request, target));
        }
        if !problems.is_empty() {
            return Err(PrepareError { problems });
        }
        Ok(Self {
            requests,
            journeys: journeys(config),
            tenants: tenants(config),
            rng: rng.split("workload"),
        })
    }
}

fn journeys(config: &WorkloadConfig) -> Vec<Journey> {
    let mut weight_until = 0.0;
    let mut journey = |weight: f64, steps: Vec<Step>| {
        weight_until += weight;
        Journey { weight_until, steps }
    };
    if config.journeys.is_empty() {
        let alone = |request| vec![Step { request, think: Duration::ZERO, is_think_random: false }];
        return config
            .requests
            .iter()
            .enumerate()
            .map(|(nth, request)| journey(request.weight, alone(nth)))
            .collect();
    }
    let place =
        |name: &str| config.requests.iter().position(|request| request.name == name).unwrap_or(0);
    config
        .journeys
        .iter()
        .map(|written| {
            let step = |step: &StepConfig| Step {
                request: place(&step.request),
                think: step.think,
                is_think_random: step.is_think_random,
            };
            journey(written.weight, written.steps.iter().map(step).collect())
        })
        .collect()
}

fn tenants(config: &WorkloadConfig) -> Vec<Tenant> {
    if config.tenants.is_empty() {
        return vec![Tenant { name: String::new(), size: 0, weight_until: 1.0 }];
    }
    let mut weight_until = 0.0;
    let tenant = |tenant: &TenantConfig| {
        weight_until += tenant.weight;
        Tenant { name: tenant.name.clone(), size: tenant.size, weight_until }
    };
    config.tenants.iter().map(tenant).collect()
}

/// Reads one request, and collects its errors.
struct Reader<'a> {
    name: Option<&'a str>,
    folder: &'a Path,
    problems: &'a mut Vec<String>,
}

impl Reader<'_> {
    fn request(&mut self, config: &RequestConfig, target: &Target) -> Option<Request> {
        let data = match &config.data {
            None => Rows::default(),
            Some(path) => self.check("data", Rows::read(&self.folder.join(path)))?,
        };
        let method = self.check("method", http::Method::from_bytes(config.method.as_bytes()));
        let path = config.path.as_deref().unwrap_or(&target.path);
        if !path.starts_with('/') {
            self.problem("path", &format!("{path:?} does not begin with /: expected a path"));
        }
        if let Some(byte) = path.bytes().find(|byte| !byte.is_ascii_graphic() || *byte == b'#') {
            self.problem(
                "path",
                &format!(
                    "{path:?} holds the byte {byte:#04x}: expected it escaped, as %{byte:02X}"
                ),
            );
        }
        // The path of the target's URL has no placeholders.
        let path = match &config.path {
            None => Some(Template::of_text(target.path.clone())),
            Some(path) => self.check("path", Template::parse(path, &data.columns, true)),
        };
        let mut headers = Vec::new();
        for (name, value) in &config.headers {
            let key = format!("headers.{name}");
            if value.bytes().any(|byte| byte < b' ' && byte != b'\t') {
                self.problem(&key, "it holds a control character: expected text on one line");
            }
            let read = http::HeaderName::from_bytes(name.as_bytes());
            let name = self.check(&key, read);
            let value = self.check(&key, Template::parse(value, &data.columns, false));
            headers.extend(name.zip(value));
        }
        let body = match &config.body {
            None => Some(Body::Text(Template::default())),
            Some(BodyConfig::Text(text)) => {
                self.check("body", Template::parse(text, &data.columns, false)).map(Body::Text)
            }
            Some(BodyConfig::File(path)) => self.bytes(&self.folder.join(path)).map(Body::Bytes),
        };
        Some(Request {
            name: config.name.clone(),
            method: method?,
            path: path?,
            headers,
            body: body?,
            rows: Arc::new(data.rows),
            expect: config.expect.clone(),
        })
    }

    fn bytes(&mut self, path: &Path) -> Option<Arc<[u8]>> {
        let mut bytes = Vec::new();
        let read = std::fs::File::open(path)
            .and_then(|file| file.take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes));
        let shown = path.display();
        match read {
            Err(error) => self.problem("body_file", &format!("{shown}: {error}")),
            Ok(_) if bytes.len() as u64 > BODY_BYTES_MAX => {
                self.problem(
                    "body_file",
                    &format!("{shown}: expected at most {BODY_BYTES_MAX} bytes"),
                );
            }
            Ok(_) => return Some(bytes.into()),
        }
        None
    }

    fn check<T, E: fmt::Display>(&mut self, key: &str, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.problem(key, &error.to_string())).ok()
    }

    fn problem(&mut self, key: &str, text: &str) {
        let of = self.name.map_or_else(String::new, |name| format!("request {name}: "));
        self.problems.push(format!("{of}{key}: {text}"));
    }
}

//! Opens the object store or folder of a URL.
//!
//! | URL | store | environment |
//! |---|---|---|
//! | a path, `file:///folder` | a folder of this machine; created if missing | |
//! | `s3://bucket/prefix` | Amazon S3 and compatible stores | `AWS_…` |
//! | `gs://bucket/prefix` | Google Cloud Storage | `GOOGLE_…` |
//! | `az://container/prefix` | Azure Blob Storage | `AZURE_…` |
//!
//! A failed request is retried [`RETRIES`] times within [`RETRY_TIMEOUT`], so a store that does not respond is an error
//! after about 20 s.

use crate::abandoned;
use crate::folder::Folder;
use crate::http::Http;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{
    BackoffConfig, ObjectStore, ObjectStoreScheme, PutMode, PutOptions, RetryConfig,
};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use url::Url;

/// Maximum number of retries of a request.
const RETRIES: usize = 4;

/// Maximum time of all attempts of a request.
const RETRY_TIMEOUT: Duration = Duration::from_secs(10);

/// The minimum and the maximum backoff.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The object that tests conditional writes.
const PROBE: &str = "put-if-absent";

/// The text of the object, for people who find it.
const PROBE_TEXT: &str = "curtail tests with this object whether the store supports conditional writes \
                          (If-None-Match): without them, two writers would lose commits.\n";

/// Objects below a URL.
#[derive(Clone, Debug)]
pub struct Objects {
    /// The store that contains the objects.
    pub store: Arc<dyn ObjectStore>,
    /// The prefix of the objects.
    pub root: Path,
    url: String,
    scheme: Scheme,
    /// The folder, if the store is one.
    folder: Option<PathBuf>,
}

/// A kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Folder,
    S3,
    Google,
    Azure,
}

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants explain their fields")]
pub enum OpenError {
    /// The URL has an unknown scheme.
    #[error(
        "{0}: expected a folder or a URL: file:///folder, s3://bucket/prefix, gs://bucket/prefix, \
         az://container/prefix"
    )]
    Url(String),
    /// The folder cannot be used.
    #[error("{url} cannot be used")]
    Folder {
        url: String,
        #[source]
        source: io::Error,
    },
    /// Variables of the environment are missing or invalid.
    #[error("{url}: {error}; expected in the environment: {expected}")]
    Environment { url: String, error: object_store::Error, expected: &'static str },
    /// The bucket or container does not exist.
    #[error(
        "{url}: there is no bucket or container {bucket:?}; create it first; the store reports: {error}"
    )]
    NoBucket { url: String, bucket: String, error: object_store::Error },
    /// The credentials do not allow writes.
    #[error("{url}: access is refused; expected {expected}; the store reports: {error}")]
    Refused { url: String, expected: &'static str, error: object_store::Error },
    /// The store does not respond, or its response is invalid.
    #[error("{url}: {error}; expected a store that responds, and {expected}")]
    Failed { url: String, error: object_store::Error, expected: &'static str },
    /// The store ignores `If-None-Match`.
    #[error(
        "{0}: the store overwrites an object in spite of If-None-Match: *, so commits could be lost; \
         expected a store with conditional writes"
    )]
    Overwrites(String),
}

impl Scheme {
    /// The expected variables of the environment.
    const fn expected(self) -> &'static str {
        match self {
            Self::Folder => "nothing",
            Self::S3 => {
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role of the machine, task or pod; \
                 AWS_REGION; AWS_ENDPOINT_URL, and AWS_ALLOW_HTTP=true for http, where it is not Amazon's"
            }
            Self::Google => {
                "GOOGLE_SERVICE_ACCOUNT or GOOGLE_APPLICATION_CREDENTIALS (files), or the account of \
                 the machine"
            }
            Self::Azure => {
                "AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_KEY, \
                 AZURE_CLIENT_ID and its like, or the identity of the machine; or \
                 AZURE_STORAGE_USE_EMULATOR=true"
            }
        }
    }
}

/// Opens a URL or the path of a folder, without a request to the store.
///
/// # Errors
/// When the URL is invalid, or variables of the environment are missing.
pub fn open(url: &str) -> Result<Objects, OpenError> {
    if let Some(folder) = folder(url)? {
        return Objects::folder(&folder);
    }
    let (scheme, root) = parse(url)?;
    let store = build(scheme, url).map_err(|error| {
        let (url, expected) = (url.to_owned(), scheme.expected());
        OpenError::Environment { url, error, expected }
    })?;
    Ok(Objects { store, root, url: url.to_owned(), scheme, folder: None })
}

fn build(scheme: Scheme, url: &str) -> object_store::Result<Arc<dyn ObjectStore>> {
    macro_rules! store {
        ($builder:ident) => {{
            let builder = $builder::from_env().with_url(url).with_retry(retries());
            Arc::new(builder.with_http_connector(Http).build()?)
        }};
    }
    Ok(match scheme {
        Scheme::S3 => store!(AmazonS3Builder),
        Scheme::Google => store!(GoogleCloudStorageBuilder),
        Scheme::Azure => store!(MicrosoftAzureBuilder),
        Scheme::Folder => Arc::new(Folder::open(std::path::Path::new(url))?),
    })
}

/// Checks the form of a path or URL, without access to the folder or store.
///
/// # Errors
/// When the text is neither a folder nor the URL of a known kind of object store.
pub fn check(url: &str) -> Result<(), OpenError> {
    if folder(url)?.is_none() {
        parse(url)?;
    }
    Ok(())
}

/// Parses a URL; returns the kind of the object store, and the path in the store.
fn parse(url: &str) -> Result<(Scheme, Path), OpenError> {
    let unknown = || OpenError::Url(url.to_owned());
    let parsed = Url::parse(url).map_err(|_| unknown())?;
    let (scheme, root) = ObjectStoreScheme::parse(&parsed).map_err(|_| unknown())?;
    // A URL with http: would be the endpoint, which the environment sets.
    let scheme = match (parsed.scheme(), scheme) {
        ("s3", ObjectStoreScheme::AmazonS3) => Scheme::S3,
        ("gs", ObjectStoreScheme::GoogleCloudStorage) => Scheme::Google,
        ("az", ObjectStoreScheme::MicrosoftAzure) => Scheme::Azure,
        _ => return Err(unknown()),
    };
    Ok((scheme, root))
}

/// Returns the folder of a path or a `file` URL; [`None`] for other URLs.
///
/// # Errors
/// When a `file` URL names another machine.
pub fn folder(url: &str) -> Result<Option<PathBuf>, OpenError> {
    let Some((scheme, _)) = url.split_once("://") else { return Ok(Some(PathBuf::from(url))) };
    if scheme != "file" {
        return Ok(None);
    }
    let path = Url::parse(url).ok().and_then(|url| url.to_file_path().ok());
    path.map(Some).ok_or_else(|| OpenError::Url(url.to_owned()))
}

impl Objects {
    /// Opens the objects of a folder, which is created if missing. Writes are durable.
    ///
    /// # Errors
    /// When the folder cannot be created or opened.
    pub fn folder(path: &std::path::Path) -> Result<Self, OpenError> {
        let url = path.display().to_string();
        let failed = |source| OpenError::Folder { url: url.clone(), source };
        std::fs::create_dir_all(path).map_err(failed)?;
        let store = Folder::open(path).map_err(|error| failed(error.into()))?;
        let (store, folder) = (Arc::new(store), Some(path.to_owned()));
        Ok(Self { store, root: Path::default(), url, scheme: Scheme::Folder, folder })
    }

    /// Removes files of a folder that are unfinished a day after their last write; returns the number of removed files.
    /// Object stores have their own rules for unfinished uploads.
    ///
    /// # Errors
    /// When the folder cannot be read, or a file cannot be removed.
    pub fn remove_abandoned(&self, now: SystemTime) -> io::Result<usize> {
        self.folder.as_ref().map_or(Ok(0), |folder| abandoned::remove(folder, now))
    }

    /// The URL or path as the caller passed it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Checks that the store accepts writes and supports conditional writes, which commits need: of all writers that
    /// create the same object, only one succeeds. The tested object remains. A folder is not tested.
    ///
    /// # Errors
    /// When the store does not respond or overwrites the object, there is no such bucket, or access is refused.
    pub async fn check_writing(&self) -> Result<(), OpenError> {
        if self.scheme == Scheme::Folder {
            return Ok(());
        }
        let path = self.root.clone().join(PROBE);
        let put =
            || self.store.put_opts(&path, PROBE_TEXT.into(), PutOptions::from(PutMode::Create));
        // The object exists at the second put, or at the first.
        for _ in 0..2 {
            match put().await {
                Ok(_) => {}
                Err(object_store::Error::AlreadyExists { .. }) => return Ok(()),
                Err(error) => return Err(self.explain(error)),
            }
        }
        Err(OpenError::Overwrites(self.url.clone()))
    }

    /// Explains an error of the first request.
    fn explain(&self, error: object_store::Error) -> OpenError {
        use object_store::Error::{NotFound, PermissionDenied, Unauthenticated};
        let (url, expected) = (self.url.clone(), self.scheme.expected());
        if matches!(error, NotFound { .. }) {
            let parsed = Url::parse(&url).ok();
            let bucket = parsed.and_then(|url| url.host_str().map(str::to_owned));
            OpenError::NoBucket { url, bucket: bucket.unwrap_or_default(), error }
        } else if matches!(error, PermissionDenied { .. } | Unauthenticated { .. }) {
            OpenError::Refused { url, expected, error }
        } else {
            OpenError::Failed { url, error, expected }
        }
    }
}

const fn retries() -> RetryConfig {
    let (init_backoff, max_backoff) = BACKOFF;
    let backoff = BackoffConfig { init_backoff, max_backoff, base: 2.0 };
    RetryConfig { backoff, max_retries: RETRIES, retry_timeout: RETRY_TIMEOUT }
}

#[cfg(test)]
mod tests;

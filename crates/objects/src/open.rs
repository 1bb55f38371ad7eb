//! From a URL to a store.
//!
//! | URL | store | what the environment says |
//! |---|---|---|
//! | a path, `file:///folder` | a folder of this machine; it is made | |
//! | `s3://bucket/prefix` | Amazon S3, and what speaks like it | `AWS_…` |
//! | `gs://bucket/prefix` | Google Cloud Storage | `GOOGLE_…` |
//! | `az://container/prefix` | Azure Blob Storage | `AZURE_…` |
//!
//! What is tried again, and for how long: [`TRIES`] times more, and not after [`TRY_FOR`]. So a store that does
//! not answer is an error after some 20 s at most, which whoever can wait for longer tries again.

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

/// A request that fails is sent so often again.
const TRIES: usize = 4;

/// After this long none is.
const TRY_FOR: Duration = Duration::from_secs(10);

/// Between two tries lie at least the first and at most the second.
const WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The object that says whether a store puts objects only where there is none.
const PROBE: &str = "put-if-absent";

/// Why it is there, for whoever finds it.
const PROBE_TEXT: &str = "curtail asks with this object whether the store puts an object only where there \
                          is none: two writers would lose commits otherwise.\n";

/// Objects below a URL.
#[derive(Clone, Debug)]
pub struct Objects {
    /// All of the store.
    pub store: Arc<dyn ObjectStore>,
    /// Above what is meant, from the root of the store.
    pub root: Path,
    url: String,
    scheme: Scheme,
    /// Where it is, if it is a folder.
    folder: Option<PathBuf>,
}

/// Which store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Folder,
    S3,
    Google,
    Azure,
}

/// Why objects cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nobody knows what it is.
    #[error(
        "{0}: expected a folder or a URL: file:///folder, s3://bucket/prefix, gs://bucket/prefix, \
         az://container/prefix"
    )]
    Url(String),
    /// A folder.
    #[error("{url} cannot be used")]
    Folder {
        /// What was asked for.
        url: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The environment does not say what must be known.
    #[error("{url}: {said}; expected in the environment: {expected}")]
    Environment {
        /// What was asked for.
        url: String,
        /// What the store's client says.
        said: object_store::Error,
        /// Variables.
        expected: &'static str,
    },
    /// There is no such bucket.
    #[error(
        "{url}: there is no bucket or container {bucket:?}, and none is made; the store says: {said}"
    )]
    NoBucket {
        /// What was asked for.
        url: String,
        /// Its bucket.
        bucket: String,
        /// What the store says.
        said: object_store::Error,
    },
    /// We may not write there.
    #[error("{url}: access is refused; expected {expected}; the store says: {said}")]
    Refused {
        /// What was asked for.
        url: String,
        /// Variables.
        expected: &'static str,
        /// What the store says.
        said: object_store::Error,
    },
    /// It does not answer, or not as it should.
    #[error("{url}: {said}; expected a store that answers, and {expected}")]
    Failed {
        /// What was asked for.
        url: String,
        /// What the store's client says.
        said: object_store::Error,
        /// Variables.
        expected: &'static str,
    },
    /// It ignores `If-None-Match`.
    #[error(
        "{0}: the store puts an object where there is one already though it is told not to \
         (If-None-Match: *), so commits could be lost; expected a store with conditional writes"
    )]
    Overwrites(String),
}

impl Scheme {
    /// What the environment must say.
    const fn expected(self) -> &'static str {
        match self {
            Self::Folder => "nothing",
            Self::S3 => {
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role that the machine, task or pod gives; \
                 AWS_REGION; AWS_ENDPOINT_URL, and AWS_ALLOW_HTTP=true for http, where it is not Amazon's"
            }
            Self::Google => {
                "GOOGLE_SERVICE_ACCOUNT or GOOGLE_APPLICATION_CREDENTIALS (files), or the account that the \
                 machine gives"
            }
            Self::Azure => {
                "AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_KEY, \
                 AZURE_CLIENT_ID and its like, or the identity that the machine gives; or \
                 AZURE_STORAGE_USE_EMULATOR=true"
            }
        }
    }
}

/// Opens what a URL, or the path of a folder, means. Nothing is asked of a store yet.
///
/// # Errors
/// When it means nothing, or the environment does not say enough.
pub fn open(url: &str) -> Result<Objects, OpenError> {
    if let Some(folder) = folder(url)? {
        return Objects::folder(&folder);
    }
    let (scheme, root) = parse(url)?;
    let store = match scheme {
        Scheme::S3 => s3(url)?,
        Scheme::Google => google(url)?,
        Scheme::Azure => azure(url)?,
        Scheme::Folder => return Err(OpenError::Url(url.to_owned())),
    };
    Ok(Objects { store, root, url: url.to_owned(), scheme, folder: None })
}

/// Checks the form of a path or URL, without access to what it names.
///
/// # Errors
/// When it is neither a folder nor the URL of a known kind of object store.
pub fn check(url: &str) -> Result<(), OpenError> {
    if folder(url)?.is_none() {
        parse(url)?;
    }
    Ok(())
}

/// The kind of an object store, and the path in it.
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

/// The folder of this machine that a path or a URL means; [`None`] where that is elsewhere.
///
/// # Errors
/// When it is a URL of a file and none of this machine.
pub fn folder(url: &str) -> Result<Option<PathBuf>, OpenError> {
    let Some((scheme, _)) = url.split_once("://") else { return Ok(Some(PathBuf::from(url))) };
    if scheme != "file" {
        return Ok(None);
    }
    let path = Url::parse(url).ok().and_then(|url| url.to_file_path().ok());
    path.map(Some).ok_or_else(|| OpenError::Url(url.to_owned()))
}

impl Objects {
    /// Those of a folder, which is made. What is put there is durable.
    ///
    /// # Errors
    /// What the system says.
    pub fn folder(path: &std::path::Path) -> Result<Self, OpenError> {
        let url = path.display().to_string();
        let failed = |source| OpenError::Folder { url: url.clone(), source };
        std::fs::create_dir_all(path).map_err(failed)?;
        let store = Folder::open(path).map_err(|error| failed(error.into()))?;
        let (store, folder) = (Arc::new(store), Some(path.to_owned()));
        Ok(Self { store, root: Path::default(), url, scheme: Scheme::Folder, folder })
    }

    /// Removes what is left in a folder of files that whoever wrote them did not finish, a day after the last part of
    /// it; returns how many. It is `now`. Other stores do that by rules of their own.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove_abandoned(&self, now: SystemTime) -> io::Result<usize> {
        self.folder.as_ref().map_or(Ok(0), |folder| abandoned::remove(folder, now))
    }

    /// Where they are, as it was asked for.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Asks whether they may be written, and whether the store keeps to what commits rest on: that of all who
    /// put an object where there is none, one does. An object is left behind that says so. A folder is taken at
    /// its word.
    ///
    /// # Errors
    /// When it does not answer, there is no such bucket, we may not, or it puts a second one.
    pub async fn check_writing(&self) -> Result<(), OpenError> {
        if self.scheme == Scheme::Folder {
            return Ok(());
        }
        let path = self.root.clone().join(PROBE);
        let put =
            || self.store.put_opts(&path, PROBE_TEXT.into(), PutOptions::from(PutMode::Create));
        // One of the two times it is there already.
        for _ in 0..2 {
            match put().await {
                Ok(_) => {}
                Err(object_store::Error::AlreadyExists { .. }) => return Ok(()),
                Err(said) => return Err(self.why(said)),
            }
        }
        Err(OpenError::Overwrites(self.url.clone()))
    }

    /// What an error of the store means, before anything has worked.
    fn why(&self, said: object_store::Error) -> OpenError {
        use object_store::Error::{NotFound, PermissionDenied, Unauthenticated};
        let (url, expected) = (self.url.clone(), self.scheme.expected());
        if matches!(said, NotFound { .. }) {
            let bucket = Url::parse(&url).ok().and_then(|url| url.host_str().map(str::to_owned));
            return OpenError::NoBucket { url, bucket: bucket.unwrap_or_default(), said };
        }
        if matches!(said, PermissionDenied { .. } | Unauthenticated { .. }) {
            return OpenError::Refused { url, expected, said };
        }
        OpenError::Failed { url, said, expected }
    }
}

fn s3(url: &str) -> Result<Arc<dyn ObjectStore>, OpenError> {
    let builder = AmazonS3Builder::from_env().with_url(url).with_retry(retries());
    let store = builder.with_http_connector(Http).build();
    Ok(Arc::new(store.map_err(|said| unsaid(url, Scheme::S3, said))?))
}

fn google(url: &str) -> Result<Arc<dyn ObjectStore>, OpenError> {
    let builder = GoogleCloudStorageBuilder::from_env().with_url(url).with_retry(retries());
    let store = builder.with_http_connector(Http).build();
    Ok(Arc::new(store.map_err(|said| unsaid(url, Scheme::Google, said))?))
}

fn azure(url: &str) -> Result<Arc<dyn ObjectStore>, OpenError> {
    let builder = MicrosoftAzureBuilder::from_env().with_url(url).with_retry(retries());
    let store = builder.with_http_connector(Http).build();
    Ok(Arc::new(store.map_err(|said| unsaid(url, Scheme::Azure, said))?))
}

fn unsaid(url: &str, scheme: Scheme, said: object_store::Error) -> OpenError {
    OpenError::Environment { url: url.to_owned(), said, expected: scheme.expected() }
}

const fn retries() -> RetryConfig {
    let backoff = BackoffConfig { init_backoff: WAIT.0, max_backoff: WAIT.1, base: 2.0 };
    RetryConfig { backoff, max_retries: TRIES, retry_timeout: TRY_FOR }
}

#[cfg(test)]
mod tests;

use super::*;
use crate::server::{ServerAction, start};
use object_store::ObjectStoreExt as _;

fn run<T>(test: impl Future<Output = T>) -> T {
    // With a clock: what fails is tried again after a while.
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().expect("a runtime").block_on(test)
}

#[test]
fn a_path_is_a_folder() {
    for (url, path) in [
        ("data", "data"),
        ("/var/a b", "/var/a b"),
        ("file:///var/a%20b", "/var/a b"),
        ("C:/x", "C:/x"),
    ] {
        assert_eq!(folder(url).expect("a path"), Some(PathBuf::from(path)));
    }
    for url in ["s3://bucket/prefix", "gs://bucket", "az://container/x"] {
        assert_eq!(folder(url).expect("a URL"), None);
    }
    folder("file://elsewhere/var").expect_err("it is another machine's");
}

#[test]
fn unknown_urls_are_errors() {
    for url in ["s4://bucket", "s3://", "http://bucket/x", "://", "memory:///x"] {
        let error = open(url).expect_err("it means nothing");
        assert!(matches!(&error, OpenError::Url(text) if text == url), "{error}");
        assert!(error.to_string().contains("expected a folder or a URL"), "{error}");
    }
}

#[test]
fn a_folder_is_made_and_written() {
    let path = std::env::temp_dir().join(format!("curtail-objects-{}", std::process::id()));
    let url = format!("file://{}", path.display());
    let objects = open(&url).expect("a folder");
    run(async {
        objects.check_writing().await.expect("it is ours");
        objects.store.put(&Path::from("a/b"), "hi".into()).await.expect("it is ours");
    });
    assert_eq!(std::fs::read_to_string(path.join("a/b")).expect("it was put"), "hi");
    std::fs::remove_dir_all(path).expect("it is ours");
}

/// The result of the check for a store that responds like this.
fn checked(actions: Vec<ServerAction>) -> (Result<(), OpenError>, Vec<String>) {
    let (address, requests, server) = start(actions);
    let store = AmazonS3Builder::new()
        .with_endpoint(format!("http://{address}"))
        .with_allow_http(true)
        .with_bucket_name("b")
        .with_access_key_id("me")
        .with_secret_access_key("secret")
        .with_retry(retries())
        .with_http_connector(Http)
        .build()
        .expect("it says all");
    let objects = Objects {
        store: Arc::new(store),
        root: Path::from("p"),
        url: "s3://b/p".to_owned(),
        scheme: Scheme::S3,
        folder: None,
    };
    let checked = run(objects.check_writing());
    // With it the connections go, for which the server waits.
    drop(objects);
    server.join().expect("it ends well");
    (checked, requests.iter().map(|(_, requests)| requests).collect())
}

const PUT: &str = "HTTP/1.1 200 OK\r\netag: \"1\"\r\ncontent-length: 0\r\n\r\n";
const THERE: &str = "HTTP/1.1 412 Precondition Failed\r\ncontent-length: 0\r\n\r\n";
const BUSY: &str = "HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\n\r\n";

#[test]
fn conditional_writes_are_tested() {
    let (result, requests) = checked(vec![
        ServerAction::Respond(PUT),
        ServerAction::Respond(BUSY),
        ServerAction::Respond(THERE),
    ]);
    result.expect("it does");
    assert_eq!(requests.len(), 3);
    for requests in requests {
        assert!(requests.starts_with("put /b/p/put-if-absent http/1.1\r\n"), "{requests}");
        assert!(requests.contains("\r\nif-none-match: *\r\n"), "{requests}");
    }
    let (result, _) = checked(vec![ServerAction::Respond(THERE)]);
    result.expect("it was there");
    let (result, _) = checked(vec![ServerAction::Respond(PUT), ServerAction::Respond(PUT)]);
    let error = result.expect_err("it does not");
    assert!(error.to_string().contains("commits could be lost"), "{error}");
}

#[test]
fn errors_name_the_url_and_what_was_expected() {
    const GONE: &str = "HTTP/1.1 404 Not Found\r\ncontent-length: 12\r\n\r\nNoSuchBucket";
    const REFUSED: &str = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n";
    for (response, expected) in
        [(GONE, "no bucket or container \"b\""), (REFUSED, "AWS_ACCESS_KEY_ID")]
    {
        let (result, _) = checked(vec![ServerAction::Respond(response)]);
        let error = result.expect_err("it cannot be used").to_string();
        assert!(error.starts_with("s3://b/p: ") && error.contains(expected), "{error}");
    }
}

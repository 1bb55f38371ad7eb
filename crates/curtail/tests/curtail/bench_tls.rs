//! `curtail bench load` against a server with a certificate that no system authority signed.

use crate::command::{curtail, written};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// Starts a server with a self-signed certificate for 127.0.0.1; returns its URL and the certificate's file.
fn server(name: &str, is_ca: IsCa) -> (String, String) {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
    params.is_ca = is_ca;
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("its own key signs");
    let file = written(&format!("{name}-certificate.pem"), certificate.pem());
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("a certificate and its key");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://{}/", listener.local_addr().expect("an address"));
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, config) = (stream.expect("a client"), Arc::clone(&config));
            std::thread::spawn(move || respond(stream, config));
        }
    });
    (url, file)
}

/// Responds to requests until the client closes or rejects the certificate.
fn respond(stream: TcpStream, config: Arc<ServerConfig>) {
    let tls = ServerConnection::new(config).expect("a configuration");
    let mut reader = BufReader::new(StreamOwned::new(tls, stream));
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
        if line == "\r\n" {
            let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            if reader.get_mut().write_all(response).is_err() {
                return;
            }
        }
        line.clear();
    }
}

/// The exit code and the output of `bench load`.
fn load(url: &str, trust: &[&str]) -> (Option<i32>, String) {
    let load = ["--rate", "20", "--for", "500ms", "--spacing", "even"];
    let ended = curtail(&[&["bench", "load", url], &load[..], trust].concat());
    (ended.code, ended.stdout + &ended.stderr)
}

#[test]
fn a_self_signed_certificate_needs_ca_file_or_insecure() {
    let (url, file) = server("self-signed", IsCa::ExplicitNoCa);
    for trust in [&["--ca-file", &file][..], &["--insecure"]] {
        let (code, text) = load(&url, trust);
        assert!(code == Some(0) && !text.contains("FAILED"), "{trust:?}: {code:?}: {text}");
    }
    let (code, text) = load(&url, &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.replace("\n    ", " ").contains("name its authority"), "{text}");
}

#[test]
fn an_authority_certificate_of_a_server_gets_advice_and_passes_as_insecure() {
    let (url, file) = server("authority", IsCa::Ca(BasicConstraints::Unconstrained));
    let (code, text) = load(&url, &["--ca-file", &file]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.replace("\n    ", " ").contains("make it with `-addext basicConstraints"),
        "{text}"
    );
    let (code, text) = load(&url, &["--insecure"]);
    assert!(code == Some(0) && !text.contains("FAILED"), "{code:?}: {text}");
}

#[test]
fn a_file_without_certificates_is_rejected() {
    let file = written("no-certificate.pem", "nothing\n");
    let (code, text) = load("https://127.0.0.1:1/", &["--ca-file", &file]);
    assert_eq!(code, Some(3), "{text}");
    assert!(
        text.starts_with("no-certificate.pem: expected a certificate in PEM: found no"),
        "{text}"
    );
    let (code, text) = load("https://127.0.0.1:1/", &["--ca-file", "/nowhere.pem"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.starts_with("/nowhere.pem: "), "{text}");
}

//! `curtail server` under TLS and with tokens, and its clients; a reload replaces both.

use crate::command::{curtail, written};
use crate::server::{BATCH, Server, folder};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// Writes a certificate for 127.0.0.1 with its key, and that of a new authority with this name.
fn issue(authority: &str) {
    let key = || KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, authority);
    let issuer = CertifiedIssuer::self_signed(params, key()).expect("its own key signs");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
    let own = key();
    let certificate = params.signed_by(&own, &issuer).expect("the authority signs");
    written("server-tls.ca", issuer.pem());
    written("server-tls.pem", certificate.pem());
    written("server-tls.key", own.serialize_pem());
}

#[test]
fn clients_need_the_authority_and_a_token_and_a_reload_replaces_both() {
    let path = |name: &str| format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
    issue("first authority");
    written("server-tls.tokens", "first\nbound shop\n");
    let keys = format!(
        "tls: {{certificate_file: '{}', key_file: '{}'}}, tokens_file: '{}'",
        path("server-tls.pem"),
        path("server-tls.key"),
        path("server-tls.tokens")
    );
    let config = written("server-tls.yaml", format!("otlp: {{{keys}}}\napi: {{{keys}}}\n"));
    let config = path(&config);
    let server = Server::with(&folder("server-tls"), &["--config", &config]);
    let (otlp, api) = (format!("https://{}", server.otlp), format!("https://{}", server.api));
    let ca = path("server-tls.ca");
    let query = |token: Option<&str>, trust: &[&str]| {
        let token = token.map(|token| path(&written("server-tls.token", token)));
        let token = token.iter().flat_map(|token| ["--token-file", token]);
        let base = ["query", "slowest", "--server", &api];
        curtail(&base.into_iter().chain(trust.iter().copied()).chain(token).collect::<Vec<_>>())
    };
    let trust = ["--ca-file", &*ca];
    let batch = path(&written("server-tls.binpb", framed(BATCH)));
    let token = path(&written("server-tls.sender", "bound"));
    let sent = curtail(&[
        "import",
        "--to",
        &otlp,
        "--ca-file",
        &ca,
        "--token-file",
        &token,
        "--of",
        "traces",
        &batch,
    ]);
    assert_eq!(sent.code, Some(0), "{}", sent.stderr);
    let untrusted = query(Some("first"), &[]);
    assert_eq!(untrusted.code, Some(3), "{}", untrusted.stderr);
    assert!(untrusted.stderr.contains("TLS failed"), "{}", untrusted.stderr);
    let in_clear_text =
        curtail(&["query", "slowest", "--server", &format!("http://{}", server.api)]);
    assert!(in_clear_text.stderr.contains("write https://"), "{}", in_clear_text.stderr);
    let in_clear_text =
        curtail(&["import", "--to", &format!("http://{}", server.otlp), "--of", "traces", &batch]);
    assert!(in_clear_text.stderr.contains("write https://"), "{}", in_clear_text.stderr);
    let without = query(None, &trust);
    assert_eq!(without.code, Some(2), "{}", without.stderr);
    assert!(without.stderr.contains("pass --token-file"), "{}", without.stderr);
    let traces = |token: &str| {
        let ended = query(Some(token), &trust);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended.stdout.contains("GET /")
    };
    assert!(traces("bound"), "the token is bound to the tenant that sent the batch");
    assert!(!traces("first"), "the default tenant has no traces");
    issue("second authority");
    written("server-tls.tokens", "second\n");
    server.signal("HUP");
    // The new authority is trusted once the new certificate is in use.
    while query(Some("second"), &trust).code != Some(0) {}
    assert_eq!(query(Some("first"), &trust).code, Some(2), "the old token is unknown");
    server.ended("TERM");
}

/// A message with its length before it, as the Collector writes files of protobuf.
fn framed(message: &[u8]) -> Vec<u8> {
    let len = u32::try_from(message.len()).expect("it is short");
    [&len.to_be_bytes(), message].concat()
}

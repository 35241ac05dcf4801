//! Encrypted connections, with a certificate that `openssl` makes; and files that are none.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;

use gmm_host::CpuEngine;
use gmm_serve::{ServeOptions, Server, TlsFiles};
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, Stream, crypto::ring};

use crate::client::{model, serve_with};

/// A certificate for `localhost`, in `cert.pem` with `key.pem`; `None` where there is no `openssl`.
fn certificate(folder: &TempDir) -> Option<TlsFiles> {
    let path = |name: &str| folder.path().join(name);
    let files = TlsFiles { certificates: path("cert.pem"), key: path("key.pem") };
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]);
    command.args([
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
        "-addext",
        "basicConstraints=CA:FALSE",
    ]);
    command.arg("-keyout").arg(&files.key).arg("-out").arg(&files.certificates);
    command.output().ok()?.status.success().then_some(files)
}

#[test]
fn a_client_that_trusts_the_certificate_is_served() {
    let folder = TempDir::new().unwrap();
    let Some(files) = certificate(&folder) else { return eprintln!("skipped: no openssl here") };
    let trusted = CertificateDer::from_pem_file(&files.certificates).unwrap();
    let server = serve_with(&model(), |options, _| options.tls = Some(files));
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut socket = TcpStream::connect(server.address).unwrap();
    let mut stream = Stream::new(&mut connection, &mut socket);
    let body = r#"{"row": [4, 1]}"#;
    write!(
        stream,
        "POST /score HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    // The server may close the socket without a farewell of TLS.
    let _closed = stream.read_to_string(&mut answer);
    assert!(answer.contains("200 OK") && answer.contains("\"label\":1"), "{answer}");
    let mut plain = server.connect();
    plain.write(b"GET /v2 HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(plain.answer().is_none(), "an answer without encryption");
}

#[test]
fn files_that_are_no_certificates_or_keys_are_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("none.pem"), "hello").unwrap();
    let check = |certificates: &str, key: &str, part: &str| {
        let tls = Some(TlsFiles { certificates: path(certificates), key: path(key) });
        let engine = Arc::new(CpuEngine::new(1).unwrap());
        let found = Server::bind(ServeOptions { tls, ..ServeOptions::new(Vec::new(), engine) });
        let error = found.err().expect("an error").to_string();
        assert!(error.contains(part), "'{part}' is not in: {error}");
    };
    check("none.pem", "none.pem", "none.pem: it has no certificate");
    check("absent.pem", "none.pem", "absent.pem");
    if let Some(TlsFiles { .. }) = certificate(&folder) {
        check("cert.pem", "none.pem", "none.pem");
        check("cert.pem", "absent.pem", "absent.pem");
    }
}

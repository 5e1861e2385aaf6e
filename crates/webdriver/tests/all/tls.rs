//! Servers with TLS.

use std::sync::Arc;

use casement_webdriver::{GridError, WebDriverEngine};
use pretty_assertions::assert_eq;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls_pki_types::PrivateKeyDer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{ServerConfig, crypto::ring};

use crate::support::{config, engine};

const STATUS: &str = r#"{"value":{"ready":true,"message":"ready"}}"#;

/// Starts a server that answers every request with a status; returns its URL and its certificate in PEM.
async fn server() -> (String, Vec<u8>) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("a key");
    let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let tls = tls.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    let tls = tls.with_single_cert(vec![cert.der().clone()], key).expect("a configuration");
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("localhost:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { break };
                head.push(byte);
            }
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", STATUS.len());
            stream.write_all(format!("{head}{STATUS}").as_bytes()).await.ok();
            stream.shutdown().await.ok();
        }
    });
    (format!("https://localhost:{port}"), cert.pem().into_bytes())
}

#[tokio::test]
async fn a_server_is_trusted_if_its_authority_is_configured() {
    let (url, authority) = server().await;
    let mut trusting = config(&url);
    trusting.ca = Some(authority);
    assert!(engine(trusting).status().await.expect("an answer").ready);
    let error = engine(config(&url)).status().await.expect_err("not trusted");
    assert!(matches!(error, GridError::Unreachable { .. }), "{error}");
}

#[tokio::test]
async fn an_authority_that_cannot_be_read_is_refused() {
    for bad in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let mut config = config("https://grid");
        config.ca = Some(bad.as_bytes().to_vec());
        assert_eq!(WebDriverEngine::new(config).expect_err(bad).setting, "ca");
    }
}

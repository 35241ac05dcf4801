//! TLS 1.2 and 1.3 from files of certificates and of their key.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::ServeError;

/// Reads a chain of certificates and its key, in PEM.
///
/// # Errors
/// Errors if a file cannot be read, has no certificate or key, or if they do not belong together.
pub(crate) fn acceptor(certificates: &Path, key: &Path) -> Result<TlsAcceptor, ServeError> {
    let in_file = |path: &Path, error: String| ServeError::Load { path: path.display().to_string(), error };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(certificates).and_then(Iterator::collect);
    let chain = chain.map_err(|e| in_file(certificates, e.to_string()))?;
    if chain.is_empty() {
        return Err(in_file(certificates, "it has no certificate in PEM".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|e| in_file(key, e.to_string()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
    let mut config = config.map_err(|e| in_file(certificates, e.to_string()))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

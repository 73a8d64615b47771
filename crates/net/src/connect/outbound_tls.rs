//! Certificate authorities that are trusted when an upstream is reached over TLS.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// TLS client configuration with its trusted certificate authorities.
#[derive(Clone, Debug)]
pub struct OutboundTls(Arc<ClientConfig>);

/// Why a set of certificate authorities cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboundTlsError(String);

impl OutboundTls {
    /// Trusts the certificate authorities in a PEM file.
    ///
    /// # Errors
    /// When the file contains no certificate or an invalid one.
    pub fn from_pem(pem: &[u8]) -> Result<Self, OutboundTlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| OutboundTlsError(error.to_string()))?;
            roots.add(certificate).map_err(|error| OutboundTlsError(error.to_string()))?;
        }
        Self::new(roots)
    }

    /// Trusts these certificates, as read from the system's trust store. Invalid ones are skipped.
    ///
    /// # Errors
    /// When none of them is valid.
    pub fn from_certificates(list: Vec<CertificateDer<'static>>) -> Result<Self, OutboundTlsError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(list);
        Self::new(roots)
    }

    fn new(roots: RootCertStore) -> Result<Self, OutboundTlsError> {
        if roots.is_empty() {
            return Err(OutboundTlsError(
                "no certificate authority found (expected PEM certificates)".to_owned(),
            ));
        }
        Self::build(roots)
    }

    /// Trusts no certificate authority. Sufficient when no upstream is reached over TLS.
    ///
    /// # Errors
    /// When the cryptographic library supports no safe TLS version, which does not happen.
    pub fn without_roots() -> Result<Self, OutboundTlsError> {
        Self::build(RootCertStore::empty())
    }

    fn build(roots: RootCertStore) -> Result<Self, OutboundTlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| OutboundTlsError(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(super) fn connector(&self) -> TlsConnector {
        TlsConnector::from(Arc::clone(&self.0))
    }
}

impl fmt::Display for OutboundTlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for OutboundTlsError {}

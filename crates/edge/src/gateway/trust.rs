//! Whose certificates are believed when an upstream is reached over TLS.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;

/// Whose certificates are believed.
#[derive(Clone, Debug)]
pub struct Trust(Arc<ClientConfig>);

/// Why certificates cannot be believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadTrust(String);

impl Trust {
    /// The authorities in a PEM file.
    ///
    /// # Errors
    /// When there is none in it.
    pub fn in_pem(pem: &[u8]) -> Result<Self, BadTrust> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| BadTrust(error.to_string()))?;
            roots.add(certificate).map_err(|error| BadTrust(error.to_string()))?;
        }
        Self::new(roots)
    }

    /// These certificates, as the system keeps them.
    ///
    /// # Errors
    /// When none of them can be used.
    pub fn in_list(list: Vec<CertificateDer<'static>>) -> Result<Self, BadTrust> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(list);
        Self::new(roots)
    }

    fn new(roots: RootCertStore) -> Result<Self, BadTrust> {
        if roots.is_empty() {
            return Err(BadTrust("there is no certificate of an authority (PEM)".to_owned()));
        }
        Self::of(roots)
    }

    /// Nobody: enough where no upstream is reached over TLS.
    ///
    /// # Errors
    /// When the cryptographic library has no usable protocol, which does not happen.
    pub fn nobody() -> Result<Self, BadTrust> {
        Self::of(RootCertStore::empty())
    }

    fn of(roots: RootCertStore) -> Result<Self, BadTrust> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| BadTrust(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    pub(super) fn connector(&self) -> TlsConnector {
        TlsConnector::from(Arc::clone(&self.0))
    }
}

impl fmt::Display for BadTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadTrust {}

//! The certificate of a listener, which may be replaced while it is used.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate in use. Copies share it: replaced in one, it is replaced in all.
#[derive(Clone, Debug)]
pub struct Tls(Arc<ArcSwap<ServerConfig>>);

/// Why a certificate cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadCertificate(String);

impl Tls {
    /// A certificate chain and its private key, both in PEM.
    ///
    /// # Errors
    /// When they cannot be read or do not belong together.
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Self, BadCertificate> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(config(certificates, key)?))))
    }

    /// Uses another certificate for connections from now on.
    ///
    /// # Errors
    /// When it cannot be used; the one in use stays.
    pub fn replace(&self, certificates: &[u8], key: &[u8]) -> Result<(), BadCertificate> {
        self.0.store(Arc::new(config(certificates, key)?));
        Ok(())
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.0.load_full()
    }
}

fn config(certificates: &[u8], key: &[u8]) -> Result<ServerConfig, BadCertificate> {
    let bad = |what: &str, why: &dyn fmt::Display| BadCertificate(format!("{what}: {why}"));
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificates)
        .collect::<Result<_, _>>()
        .map_err(|error| bad("the certificate is not PEM", &error))?;
    if chain.is_empty() {
        return Err(BadCertificate("there is no certificate in the file (PEM)".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| bad("the private key is not PEM", &error))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| bad("certificate and key cannot be used", &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

impl fmt::Display for BadCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadCertificate {}

//! The certificate of a listener, replaceable at run time.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The certificate in use. Clones share it: replacing it in one replaces it in all.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<ArcSwap<ServerConfig>>);

/// Why a certificate cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTlsError(String);

impl ServerTls {
    /// Parses a certificate chain and its private key, both PEM.
    ///
    /// # Errors
    /// When either cannot be parsed, or they do not match.
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Self, ServerTlsError> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(build_server_config(certificates, key)?))))
    }

    /// Uses another certificate for new connections.
    ///
    /// # Errors
    /// When the new certificate is invalid; the current one stays in use.
    pub fn replace(&self, certificates: &[u8], key: &[u8]) -> Result<(), ServerTlsError> {
        self.0.store(Arc::new(build_server_config(certificates, key)?));
        Ok(())
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.0.load_full()
    }
}

fn build_server_config(certificates: &[u8], key: &[u8]) -> Result<ServerConfig, ServerTlsError> {
    let bad = |what: &str, why: &dyn fmt::Display| ServerTlsError(format!("{what}: {why}"));
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificates)
        .collect::<Result<_, _>>()
        .map_err(|error| bad("the certificate is not valid PEM", &error))?;
    if chain.is_empty() {
        return Err(ServerTlsError("the certificate file contains no PEM certificate".to_owned()));
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|error| bad("the private key is not valid PEM", &error))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| bad("the certificate and private key cannot be used", &error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

impl fmt::Display for ServerTlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ServerTlsError {}

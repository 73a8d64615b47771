//! Certificates for one test: a CA, a server and a client certificate, as files.

#![expect(clippy::expect_used, reason = "a failed setup step fails the test")]

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// The certificate files of a test.
#[derive(Clone, Debug)]
pub struct TestCertificates {
    folder: PathBuf,
}

impl TestCertificates {
    /// Generates all certificates in `folder`.
    ///
    /// # Panics
    /// If the folder is not writable.
    #[must_use]
    pub fn generate(folder: &Path) -> Self {
        let mut authority = certificate_params("tidegate test authority", &[]);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = authority.self_signed(&key).expect("a certificate");
        fs::write(folder.join("ca.pem"), certificate.pem()).expect("a file");
        let authority = Issuer::new(authority, key);

        let mut server = certificate_params("tidegate test server", &["127.0.0.1", "localhost"]);
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        write_signed(server, &authority, folder, "server");
        let mut client = certificate_params("tidegate test client", &[]);
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        write_signed(client, &authority, folder, "client");
        Self { folder: folder.to_path_buf() }
    }

    /// The CA certificate.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// The client's certificate.
    #[must_use]
    pub fn client(&self) -> PathBuf {
        self.folder.join("client.pem")
    }

    /// The client's key.
    #[must_use]
    pub fn client_key(&self) -> PathBuf {
        self.folder.join("client.key")
    }

    /// The server's certificate.
    pub(crate) fn server(&self) -> PathBuf {
        self.folder.join("server.pem")
    }

    /// The server's key.
    pub(crate) fn server_key(&self) -> PathBuf {
        self.folder.join("server.key")
    }
}

fn certificate_params(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts = hosts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut params = CertificateParams::new(hosts).expect("plain names");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn write_signed(
    mut params: CertificateParams,
    authority: &Issuer<'_, KeyPair>,
    folder: &Path,
    name: &str,
) {
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, authority).expect("a certificate");
    fs::write(folder.join(name).with_extension("pem"), certificate.pem()).expect("a file");
    fs::write(folder.join(name).with_extension("key"), key.serialize_pem()).expect("a file");
}

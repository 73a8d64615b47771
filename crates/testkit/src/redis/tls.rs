//! Certificates for one test: an authority, a server's and a client's, as files.

#![expect(clippy::expect_used, reason = "a test without its certificates cannot go on")]

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// What a server asks of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// A certificate of its authority.
    Required,
    /// None; but one that is shown must be good.
    Optional,
    /// None; one that is shown is not looked at.
    Ignored,
}

/// Files of a test's own certificates.
#[derive(Clone, Debug)]
pub struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes all of them in `folder`.
    pub(super) fn make(folder: &Path) -> Self {
        let mut authority = named("tidegate test authority", &[]);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = authority.self_signed(&key).expect("a certificate");
        fs::write(folder.join("ca.pem"), certificate.pem()).expect("a file");
        let authority = Issuer::new(authority, key);

        let mut server = named("tidegate test server", &["127.0.0.1", "localhost"]);
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        signed(server, &authority, folder, "server");
        let mut client = named("tidegate test client", &[]);
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        signed(client, &authority, folder, "client");
        Self { folder: folder.to_path_buf() }
    }

    /// The authority's certificate.
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

    /// How a server is told.
    pub(super) fn settings(&self, client: ClientCertificate) -> [OsString; 8] {
        let asked = match client {
            ClientCertificate::Required => "yes",
            ClientCertificate::Optional => "optional",
            ClientCertificate::Ignored => "no",
        };
        [
            "--tls-ca-cert-file".into(),
            self.ca().into(),
            "--tls-cert-file".into(),
            self.folder.join("server.pem").into(),
            "--tls-key-file".into(),
            self.folder.join("server.key").into(),
            "--tls-auth-clients".into(),
            asked.into(),
        ]
    }
}

fn named(name: &str, hosts: &[&str]) -> CertificateParams {
    let hosts = hosts.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut params = CertificateParams::new(hosts).expect("plain names");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn signed(
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

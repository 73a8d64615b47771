//! TLS arguments of a Redis server.

use std::ffi::OsString;

use crate::certificates::TestCertificates;

/// Whether a server requires client certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificatePolicy {
    /// A client must present a certificate signed by the server's CA.
    Required,
    /// A client may present a certificate, which must then be valid.
    Optional,
    /// Client certificates are not checked.
    Ignored,
}

/// The command-line arguments.
pub(super) fn tls_arguments(
    certificates: &TestCertificates,
    client: ClientCertificatePolicy,
) -> [OsString; 8] {
    let policy = match client {
        ClientCertificatePolicy::Required => "yes",
        ClientCertificatePolicy::Optional => "optional",
        ClientCertificatePolicy::Ignored => "no",
    };
    [
        "--tls-ca-cert-file".into(),
        certificates.ca().into(),
        "--tls-cert-file".into(),
        certificates.server().into(),
        "--tls-key-file".into(),
        certificates.server_key().into(),
        "--tls-auth-clients".into(),
        policy.into(),
    ]
}

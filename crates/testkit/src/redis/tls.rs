//! How a Redis server is told to speak TLS.

use std::ffi::OsString;

use crate::certificates::TestCertificates;

/// What a server asks of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificatePolicy {
    /// A certificate of its authority.
    Required,
    /// None; but one that is shown must be good.
    Optional,
    /// None; one that is shown is not looked at.
    Ignored,
}

/// What it is told.
pub(super) fn tls_arguments(
    certificates: &TestCertificates,
    client: ClientCertificatePolicy,
) -> [OsString; 8] {
    let asked = match client {
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
        asked.into(),
    ]
}

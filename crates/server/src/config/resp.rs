//! Settings of the RESP API.

use std::path::{Path, PathBuf};

use clap::Args;
use tidegate_rules::decode::FieldMap;

use super::certificate::ListenerCertificate;
use super::listen::{ListenSetting, ListenSpec};
use super::section::{read_parsed, read_path};
use crate::error::CommandError;

/// Default address of the RESP API.
const DEFAULT_RESP: ListenSpec = ListenSpec::loopback(8083);

/// Flags for the TLS certificate chain and its key.
const TLS_FLAGS: [&str; 2] = ["--resp-tls-cert", "--resp-tls-key"];

/// One layer of the RESP API's settings.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialRespSettings {
    /// RESP API address, for Redis clients [default: 127.0.0.1:8083]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_RESP", hide_env_values = true)]
    pub resp: Option<ListenSpec>,

    /// TLS certificate chain of the RESP API, in PEM; clients must then use TLS (`rediss://`)
    #[arg(long, value_name = "FILE", env = "TIDEGATE_RESP_TLS_CERT", hide_env_values = true)]
    pub(crate) resp_tls_cert: Option<PathBuf>,

    /// Private key of that certificate, in PEM
    #[arg(long, value_name = "FILE", env = "TIDEGATE_RESP_TLS_KEY", hide_env_values = true)]
    pub(crate) resp_tls_key: Option<PathBuf>,
}

impl PartialRespSettings {
    pub(super) fn read(fields: &mut FieldMap<'_>) -> Self {
        Self {
            resp: fields.take("resp").and_then(|field| read_parsed(&field)),
            resp_tls_cert: fields.take("resp_tls_cert").and_then(|field| read_path(&field)),
            resp_tls_key: fields.take("resp_tls_key").and_then(|field| read_path(&field)),
        }
    }

    pub(super) fn with_fallback(self, below: Self) -> Self {
        Self {
            resp: self.resp.or(below.resp),
            resp_tls_cert: self.resp_tls_cert.or(below.resp_tls_cert),
            resp_tls_key: self.resp_tls_key.or(below.resp_tls_key),
        }
    }

    pub(super) fn resolve_paths(mut self, folder: &Path) -> Self {
        for path in [&mut self.resp_tls_cert, &mut self.resp_tls_key].into_iter().flatten() {
            *path = folder.join(&*path);
        }
        self.resp = self.resp.map(|spec| spec.resolve_path(folder));
        self
    }
}

/// Validated settings of the RESP API.
#[derive(Debug)]
pub struct RespSettings {
    pub(crate) listen: ListenSetting,
    pub(crate) certificate: Option<ListenerCertificate>,
}

impl RespSettings {
    /// Validates the settings.
    ///
    /// # Errors
    /// When the certificate is unreadable or invalid.
    pub(super) fn check(typed: PartialRespSettings) -> Result<Self, CommandError> {
        Ok(Self {
            listen: ListenSpec::explicit_or_default(typed.resp, DEFAULT_RESP),
            certificate: ListenerCertificate::check(
                TLS_FLAGS,
                typed.resp_tls_cert,
                typed.resp_tls_key,
            )?,
        })
    }
}

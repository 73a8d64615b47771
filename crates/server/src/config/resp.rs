//! The RESP door's settings, as typed and checked.

use std::path::{Path, PathBuf};

use clap::Args;
use tidegate_rules::decode::Fields;

use super::certificate::Certificate;
use super::listen::{DoorAt, Listen};
use super::section::{parsed, path};
use crate::failure::Failure;

/// The RESP listener unless it is said otherwise.
const DEFAULT_RESP: Listen = Listen::loopback(8083);

/// The flags of its certificate and key.
const FLAGS: [&str; 2] = ["--resp-tls-cert", "--resp-tls-key"];

/// What was typed about the RESP listener in one place.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RespLayer {
    /// Where the RESP listener is, for Redis clients [default: 127.0.0.1:8083]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_RESP", hide_env_values = true)]
    pub(crate) resp: Option<Listen>,

    /// The RESP listener's certificate chain, in PEM: clients then come with TLS (`rediss://`)
    #[arg(long, value_name = "FILE", env = "TIDEGATE_RESP_TLS_CERT", hide_env_values = true)]
    pub(crate) resp_tls_cert: Option<PathBuf>,

    /// The key to that certificate, in PEM
    #[arg(long, value_name = "FILE", env = "TIDEGATE_RESP_TLS_KEY", hide_env_values = true)]
    pub(crate) resp_tls_key: Option<PathBuf>,
}

impl RespLayer {
    pub(super) fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            resp: fields.take("resp").and_then(|field| parsed(&field)),
            resp_tls_cert: fields.take("resp_tls_cert").and_then(|field| path(&field)),
            resp_tls_key: fields.take("resp_tls_key").and_then(|field| path(&field)),
        }
    }

    pub(super) fn over(self, below: Self) -> Self {
        Self {
            resp: self.resp.or(below.resp),
            resp_tls_cert: self.resp_tls_cert.or(below.resp_tls_cert),
            resp_tls_key: self.resp_tls_key.or(below.resp_tls_key),
        }
    }

    pub(super) fn beside(mut self, folder: &Path) -> Self {
        for path in [&mut self.resp_tls_cert, &mut self.resp_tls_key].into_iter().flatten() {
            *path = folder.join(&*path);
        }
        self.resp = self.resp.map(|door| door.beside(folder));
        self
    }
}

/// The RESP listener's settings, checked.
#[derive(Debug)]
pub(crate) struct RespSettings {
    pub(crate) at: DoorAt,
    pub(crate) certificate: Option<Certificate>,
}

impl RespSettings {
    /// Checks what was typed.
    ///
    /// # Errors
    /// When the certificate cannot be used.
    pub(super) fn check(typed: RespLayer) -> Result<Self, Failure> {
        Ok(Self {
            at: Listen::or_default(typed.resp, DEFAULT_RESP),
            certificate: Certificate::check(FLAGS, typed.resp_tls_cert, typed.resp_tls_key)?,
        })
    }
}

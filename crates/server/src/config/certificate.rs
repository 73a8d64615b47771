//! A listener's TLS certificate. It is read from files and reloaded when they change.

use std::path::PathBuf;

use tidegate_net::listen::ServerTls;

use super::read_file;
use crate::error::CommandError;

/// The certificate in use and the files it is reloaded from.
#[derive(Clone, Debug)]
pub struct ListenerCertificate {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) tls: ServerTls,
    flags: [&'static str; 2],
}

impl ListenerCertificate {
    /// Reads the files that the two flags name; `None` if neither flag is set.
    ///
    /// # Errors
    /// When only one flag is set, or the files are unreadable or invalid.
    pub(super) fn check(
        flags: [&'static str; 2],
        chain: Option<PathBuf>,
        key: Option<PathBuf>,
    ) -> Result<Option<Self>, CommandError> {
        let [chain_flag, key_flag] = flags;
        let (chain, key) = match (chain, key) {
            (None, None) => return Ok(None),
            (Some(chain), Some(key)) => (chain, key),
            (chain, _) => {
                let missing = if chain.is_some() { key_flag } else { chain_flag };
                return Err(CommandError::Usage(format!(
                    "a certificate needs its key: {missing} is missing\n  \
                     write: {chain_flag} cert.pem {key_flag} key.pem"
                )));
            }
        };
        let (chain_pem, key_pem) = (read_file(&chain, chain_flag)?, read_file(&key, key_flag)?);
        let tls = ServerTls::new(&chain_pem, &key_pem).map_err(|error| {
            CommandError::Failed(format!("{} with {}: {error}", chain.display(), key.display()))
        })?;
        Ok(Some(Self { chain, key, tls, flags }))
    }

    /// Reloads the certificate from its files.
    ///
    /// # Errors
    /// When the files are unreadable or invalid; the current certificate stays in use.
    pub(crate) fn reload(&self) -> Result<(), CommandError> {
        let (chain, key) = self.read()?;
        self.tls.replace(&chain, &key).map_err(|error| {
            CommandError::Failed(format!(
                "{} with {}: {error}",
                self.chain.display(),
                self.key.display()
            ))
        })
    }

    /// Reads the certificate chain and the key.
    ///
    /// # Errors
    /// When a file is unreadable.
    pub(crate) fn read(&self) -> Result<(Vec<u8>, Vec<u8>), CommandError> {
        let [chain_flag, key_flag] = self.flags;
        Ok((read_file(&self.chain, chain_flag)?, read_file(&self.key, key_flag)?))
    }
}

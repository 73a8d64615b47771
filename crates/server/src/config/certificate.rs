//! The certificate of a door, read from its files and read again when they change.

use std::path::PathBuf;

use tidegate_edge::listen::Tls;

use super::read_file;
use crate::failure::Failure;

/// A certificate in use, and the files that it may be replaced from.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) tls: Tls,
    flags: [&'static str; 2],
}

impl Certificate {
    /// Reads the files that two flags name; none if they name none.
    ///
    /// # Errors
    /// When one is missing, or they cannot be used.
    pub(super) fn check(
        flags: [&'static str; 2],
        chain: Option<PathBuf>,
        key: Option<PathBuf>,
    ) -> Result<Option<Self>, Failure> {
        let [chain_flag, key_flag] = flags;
        let (chain, key) = match (chain, key) {
            (None, None) => return Ok(None),
            (Some(chain), Some(key)) => (chain, key),
            (chain, _) => {
                let missing = if chain.is_some() { key_flag } else { chain_flag };
                return Err(Failure::Usage(format!(
                    "a certificate and its key go together, {missing} is missing\n  \
                     write: {chain_flag} cert.pem {key_flag} key.pem"
                )));
            }
        };
        let (chain_pem, key_pem) = (read_file(&chain, chain_flag)?, read_file(&key, key_flag)?);
        let tls = Tls::new(&chain_pem, &key_pem).map_err(|error| {
            Failure::CouldNot(format!("{} with {}: {error}", chain.display(), key.display()))
        })?;
        Ok(Some(Self { chain, key, tls, flags }))
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// When they cannot be used; the certificate in use stays.
    pub(crate) fn replace(&self) -> Result<(), Failure> {
        let (chain, key) = self.read()?;
        self.tls.replace(&chain, &key).map_err(|error| {
            Failure::CouldNot(format!(
                "{} with {}: {error}",
                self.chain.display(),
                self.key.display()
            ))
        })
    }

    /// What is in the files.
    ///
    /// # Errors
    /// When one cannot be read.
    pub(crate) fn read(&self) -> Result<(Vec<u8>, Vec<u8>), Failure> {
        let [chain_flag, key_flag] = self.flags;
        Ok((read_file(&self.chain, chain_flag)?, read_file(&self.key, key_flag)?))
    }
}

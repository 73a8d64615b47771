//! What can go wrong when a limiter is built or its rules are replaced. Decisions never fail.

use std::path::PathBuf;
use std::{error, fmt, io};

use tidegate_core::store::StoreError;
use tidegate_rules::diagnostic::DocumentError;

/// Why rules cannot be used.
///
/// ```
/// use tidegate::{BuildError, Limiter, RulesError};
///
/// let error = Limiter::builder().limit("10/fortnight by ip").build().unwrap_err();
/// let BuildError::Rules(RulesError::Invalid(document)) = error else { panic!("{error}") };
/// assert_eq!(document.list[0].line, 1);
/// println!("{document}"); // what was found, and what to write instead
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum RulesError {
    /// Neither a document nor a limit was given.
    Missing,
    /// The document or the limits are invalid. The text of the error shows each location and what
    /// to write instead.
    Invalid(DocumentError),
    /// A file cannot be read: the document, or a key file that it names.
    UnreadableFile {
        /// The file.
        path: PathBuf,
        /// Why it cannot be read.
        source: io::Error,
    },
}

/// Why a limiter cannot be built.
///
/// ```
/// use tidegate::{BuildError, Limiter, RulesError};
///
/// let error = Limiter::builder().build().unwrap_err();
/// assert!(matches!(error, BuildError::Rules(RulesError::Missing)));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The rules cannot be used.
    Rules(RulesError),
    /// A keyed limiter has exactly one limit, by exactly one key, and no rules document.
    NotOneKey,
    /// The URL of the Redis server is invalid.
    #[cfg(feature = "redis")]
    RedisUrl(tidegate_redis::RedisAddressError),
    /// The Redis server did not answer in time. `RedisLimiterBuilder::start` does not wait for it.
    #[cfg(feature = "redis")]
    RedisUnreachable {
        /// The reason, as far as it is known.
        reason: String,
    },
}

/// Why rules were not replaced. The limiter keeps the rules that it had.
///
/// ```
/// use tidegate::{Limiter, ReloadError};
///
/// let limiter = Limiter::builder().limit("10/s by ip").build()?;
/// let error = limiter.reload_now("rules: [{ limit: 10 per second }]").unwrap_err();
/// assert!(matches!(error, ReloadError::Rules(_)));
/// assert_eq!(limiter.rules().rules().len(), 1);
/// # Ok::<(), tidegate::BuildError>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum ReloadError {
    /// The new rules cannot be used.
    Rules(RulesError),
    /// No clock could be read, because the store did not answer.
    Store(StoreError),
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str(
                "the limiter has no rules; call `.limit(\"100/min by ip\")`, `.rules(text)` or \
                 `.rules_file(path)` on the builder",
            ),
            Self::Invalid(error) => error.fmt(f),
            Self::UnreadableFile { path, source } => {
                write!(f, "cannot read {}: {source}", path.display())
            }
        }
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules(error) => error.fmt(f),
            Self::NotOneKey => f.write_str(
                "a keyed limiter needs exactly one `.limit(\"100/min\")`, by one key; use `build` \
                 for several rules, several key parts, a global limit or a rules document",
            ),
            #[cfg(feature = "redis")]
            Self::RedisUrl(error) => error.fmt(f),
            #[cfg(feature = "redis")]
            Self::RedisUnreachable { reason } => write!(
                f,
                "the Redis server did not answer in time: {reason}; start it, or call `start` \
                 instead of `connect` to decide by each rule's `on_fail` until it answers"
            ),
        }
    }
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules(error) => error.fmt(f),
            Self::Store(error) => write!(f, "the store did not answer: {error}; try again later"),
        }
    }
}

impl error::Error for RulesError {}
impl error::Error for BuildError {}
impl error::Error for ReloadError {}

impl From<DocumentError> for RulesError {
    fn from(error: DocumentError) -> Self {
        Self::Invalid(error)
    }
}

impl From<RulesError> for BuildError {
    fn from(error: RulesError) -> Self {
        Self::Rules(error)
    }
}

impl From<RulesError> for ReloadError {
    fn from(error: RulesError) -> Self {
        Self::Rules(error)
    }
}

impl From<StoreError> for ReloadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

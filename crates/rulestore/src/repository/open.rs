//! Opens a repository by its address. Passwords never leave the address.

use std::path::PathBuf;
use std::sync::Arc;

use sqlx::postgres::PgConnectOptions;
use tokio::task::JoinSet;

use super::change_notifier::ChangeNotifier;
use super::sql::SqlRepository;
use super::{Repository, RepositoryError, postgres, postgres_listener, sqlite};

const URL_HELP: &str = "write sqlite:PATH for a single node, or \
                     postgres://user:password@host/database for a fleet";

/// A parsed repository address.
pub(super) enum RepositoryUrl {
    Sqlite(PathBuf),
    Postgres(Box<PgConnectOptions>),
}

/// Opens a repository and migrates its schema; concurrent calls are safe.
///
/// # Errors
/// Fails if the address is invalid, if the database does not answer, or if its content is foreign
/// or too new.
pub async fn open(url: &str) -> Result<Arc<dyn Repository>, RepositoryError> {
    let address = RepositoryUrl::parse(url)?;
    let (name, notifier, mut tasks) = (address.name(), ChangeNotifier::default(), JoinSet::new());
    let database = match address {
        RepositoryUrl::Sqlite(path) => sqlite::open(&path).await,
        RepositoryUrl::Postgres(options) => {
            let database = postgres::open(&options).await;
            if database.is_ok() {
                tasks.spawn(postgres_listener::run_listener(*options, notifier.clone()));
            }
            database
        }
    };
    let database = database.map_err(|error| with_repository_name(&name, error))?;
    Ok(Arc::new(SqlRepository { name, database, notifier, _tasks: tasks }))
}

/// The display name of a repository address, without secrets.
///
/// # Errors
/// Fails if the address is invalid.
pub(super) fn display_name(url: &str) -> Result<String, RepositoryError> {
    RepositoryUrl::parse(url).map(|address| address.name())
}

/// Path of a SQLite database; `None` for PostgreSQL and for invalid addresses.
#[must_use]
pub fn sqlite_file(url: &str) -> Option<PathBuf> {
    match RepositoryUrl::parse(url) {
        Ok(RepositoryUrl::Sqlite(path)) => Some(path),
        Ok(RepositoryUrl::Postgres(_)) | Err(_) => None,
    }
}

/// Migrates the schema and returns the migrations applied.
///
/// # Errors
/// Same as [`open`].
pub async fn migrate(url: &str) -> Result<Vec<String>, RepositoryError> {
    let address = RepositoryUrl::parse(url)?;
    let applied = match &address {
        RepositoryUrl::Sqlite(path) => sqlite::migrate(path).await,
        RepositoryUrl::Postgres(options) => postgres::migrate(options).await,
    };
    applied.map_err(|error| with_repository_name(&address.name(), error))
}

impl RepositoryUrl {
    pub(super) fn parse(url: &str) -> Result<Self, RepositoryError> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path {
                "" | ":memory:" => {
                    Err(invalid_url("rules in an in-memory database would be lost at exit"))
                }
                _ if path.contains('?') => {
                    Err(invalid_url("a SQLite path takes no parameters after `?`"))
                }
                _ => Ok(Self::Sqlite(path.into())),
            };
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Self::Postgres(Box::new(postgres::parse_options(url)?)));
        }
        // Only the scheme is shown: anything else may be a password.
        Err(match url.split_once(':') {
            Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_lowercase()) => {
                invalid_url(&format!("`{scheme}:` is not a supported database"))
            }
            _ => invalid_url("this is not a database address"),
        })
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Sqlite(path) => format!("sqlite:{}", path.display()),
            Self::Postgres(options) => postgres::display_name(options),
        }
    }
}

fn invalid_url(why: &str) -> RepositoryError {
    RepositoryError::Invalid(format!("{why}; {URL_HELP}"))
}

/// Adds the repository's name to an error.
pub(super) fn with_repository_name(name: &str, error: RepositoryError) -> RepositoryError {
    match error {
        RepositoryError::Unavailable(why) => RepositoryError::Unavailable(format!("{name}: {why}")),
        RepositoryError::Incompatible(why) => {
            RepositoryError::Incompatible(format!("{name}: {why}"))
        }
        other => other,
    }
}

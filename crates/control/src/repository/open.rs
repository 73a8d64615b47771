//! From an address to a repository. Passwords stay in the address.

use std::path::PathBuf;
use std::sync::Arc;

use sqlx::postgres::PgConnectOptions;
use tokio::task::JoinSet;

use super::sql::Sql;
use super::stir::Bell;
use super::{Refused, Repository, listen, postgres, sqlite};

const FORMS: &str = "write sqlite:PATH for a file of this node, or \
                     postgres://user:password@host/database for a fleet";

/// Where a repository is.
pub(super) enum Address {
    Sqlite(PathBuf),
    Postgres(Box<PgConnectOptions>),
}

/// Opens a repository and brings its schema up to date; several may do so at once.
///
/// # Errors
/// When the address is none, when nobody answers there, and when what is there is not ours or too
/// new.
pub async fn open(url: &str) -> Result<Arc<dyn Repository>, Refused> {
    let address = Address::read(url)?;
    let (name, bell, mut tasks) = (address.name(), Bell::default(), JoinSet::new());
    let database = match address {
        Address::Sqlite(path) => sqlite::open(&path).await,
        Address::Postgres(options) => {
            let database = postgres::open(&options).await;
            if database.is_ok() {
                tasks.spawn(listen::listen(*options, bell.clone()));
            }
            database
        }
    };
    let database = database.map_err(|refused| at(&name, refused))?;
    Ok(Arc::new(Sql { name, database, bell, _tasks: tasks }))
}

/// What a repository at an address is called, without secrets.
///
/// # Errors
/// When the address is none.
pub(super) fn name_of(url: &str) -> Result<String, Refused> {
    Address::read(url).map(|address| address.name())
}

/// The file of a database that is one; none for a database of a fleet, and for what is no address.
#[must_use]
pub fn sqlite_file(url: &str) -> Option<PathBuf> {
    match Address::read(url) {
        Ok(Address::Sqlite(path)) => Some(path),
        Ok(Address::Postgres(_)) | Err(_) => None,
    }
}

/// Brings a schema up to date, and tells which migrations that took.
///
/// # Errors
/// The same as of [`open`].
pub async fn migrate(url: &str) -> Result<Vec<String>, Refused> {
    let address = Address::read(url)?;
    let applied = match &address {
        Address::Sqlite(path) => sqlite::migrate(path).await,
        Address::Postgres(options) => postgres::migrate(options).await,
    };
    applied.map_err(|refused| at(&address.name(), refused))
}

impl Address {
    pub(super) fn read(url: &str) -> Result<Self, Refused> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path {
                "" | ":memory:" => Err(unfit("rules in memory would be gone with the program")),
                _ if path.contains('?') => {
                    Err(unfit("nothing is set behind `?` in the path of SQLite's file"))
                }
                _ => Ok(Self::Sqlite(path.into())),
            };
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Self::Postgres(Box::new(postgres::options(url)?)));
        }
        // Only a scheme is shown: anything else may be a password.
        Err(match url.split_once(':') {
            Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_lowercase()) => {
                unfit(&format!("rules are not kept in `{scheme}:`"))
            }
            _ => unfit("this is no address of a database"),
        })
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Sqlite(path) => format!("sqlite:{}", path.display()),
            Self::Postgres(options) => postgres::name(options),
        }
    }
}

fn unfit(why: &str) -> Refused {
    Refused::Unfit(format!("{why}; {FORMS}"))
}

/// With the place it was said at.
pub(super) fn at(name: &str, refused: Refused) -> Refused {
    match refused {
        Refused::Gone(why) => Refused::Gone(format!("{name}: {why}")),
        Refused::Foreign(why) => Refused::Foreign(format!("{name}: {why}")),
        other => other,
    }
}

//! PostgreSQL, the database for a fleet: address parsing, migration and connection pools.
//! Statements are in `database`, notifications in `postgres_listener`.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgPool};
use tokio::time::timeout;

use super::database::SqlDatabase;
use super::error::{from_elapsed, from_sqlx};
use super::{RepositoryError, schema};

/// Timeout for acquiring a connection.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Timeout of a statement.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of a migration, including the wait for another node's.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(60);

/// A small pool is enough: the database serves rules, not decisions.
const MAX_CONNECTIONS: u32 = 4;

/// Parameters accepted after `?`, in addition to `options[…]`. Unknown ones are rejected because
/// the driver would log them with their value, possibly a password under a misspelt name.
const KNOWN_PARAMETERS: &str = "sslmode sslrootcert sslcert sslkey host hostaddr port dbname user \
                          password application_name options statement-cache-capacity";

/// Parses an address.
pub(super) fn parse_options(url: &str) -> Result<PgConnectOptions, RepositoryError> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let is_known = |name: &str| {
        name.to_ascii_lowercase().replace("%5b", "[").starts_with("options[")
            || KNOWN_PARAMETERS.split(' ').any(|known| known == name)
    };
    if !query.split('&').all(|pair| is_known(pair.split('=').next().unwrap_or_default()))
        && !query.is_empty()
    {
        // Not shown: if a password contains an unescaped `?`, this is the rest of the password.
        let why = format!(
            "unknown parameter after `?` in the database address; known are {KNOWN_PARAMETERS}; \
             write a `?` in a password as %3F"
        );
        return Err(RepositoryError::Invalid(why));
    }
    let options = PgConnectOptions::from_str(url).map_err(|error| {
        let form = "postgres://user:password@host:5432/database";
        RepositoryError::Invalid(format!("this is not a database address ({error}); write {form}"))
    })?;
    Ok(match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("tidegate"),
    })
}

/// The display name of an address, without its password.
pub(super) fn display_name(options: &PgConnectOptions) -> String {
    let (user, port) = (options.get_username(), options.get_port());
    let host = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{port}", options.get_host()),
    };
    format!("postgres://{user}@{host}/{}", options.get_database().unwrap_or(user))
}

/// Applies missing migrations and returns their names.
pub(super) async fn migrate(options: &PgConnectOptions) -> Result<Vec<String>, RepositoryError> {
    let patient = with_statement_timeout(options, MIGRATION_TIMEOUT);
    let connection = timeout(CONNECT_TIMEOUT, patient.connect()).await.map_err(from_elapsed)?;
    let mut connection = connection.map_err(from_sqlx)?;
    let work = async {
        let tables = include_str!("../../sql/tables.postgres.sql");
        let tables: Vec<String> =
            sqlx::query_scalar(tables).fetch_all(&mut connection).await.map_err(from_sqlx)?;
        // The driver takes an advisory lock; concurrent migrations wait for it.
        schema::apply_missing(&mut connection, &schema::postgres_migrator(), &tables).await
    };
    let applied =
        timeout(MIGRATION_TIMEOUT + CONNECT_TIMEOUT, work).await.map_err(from_elapsed)??;
    // The migration is complete; a failure to close the connection does not matter.
    let _ = timeout(CONNECT_TIMEOUT, connection.close()).await;
    Ok(applied)
}

/// Migrates the schema and opens the pool.
pub(super) async fn open(options: &PgConnectOptions) -> Result<SqlDatabase, RepositoryError> {
    migrate(options).await?;
    Ok(SqlDatabase::Postgres(pool(options, MAX_CONNECTIONS)))
}

/// A pool that connects on demand.
pub(super) fn pool(options: &PgConnectOptions, max_connections: u32) -> PgPool {
    let pool =
        PgPoolOptions::new().max_connections(max_connections).acquire_timeout(CONNECT_TIMEOUT);
    pool.connect_lazy_with(with_statement_timeout(options, STATEMENT_TIMEOUT))
}

/// Adds timeouts for statements and for transactions that are left open.
fn with_statement_timeout(options: &PgConnectOptions, statement: Duration) -> PgConnectOptions {
    let millis = |span: Duration| span.as_millis().to_string();
    options.clone().options([
        ("statement_timeout", millis(statement)),
        ("idle_in_transaction_session_timeout", millis(statement * 2)),
    ])
}

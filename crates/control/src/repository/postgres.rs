//! PostgreSQL: the database of a fleet, its address and how it is opened. Asking it is in
//! `database`, hearing of new versions in `listen`.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgPool};
use tokio::time::timeout;

use super::database::Database;
use super::refusal::{late, refused};
use super::{Refused, schema};

/// How long a connection may take to be had.
pub(super) const CONNECT: Duration = Duration::from_secs(3);

/// How long a statement may take.
const STATEMENT: Duration = Duration::from_secs(5);

/// How long a migration may take, or somebody else's that is waited for.
const MIGRATION: Duration = Duration::from_secs(60);

/// Few: a node asks for rules, not for decisions.
const CONNECTIONS: u32 = 4;

/// What may stand behind the `?`, besides `options[…]`. What the driver does not know it would log
/// with its value, which may be a password under a misspelt name.
const PARAMETERS: &str = "sslmode sslrootcert sslcert sslkey host hostaddr port dbname user \
                          password application_name options statement-cache-capacity";

/// Reads an address.
pub(super) fn options(url: &str) -> Result<PgConnectOptions, Refused> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let known = |name: &str| {
        name.to_ascii_lowercase().replace("%5b", "[").starts_with("options[")
            || PARAMETERS.split(' ').any(|known| known == name)
    };
    if !query.split('&').all(|pair| known(pair.split('=').next().unwrap_or_default()))
        && !query.is_empty()
    {
        // Not shown: after a `?` that belongs to a password, it is the rest of the password.
        let why = format!(
            "what stands behind `?` in the address of the database is not all known; known are \
             {PARAMETERS}, and a `?` in a password is written %3F"
        );
        return Err(Refused::Unfit(why));
    }
    let options = PgConnectOptions::from_str(url).map_err(|error| {
        let form = "postgres://user:password@host:5432/database";
        Refused::Unfit(format!("this is no address of a database ({error}); write {form}"))
    })?;
    Ok(match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("tidegate"),
    })
}

/// What an address may be called: without its password.
pub(super) fn name(options: &PgConnectOptions) -> String {
    let (user, port) = (options.get_username(), options.get_port());
    let host = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{port}", options.get_host()),
    };
    format!("postgres://{user}@{host}/{}", options.get_database().unwrap_or(user))
}

/// Applies what is missing, and tells what that was.
pub(super) async fn migrate(options: &PgConnectOptions) -> Result<Vec<String>, Refused> {
    let patient = patient(options, MIGRATION);
    let connection = timeout(CONNECT, patient.connect()).await.map_err(late)?;
    let mut connection = connection.map_err(refused)?;
    let work = async {
        let tables = include_str!("../../sql/tables.postgres.sql");
        let tables: Vec<String> =
            sqlx::query_scalar(tables).fetch_all(&mut connection).await.map_err(refused)?;
        // The driver takes an advisory lock, which whoever comes at the same time waits for.
        schema::bring(&mut connection, &schema::postgres(), &tables).await
    };
    let applied = timeout(MIGRATION + CONNECT, work).await.map_err(late)??;
    // It has done its work, however it takes its leave.
    let _ = timeout(CONNECT, connection.close()).await;
    Ok(applied)
}

/// Opens it, its schema as it should be.
pub(super) async fn open(options: &PgConnectOptions) -> Result<Database, Refused> {
    migrate(options).await?;
    Ok(Database::Postgres(pool(options, CONNECTIONS)))
}

/// Connections that are made when they are needed.
pub(super) fn pool(options: &PgConnectOptions, most: u32) -> PgPool {
    let pool = PgPoolOptions::new().max_connections(most).acquire_timeout(CONNECT);
    pool.connect_lazy_with(patient(options, STATEMENT))
}

/// With an end to each statement, and to a transaction that somebody has forgotten.
fn patient(options: &PgConnectOptions, statement: Duration) -> PgConnectOptions {
    let millis = |span: Duration| span.as_millis().to_string();
    options.clone().options([
        ("statement_timeout", millis(statement)),
        ("idle_in_transaction_session_timeout", millis(statement * 2)),
    ])
}

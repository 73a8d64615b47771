//! Rules in a table that others edit, in the model `key_pattern, scope, rate_per_second,
//! burst_capacity, plan, is_active, description`. The table is only read: whole, at an interval and
//! when PostgreSQL notifies. Nothing is created or migrated in its database.

mod catalog;
mod columns;
mod row;

use std::fmt;
use std::time::Duration;

use sqlx::AssertSqlSafe;
use tokio::task::JoinSet;

use super::database::Database;
use super::open::{Address, at};
use super::stir::Bell;
use super::{Refused, Signal, listen, postgres, sqlite};
use catalog::TableName;
use row::TableRow;

pub use columns::TableColumns;
pub use row::TableRules;

/// One reader: rows are read every few seconds.
const CONNECTIONS: u32 = 1;

/// A table of rules that others edit.
pub struct RuleTable {
    /// Where it is, without secrets.
    name: String,
    address: Address,
    /// Kept open for PostgreSQL. A file of SQLite may be replaced by another, so it is opened for
    /// each read.
    pool: Option<Database>,
    table: TableName,
    columns: TableColumns,
    interval: Duration,
    bell: Bell,
    /// Ended with this value.
    _tasks: JoinSet<()>,
}

impl RuleTable {
    /// The table at `URL` or `URL#TABLE`, which is not read yet. Needs a Tokio runtime.
    ///
    /// # Errors
    /// When that is no address of a table.
    pub fn new(url: &str, columns: TableColumns, interval: Duration) -> Result<Self, Refused> {
        let (url, table) = match url.rsplit_once('#') {
            Some((url, table)) => (url, TableName::parse(table)?),
            None => (url, TableName::default()),
        };
        let address = Address::read(url)?;
        let name = format!("{}#{table}", address.name());
        let (bell, mut tasks) = (Bell::default(), JoinSet::new());
        let pool = match &address {
            Address::Sqlite(_) => None,
            Address::Postgres(options) => {
                tasks.spawn(listen::listen(PgOptions::clone(options), bell.clone()));
                Some(Database::Postgres(postgres::pool(options, CONNECTIONS)))
            }
        };
        Ok(Self { name, address, pool, table, columns, interval, bell, _tasks: tasks })
    }

    /// Where it is, without secrets.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads all rows.
    ///
    /// # Errors
    /// When the database does not answer, or has no such table or columns.
    pub async fn read(&self) -> Result<TableRules, Refused> {
        self.rows().await.map(TableRules::new).map_err(|refused| at(&self.name, refused))
    }

    /// Waits for a notification, at most for the interval.
    pub async fn wait_for_change(&self) -> Signal {
        self.bell.wait(self.interval).await
    }

    async fn rows(&self) -> Result<Vec<TableRow>, Refused> {
        match (&self.pool, &self.address) {
            (Some(database), _) => self.select(database).await,
            (None, Address::Sqlite(path)) => {
                let database = sqlite::read_only(path)?;
                let rows = self.select(&database).await;
                database.close().await;
                rows
            }
            (None, Address::Postgres(_)) => Err(Refused::Gone("it is not open".to_owned())),
        }
    }

    async fn select(&self, database: &Database) -> Result<Vec<TableRow>, Refused> {
        let mut session = database.reader().await?;
        let found = self.table.find(&mut session).await?;
        // Names were looked up in the catalog and are quoted.
        let sql = AssertSqlSafe(self.columns.query(&found)?);
        session.rows(sql, &[]).await
    }
}

type PgOptions = sqlx::postgres::PgConnectOptions;

impl fmt::Debug for RuleTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The address may hold a password.
        f.debug_struct("RuleTable").field("name", &self.name).finish_non_exhaustive()
    }
}

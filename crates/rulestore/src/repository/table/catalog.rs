//! Looks up the table and its columns. Names are case-insensitive like unquoted SQL names: `CREATE
//! TABLE RateLimitRule` creates `ratelimitrule` in PostgreSQL.

use std::fmt;

use super::super::RepositoryError;
use super::super::database::{SqlParam, SqlSession};

/// The table to read if none is named.
const DEFAULT_TABLE: &str = "RateLimitRule";

/// The name of a table, optionally with its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableName {
    schema: Option<String>,
    table: String,
}

/// A table that exists.
#[derive(Debug, Default)]
pub(super) struct FoundTable {
    pub(super) schema: String,
    pub(super) table: String,
    pub(super) columns: Vec<String>,
}

impl Default for TableName {
    fn default() -> Self {
        Self { schema: None, table: DEFAULT_TABLE.to_owned() }
    }
}

impl TableName {
    /// Parses `TABLE` or `SCHEMA.TABLE`.
    pub(super) fn parse(text: &str) -> Result<Self, RepositoryError> {
        let (schema, table) = match text.split_once('.') {
            Some((schema, table)) => (Some(schema), table),
            None => (None, text),
        };
        let is_name = |name: &str| !name.is_empty() && !name.contains(['\0', '"', '.']);
        if !is_name(table) || !schema.is_none_or(is_name) {
            let why = format!("`{text}` is not a table name; write URL#TABLE or URL#SCHEMA.TABLE");
            return Err(RepositoryError::Invalid(why));
        }
        Ok(Self { schema: schema.map(str::to_owned), table: table.to_owned() })
    }

    /// Looks the table up.
    pub(super) async fn find(
        &self,
        session: &mut SqlSession,
    ) -> Result<FoundTable, RepositoryError> {
        let sql = match session.is_postgres() {
            true => include_str!("../../../sql/table_columns.postgres.sql"),
            false => include_str!("../../../sql/table_columns.sqlite.sql"),
        };
        let schema = self.schema.as_deref().unwrap_or_default();
        let values = [SqlParam::Text(&self.table), SqlParam::Text(schema)];
        let rows: Vec<(String, String, String)> = session.fetch_rows(sql, &values).await?;
        let mut found = FoundTable::default();
        for (schema, table, column) in rows {
            // The best match comes first; the others differ only in case.
            if found.columns.is_empty() {
                (found.schema, found.table) = (schema, table);
            } else if (&found.schema, &found.table) != (&schema, &table) {
                break;
            }
            found.columns.push(column);
        }
        if found.columns.is_empty() {
            return Err(RepositoryError::Invalid(format!(
                "there is no table `{self}`, or this user may not see it; to read another table, \
                 write --rules-table URL#TABLE"
            )));
        }
        Ok(found)
    }
}

impl FoundTable {
    /// The column with this name.
    pub(super) fn column(&self, name: &str) -> Option<&str> {
        let exact = self.columns.iter().find(|column| *column == name);
        let loose = || self.columns.iter().find(|column| column.eq_ignore_ascii_case(name));
        exact.or_else(loose).map(String::as_str)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{schema}.")?;
        }
        f.write_str(&self.table)
    }
}

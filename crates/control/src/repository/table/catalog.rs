//! Which table is meant, and which columns it has. Names are looked up without regard to case, as
//! unquoted SQL does: `CREATE TABLE RateLimitRule` makes `ratelimitrule` in PostgreSQL.

use std::fmt;

use super::super::Refused;
use super::super::database::{Session, Value};

/// The table that rules are read from unless another is named.
const DEFAULT: &str = "RateLimitRule";

/// The name of a table, perhaps with its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableName {
    schema: Option<String>,
    table: String,
}

/// A table that is there.
#[derive(Debug, Default)]
pub(super) struct FoundTable {
    pub(super) schema: String,
    pub(super) table: String,
    pub(super) columns: Vec<String>,
}

impl Default for TableName {
    fn default() -> Self {
        Self { schema: None, table: DEFAULT.to_owned() }
    }
}

impl TableName {
    /// Reads `TABLE` or `SCHEMA.TABLE`.
    pub(super) fn parse(text: &str) -> Result<Self, Refused> {
        let (schema, table) = match text.split_once('.') {
            Some((schema, table)) => (Some(schema), table),
            None => (None, text),
        };
        let is_name = |name: &str| !name.is_empty() && !name.contains(['\0', '"', '.']);
        if !is_name(table) || !schema.is_none_or(is_name) {
            let why =
                format!("`{text}` is no name of a table; write URL#TABLE or URL#SCHEMA.TABLE");
            return Err(Refused::Unfit(why));
        }
        Ok(Self { schema: schema.map(str::to_owned), table: table.to_owned() })
    }

    /// Looks the table up.
    pub(super) async fn find(&self, session: &mut Session) -> Result<FoundTable, Refused> {
        let sql = match session.is_heard() {
            true => include_str!("../../../sql/table_columns.postgres.sql"),
            false => include_str!("../../../sql/table_columns.sqlite.sql"),
        };
        let schema = self.schema.as_deref().unwrap_or_default();
        let values = [Value::Text(&self.table), Value::Text(schema)];
        let rows: Vec<(String, String, String)> = session.rows(sql, &values).await?;
        let mut found = FoundTable::default();
        for (schema, table, column) in rows {
            // The best match comes first; others differ in case only.
            if found.columns.is_empty() {
                (found.schema, found.table) = (schema, table);
            } else if (&found.schema, &found.table) != (&schema, &table) {
                break;
            }
            found.columns.push(column);
        }
        if found.columns.is_empty() {
            return Err(Refused::Unfit(format!(
                "there is no table `{self}`, or we may not see it; name another one behind `#`: \
                 --rules-table URL#TABLE"
            )));
        }
        Ok(found)
    }
}

impl FoundTable {
    /// The column of a name.
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

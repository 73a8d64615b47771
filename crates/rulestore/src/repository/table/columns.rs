//! Column names of a rule table.

use std::str::FromStr;

use super::super::RepositoryError;
use super::catalog::FoundTable;

/// The fields of a rule, in the order in which rows are read.
pub(super) const FIELDS: [&str; 8] = [
    "rule_id",
    "key_pattern",
    "scope",
    "rate_per_second",
    "burst_capacity",
    "plan",
    "is_active",
    "description",
];

/// The fields that every rule needs.
const REQUIRED_FIELDS: [&str; 3] = ["key_pattern", "rate_per_second", "burst_capacity"];

/// The column name of each field; defaults to the field's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableColumns([Option<String>; FIELDS.len()]);

impl Default for TableColumns {
    fn default() -> Self {
        Self(FIELDS.map(|field| Some(field.to_owned())))
    }
}

impl FromStr for TableColumns {
    type Err = String;

    /// Parses `plan=tier,description=`: a column with another name, and a field without a column.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut columns = Self::default();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (field, column) = pair.split_once('=').unwrap_or((pair, ""));
            let (field, column) = (field.trim(), column.trim());
            let Some(at) = FIELDS.iter().position(|known| *known == field) else {
                return Err(format!(
                    "`{field}` is not a rule field; write FIELD=COLUMN with {}",
                    FIELDS.join(", ")
                ));
            };
            if !pair.contains('=') || column.is_empty() && REQUIRED_FIELDS.contains(&field) {
                return Err(format!("the column of `{field}` is missing; write {field}=COLUMN"));
            }
            if column.contains(['\0', '"']) {
                return Err(format!("`{column}` is not a column name"));
            }
            columns.0[at] = (!column.is_empty()).then(|| column.to_owned());
        }
        Ok(columns)
    }
}

impl TableColumns {
    /// The query that reads all rows of a table, every field as text. Column types differ between
    /// tables (`BOOLEAN` is a number in SQLite), so values are checked at compilation.
    pub(super) fn query(&self, found: &FoundTable) -> Result<String, RepositoryError> {
        let mut values = Vec::with_capacity(FIELDS.len());
        let mut order = Vec::new();
        for (field, column) in FIELDS.iter().zip(&self.0) {
            let Some(column) = column else {
                values.push("CAST(NULL AS text)".to_owned());
                continue;
            };
            let column =
                found.column(column).ok_or_else(|| missing_column(field, column, found))?;
            values.push(format!("CAST({} AS text)", quote_identifier(column)));
            if ["rule_id", "key_pattern", "plan"].contains(field) {
                order.push(quote_identifier(column));
            }
        }
        let (values, order) = (values.join(", "), order.join(", "));
        let (schema, table) = (quote_identifier(&found.schema), quote_identifier(&found.table));
        Ok(format!("SELECT {values} FROM {schema}.{table} ORDER BY {order}"))
    }
}

fn missing_column(field: &str, column: &str, found: &FoundTable) -> RepositoryError {
    let existing = found.columns.join(", ");
    let alternative = match REQUIRED_FIELDS.contains(&field) {
        true => String::new(),
        false => format!(", or {field}= if the table has no such column"),
    };
    RepositoryError::Invalid(format!(
        "the table {} has no column `{column}`, only {existing}; write \
         --rules-table-columns {field}=COLUMN{alternative}",
        found.table
    ))
}

/// Quotes an SQL identifier.
fn quote_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_columns_are_mapped_and_omitted() {
        let columns: TableColumns = "plan=tier, description=".parse().unwrap();
        let found = FoundTable {
            schema: "public".to_owned(),
            table: "limits".to_owned(),
            columns: ["RULE_ID", "key_pattern", "scope", "rate_per_second", "burst_capacity"]
                .into_iter()
                .chain(["tier", "is_active"])
                .map(str::to_owned)
                .collect(),
        };
        let sql = columns.query(&found).unwrap();
        assert!(sql.starts_with("SELECT CAST(\"RULE_ID\" AS text), "), "{sql}");
        assert!(sql.contains("CAST(\"tier\" AS text)") && sql.contains("CAST(NULL AS text) FROM"));
        let missing = TableColumns::default().query(&found).unwrap_err().to_string();
        assert!(missing.contains("--rules-table-columns plan=COLUMN"), "{missing}");
        for (text, expected) in [
            ("plan", "the column of `plan` is missing"),
            ("plam=x", "is not a rule field"),
            ("key_pattern=", "key_pattern=COLUMN"),
        ] {
            let error = text.parse::<TableColumns>().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}

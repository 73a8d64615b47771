//! The settings of the rule office: its door, its database, and what is kept of violations.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use tidegate_control::admin::Guard;
use tidegate_control::{Retention, TableColumns};
use tidegate_core::time::Micros;
use tidegate_edge::Token;
use tidegate_rules::decode::{Field, Fields};
use tidegate_rules::problem::Remark;

use super::listen::{DoorAt, Listen};
use super::section::{choice, path};
use super::{read_token, value};
use crate::failure::Failure;

/// The admin listener unless it is said otherwise.
const DEFAULT_ADMIN: Listen = Listen::loopback(8084);

/// How long violations are kept unless it is said otherwise.
const DEFAULT_KEEP: Micros = Micros::from_secs(30 * 86_400);

/// How many of them.
const DEFAULT_MOST: u64 = 10_000_000;

/// How often a table of rules is read unless it is said otherwise.
const DEFAULT_TABLE_INTERVAL: Micros = Micros::from_secs(5);

/// What was typed about the rule office in one place.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AdminLayer {
    /// Where the admin API listens; port 0 takes a free one, `off` closes it [default: 127.0.0.1:8084]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_ADMIN", hide_env_values = true)]
    pub(crate) admin: Option<Listen>,

    /// The file with the token that changes need, and other machines to reset, refund, peek and explain
    #[arg(long, value_name = "FILE", env = "TIDEGATE_ADMIN_TOKEN_FILE", hide_env_values = true)]
    pub(crate) admin_token_file: Option<PathBuf>,

    /// The file with the token that is enough to read
    #[arg(
        long,
        value_name = "FILE",
        env = "TIDEGATE_ADMIN_READ_TOKEN_FILE",
        hide_env_values = true
    )]
    pub(crate) admin_read_token_file: Option<PathBuf>,

    /// Keep the rules in this database, where the admin API changes them: sqlite:PATH for one node,
    /// postgres://… for a fleet. An empty one takes over the rules of --config [default: the rules
    /// are those of --config, and are changed there]
    #[arg(long, value_name = "URL", env = "TIDEGATE_RULES_DB", hide_env_values = true)]
    pub(crate) rules_db: Option<String>,

    /// Read the rules from a table that others edit: sqlite:PATH or postgres://…, with #TABLE
    /// unless it is called RateLimitRule
    #[arg(long, value_name = "URL[#TABLE]", env = "TIDEGATE_RULES_TABLE", hide_env_values = true)]
    pub(crate) rules_table: Option<String>,

    /// Other names of columns in that table, as FIELD=COLUMN,…; an empty one says that there is no
    /// such column
    #[arg(
        long,
        value_name = "NAMES",
        env = "TIDEGATE_RULES_TABLE_COLUMNS",
        hide_env_values = true
    )]
    pub(crate) rules_table_columns: Option<TableColumns>,

    /// How often that table is read, in addition to NOTIFY [default: 5s]
    #[arg(
        long,
        value_name = "TIME",
        value_parser = value::duration,
        env = "TIDEGATE_RULES_TABLE_INTERVAL",
        hide_env_values = true
    )]
    pub(crate) rules_table_interval: Option<Micros>,

    /// Keep a copy of the rules in this file, to start from when the database is gone
    /// [default: beside the rules]
    #[arg(long, value_name = "FILE", env = "TIDEGATE_RULES_COPY", hide_env_values = true)]
    pub(crate) rules_copy: Option<PathBuf>,

    /// How long violations are kept [default: 30d]
    #[arg(
        long,
        value_name = "TIME",
        value_parser = value::duration,
        env = "TIDEGATE_VIOLATIONS_KEEP",
        hide_env_values = true
    )]
    pub(crate) violations_keep: Option<Micros>,

    /// How many violations are kept [default: 10000000]
    #[arg(long, value_name = "N", env = "TIDEGATE_VIOLATIONS_MOST", hide_env_values = true)]
    pub(crate) violations_most: Option<u64>,

    /// How users and addresses of violations are kept [default: hashed]
    #[arg(
        long,
        value_name = "HOW",
        value_enum,
        env = "TIDEGATE_VIOLATIONS_IDENTITY",
        hide_env_values = true
    )]
    pub(crate) violations_identity: Option<Identity>,
}

/// How identities are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Identity {
    // As a keyed hash
    #[default]
    Hashed,
    // As they are; API keys never
    Plain,
}

impl AdminLayer {
    /// Reads the settings of a document's `server:` section.
    pub(super) fn read(fields: &mut Fields<'_>) -> Self {
        let mut layer = Self {
            admin: fields.take("admin").and_then(|field| super::section::parsed(&field)),
            admin_token_file: fields.take("admin_token_file").and_then(|field| path(&field)),
            admin_read_token_file: fields
                .take("admin_read_token_file")
                .and_then(|field| path(&field)),
            rules_db: fields.take("rules_db").and_then(|field| field.word().map(str::to_owned)),
            rules_table: fields
                .take("rules_table")
                .and_then(|field| field.word().map(str::to_owned)),
            rules_table_columns: fields
                .take("rules_table_columns")
                .and_then(|field| columns(&field)),
            rules_table_interval: fields
                .take("rules_table_interval")
                .and_then(|field| field.duration()),
            rules_copy: fields.take("rules_copy").and_then(|field| path(&field)),
            ..Self::default()
        };
        if let Some(mut within) = fields.take("violations").as_ref().and_then(Field::fields) {
            layer.violations_keep = within.take("keep").and_then(|field| field.duration());
            layer.violations_most =
                within.take("most").and_then(|field| field.integer(1, u64::MAX));
            layer.violations_identity =
                within.take("store_identity").and_then(|field| choice(&field));
            within.finish();
        }
        layer
    }

    /// This layer, and the one below for what it does not say.
    pub(super) fn over(self, below: Self) -> Self {
        Self {
            admin: self.admin.or(below.admin),
            admin_token_file: self.admin_token_file.or(below.admin_token_file),
            admin_read_token_file: self.admin_read_token_file.or(below.admin_read_token_file),
            rules_db: self.rules_db.or(below.rules_db),
            rules_table: self.rules_table.or(below.rules_table),
            rules_table_columns: self.rules_table_columns.or(below.rules_table_columns),
            rules_table_interval: self.rules_table_interval.or(below.rules_table_interval),
            rules_copy: self.rules_copy.or(below.rules_copy),
            violations_keep: self.violations_keep.or(below.violations_keep),
            violations_most: self.violations_most.or(below.violations_most),
            violations_identity: self.violations_identity.or(below.violations_identity),
        }
    }

    /// The same with relative paths taken from a folder.
    pub(super) fn beside(mut self, folder: &Path) -> Self {
        let files =
            [&mut self.admin_token_file, &mut self.admin_read_token_file, &mut self.rules_copy];
        for file in files.into_iter().flatten() {
            *file = folder.join(&*file);
        }
        self.admin = self.admin.map(|door| door.beside(folder));
        for url in [&mut self.rules_db, &mut self.rules_table].into_iter().flatten() {
            if let Some(path) = url.strip_prefix("sqlite:") {
                let path = path.strip_prefix("//").unwrap_or(path);
                *url = format!("sqlite:{}", folder.join(path).display());
            }
        }
        self
    }
}

/// What the columns of a table are called.
fn columns(field: &Field<'_>) -> Option<TableColumns> {
    let parsed = field.word()?.parse::<TableColumns>();
    field.accept(parsed.map_err(|why| Remark::new(why).write("FIELD=COLUMN,FIELD=COLUMN")))
}

/// A table that others edit.
#[derive(Debug)]
pub(crate) struct TableSettings {
    pub(crate) url: String,
    pub(crate) columns: TableColumns,
    pub(crate) interval: Duration,
}

/// The settings of the rule office, checked.
#[derive(Debug)]
pub(crate) struct AdminSettings {
    pub(crate) at: DoorAt,
    pub(crate) guard: Guard,
    pub(crate) rules_db: Option<String>,
    pub(crate) rules_table: Option<TableSettings>,
    pub(crate) rules_copy: Option<PathBuf>,
    pub(crate) retention: Retention,
    pub(crate) plain_identities: bool,
}

impl AdminSettings {
    /// Checks what was typed and reads the tokens.
    ///
    /// # Errors
    /// When a token cannot be read, or a door for everybody has none.
    pub(super) fn check(typed: AdminLayer) -> Result<Self, Failure> {
        let read = |path: Option<&Path>, flag| path.map(|path| read_token(path, flag)).transpose();
        let write = read(typed.admin_token_file.as_deref(), "--admin-token-file")?;
        let reads = read(typed.admin_read_token_file.as_deref(), "--admin-read-token-file")?;
        let at = Listen::or_default(typed.admin, DEFAULT_ADMIN);
        if let Listen::At(address) = at.listen()
            && !address.ip().is_loopback()
            && write.is_none()
        {
            return Err(Failure::Usage(format!(
                "--admin {address} lets other machines change the rules, and no token says who may\n  \
                 write: --admin-token-file FILE as well, or --admin 127.0.0.1:{}",
                address.port()
            )));
        }
        if typed.rules_db.is_some() && typed.rules_table.is_some() {
            return Err(Failure::Usage(
                "--rules-db and --rules-table both say where the rules are\n  \
                 write: --rules-db to change them through tidegate, --rules-table to change them \
                 in a table that others own"
                    .to_owned(),
            ));
        }
        let interval = typed.rules_table_interval.unwrap_or(DEFAULT_TABLE_INTERVAL);
        let columns = typed.rules_table_columns.unwrap_or_default();
        let rules_table =
            typed.rules_table.map(|url| TableSettings { url, columns, interval: interval.into() });
        Ok(Self {
            at,
            rules_table,
            guard: Guard { write, read: reads },
            rules_db: typed.rules_db,
            rules_copy: typed.rules_copy,
            retention: Retention {
                age: typed.violations_keep.unwrap_or(DEFAULT_KEEP),
                rows: typed.violations_most.unwrap_or(DEFAULT_MOST),
            },
            plain_identities: typed.violations_identity == Some(Identity::Plain),
        })
    }

    /// The token that opens everything.
    pub(crate) fn token(&self) -> Option<&Token> {
        self.guard.write.as_ref()
    }
}

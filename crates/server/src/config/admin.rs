//! Settings of the admin API: listener, tokens, rule database or table, and violation retention.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use tidegate_admin::AdminGuard;
use tidegate_core::time::Micros;
use tidegate_rules::decode::{Field, FieldMap};
use tidegate_rules::diagnostic::FieldError;
use tidegate_rulestore::TableColumns;
use tidegate_telemetry::RetentionPolicy;
use tidegate_web::BearerToken;

use super::listen::{ListenSetting, ListenSpec};
use super::section::{read_choice, read_path};
use super::{read_token, value};
use crate::error::CommandError;

/// Default address of the admin API.
const DEFAULT_ADMIN: ListenSpec = ListenSpec::loopback(8084);

/// Default age limit for stored violations.
const DEFAULT_RETENTION: Micros = Micros::from_secs(30 * 86_400);

/// Default limit for the number of stored violations.
const DEFAULT_MAX_VIOLATIONS: u64 = 10_000_000;

/// Default interval between reads of a rules table.
const DEFAULT_TABLE_INTERVAL: Micros = Micros::from_secs(5);

/// One layer of the admin API's settings.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialAdminSettings {
    /// Admin API address; port 0 picks a free port, `off` disables it [default: 127.0.0.1:8084]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_ADMIN", hide_env_values = true)]
    pub admin: Option<ListenSpec>,

    /// File with the admin token; changes require it, and so do reset, refund, peek and explain
    /// from other machines
    #[arg(long, value_name = "FILE", env = "TIDEGATE_ADMIN_TOKEN_FILE", hide_env_values = true)]
    pub(crate) admin_token_file: Option<PathBuf>,

    /// File with a token for read-only access
    #[arg(
        long,
        value_name = "FILE",
        env = "TIDEGATE_ADMIN_READ_TOKEN_FILE",
        hide_env_values = true
    )]
    pub(crate) admin_read_token_file: Option<PathBuf>,

    /// Store the rules in this database, so that the admin API can change them: sqlite:PATH for one
    /// node, postgres://… for a fleet. An empty database is filled from --config [default: rules
    /// come from --config and are changed there]
    #[arg(long, value_name = "URL", env = "TIDEGATE_RULES_DB", hide_env_values = true)]
    pub rules_db: Option<String>,

    /// Read the rules from a table owned by another application: sqlite:PATH or postgres://…, plus
    /// #TABLE unless the table is named RateLimitRule
    #[arg(long, value_name = "URL[#TABLE]", env = "TIDEGATE_RULES_TABLE", hide_env_values = true)]
    pub(crate) rules_table: Option<String>,

    /// Column names of that table, as FIELD=COLUMN,…; an empty COLUMN means the table has no such
    /// column
    #[arg(
        long,
        value_name = "NAMES",
        env = "TIDEGATE_RULES_TABLE_COLUMNS",
        hide_env_values = true
    )]
    pub(crate) rules_table_columns: Option<TableColumns>,

    /// Poll interval for that table, in addition to NOTIFY [default: 5s]
    #[arg(
        long,
        value_name = "TIME",
        value_parser = value::parse_duration,
        env = "TIDEGATE_RULES_TABLE_INTERVAL",
        hide_env_values = true
    )]
    pub(crate) rules_table_interval: Option<Micros>,

    /// Cache the rules in this file, so that the node can start while the database is down
    /// [default: next to the database or --config]
    #[arg(long, value_name = "FILE", env = "TIDEGATE_RULES_COPY", hide_env_values = true)]
    pub(crate) rules_copy: Option<PathBuf>,

    /// How long to store violations [default: 30d]
    #[arg(
        long,
        value_name = "TIME",
        value_parser = value::parse_duration,
        env = "TIDEGATE_VIOLATIONS_KEEP",
        hide_env_values = true
    )]
    pub(crate) violations_keep: Option<Micros>,

    /// How many violations to store [default: 10000000]
    #[arg(long, value_name = "N", env = "TIDEGATE_VIOLATIONS_MAX", hide_env_values = true)]
    pub(crate) violations_max: Option<u64>,

    /// How to store the users and addresses of violations [default: hashed]
    #[arg(
        long,
        value_name = "HOW",
        value_enum,
        env = "TIDEGATE_VIOLATIONS_IDENTITY",
        hide_env_values = true
    )]
    pub(crate) violations_identity: Option<ViolationIdentity>,
}

/// How client identities are stored in violations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ViolationIdentity {
    // As a keyed hash.
    #[default]
    Hashed,
    // In plain text, except API keys, which are always hashed.
    Plain,
}

impl PartialAdminSettings {
    /// Reads the admin settings from a document's `server:` section.
    pub(super) fn read(fields: &mut FieldMap<'_>) -> Self {
        let mut layer = Self {
            admin: fields.take("admin").and_then(|field| super::section::read_parsed(&field)),
            admin_token_file: fields.take("admin_token_file").and_then(|field| read_path(&field)),
            admin_read_token_file: fields
                .take("admin_read_token_file")
                .and_then(|field| read_path(&field)),
            rules_db: fields
                .take("rules_db")
                .and_then(|field| field.non_empty_text().map(str::to_owned)),
            rules_table: fields
                .take("rules_table")
                .and_then(|field| field.non_empty_text().map(str::to_owned)),
            rules_table_columns: fields
                .take("rules_table_columns")
                .and_then(|field| read_columns(&field)),
            rules_table_interval: fields
                .take("rules_table_interval")
                .and_then(|field| field.duration()),
            rules_copy: fields.take("rules_copy").and_then(|field| read_path(&field)),
            ..Self::default()
        };
        if let Some(mut within) = fields.take("violations").as_ref().and_then(Field::fields) {
            layer.violations_keep = within.take("keep").and_then(|field| field.duration());
            layer.violations_max = within.take("max").and_then(|field| field.integer(1, u64::MAX));
            layer.violations_identity =
                within.take("store_identity").and_then(|field| read_choice(&field));
            within.finish();
        }
        layer
    }

    /// Fills unset values from `below`.
    pub(super) fn with_fallback(self, below: Self) -> Self {
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
            violations_max: self.violations_max.or(below.violations_max),
            violations_identity: self.violations_identity.or(below.violations_identity),
        }
    }

    /// Resolves relative paths against `folder`.
    pub(super) fn resolve_paths(mut self, folder: &Path) -> Self {
        let files =
            [&mut self.admin_token_file, &mut self.admin_read_token_file, &mut self.rules_copy];
        for file in files.into_iter().flatten() {
            *file = folder.join(&*file);
        }
        self.admin = self.admin.map(|spec| spec.resolve_path(folder));
        for url in [&mut self.rules_db, &mut self.rules_table].into_iter().flatten() {
            if let Some(path) = url.strip_prefix("sqlite:") {
                let path = path.strip_prefix("//").unwrap_or(path);
                *url = format!("sqlite:{}", folder.join(path).display());
            }
        }
        self
    }
}

/// Parses the column names of a rules table.
fn read_columns(field: &Field<'_>) -> Option<TableColumns> {
    let parsed = field.non_empty_text()?.parse::<TableColumns>();
    field.ok_or_report(
        parsed.map_err(|why| FieldError::new(why).with_hint("FIELD=COLUMN,FIELD=COLUMN")),
    )
}

/// A rules table owned by another application.
#[derive(Debug)]
pub(crate) struct TableSettings {
    pub(crate) url: String,
    pub(crate) columns: TableColumns,
    pub(crate) interval: Duration,
}

/// Validated settings of the admin API.
#[derive(Debug)]
pub struct AdminSettings {
    pub(crate) listen: ListenSetting,
    pub(crate) guard: AdminGuard,
    pub(crate) rules_db: Option<String>,
    pub(crate) rules_table: Option<TableSettings>,
    pub(crate) rules_copy: Option<PathBuf>,
    pub(crate) retention: RetentionPolicy,
    pub(crate) plain_identities: bool,
}

impl AdminSettings {
    /// Validates the settings and reads the token files.
    ///
    /// # Errors
    /// When a token file is unreadable, or a listener reachable from other machines has no token.
    pub(super) fn check(typed: PartialAdminSettings) -> Result<Self, CommandError> {
        let read = |path: Option<&Path>, flag| path.map(|path| read_token(path, flag)).transpose();
        let write = read(typed.admin_token_file.as_deref(), "--admin-token-file")?;
        let reads = read(typed.admin_read_token_file.as_deref(), "--admin-read-token-file")?;
        let at = ListenSpec::explicit_or_default(typed.admin, DEFAULT_ADMIN);
        if let ListenSpec::Address(address) = at.spec()
            && !address.ip().is_loopback()
            && write.is_none()
        {
            return Err(CommandError::Usage(format!(
                "--admin {address} would let any machine that can reach it change the rules, \
                 because no token is set\n  \
                 write: --admin-token-file FILE as well, or --admin 127.0.0.1:{}",
                address.port()
            )));
        }
        if typed.rules_db.is_some() && typed.rules_table.is_some() {
            return Err(CommandError::Usage(
                "--rules-db and --rules-table cannot be used together: both are the source of the rules\n  \
                 write: --rules-db to change rules through Tidegate, --rules-table to read them from \
                 a table that another application owns"
                    .to_owned(),
            ));
        }
        let interval = typed.rules_table_interval.unwrap_or(DEFAULT_TABLE_INTERVAL);
        let columns = typed.rules_table_columns.unwrap_or_default();
        let rules_table =
            typed.rules_table.map(|url| TableSettings { url, columns, interval: interval.into() });
        Ok(Self {
            listen: at,
            rules_table,
            guard: AdminGuard { write, read: reads },
            rules_db: typed.rules_db,
            rules_copy: typed.rules_copy,
            retention: RetentionPolicy {
                age: typed.violations_keep.unwrap_or(DEFAULT_RETENTION),
                rows: typed.violations_max.unwrap_or(DEFAULT_MAX_VIOLATIONS),
            },
            plain_identities: typed.violations_identity == Some(ViolationIdentity::Plain),
        })
    }

    /// The token that grants full access.
    pub(crate) fn token(&self) -> Option<&BearerToken> {
        self.guard.write.as_ref()
    }
}

//! Rules in SQLite or PostgreSQL: versions, edits, and synchronisation across nodes.
//!
//! A [`RuleConfig`] holds everything that rules are compiled from, at one version. A [`Repository`]
//! stores configurations: each change is one transaction and one new version, recorded with the
//! previous values, so you can roll back to any version. Nothing here decides a request.

mod compile;
pub mod diff;
mod edit;
pub mod entry_value;
pub mod file;
mod local_cache;
mod node;
mod repository;
mod rule_config;
pub mod rule_document;
mod rule_manager;

pub use compile::{FileAccess, RuleCompiler, ValidationError, compile, compile_content};
pub use edit::{EntryUpdate, RuleEdit, VersionChange, VersionInfo};
pub use local_cache::LocalCache;
pub use node::FleetNode;
pub use repository::{
    LazyRepository, ReadOnlyRules, Repository, RepositoryError, RuleSource, RuleTable,
    TableColumns, TableRules, WakeReason, migrate, open, sqlite_file,
};
pub use rule_config::{EntryKind, RuleConfig, StoredEntry};
pub use rule_document::{document_entries, render_document};
pub use rule_manager::{
    ChangeAuthor, CommittedEdit, EditError, RuleManager, RuleManagerDeps, RuleSink, SyncEvent,
};

//! The rule office: where rules are kept, who changed them when and why, and how every node of a
//! fleet comes to know.
//!
//! A [`Book`] is everything that rules are made of at one version. A [`Repository`] keeps books: each
//! change is one transaction, one new version, and on record with what was there before, so that any
//! version can be gone back to. Nothing here decides a request.

pub mod admin;
mod book;
mod by_rule;
mod compare;
mod compile;
mod copy;
mod dashboard;
mod diff;
mod edit;
pub mod file;
pub mod live;
mod log;
mod metrics;
mod node;
mod office;
mod paper;
mod record;
mod repository;
mod top;
mod violation;
pub mod yaml_text;

pub use book::{Book, Kept, Kind};
pub use compile::{Compiles, Files, Flaw, compile, compile_content};
pub use copy::Copy;
pub use edit::{Change, Edit, Entry, Signed};
pub use log::{Line, QUEUE, Retention, Said, Tally, ViolationLog};
pub use metrics::{
    Counts, DecisionCount, Distribution, EndpointCount, Exports, Exposition, Kind as MetricKind,
    Metrics, RuleCount, Unit, VerdictCounts,
};
pub use node::Node;
pub use office::{By, Desk, Done, Fault, News, Office, Staff};
pub use paper::{document, entries};
pub use repository::{
    Patient, ReadOnlyRules, Refused, Repository, RuleSource, RuleTable, Signal, TableColumns,
    TableRules, migrate, open, sqlite_file,
};
pub use top::{Burst, Sight, Top, TopKey, TopKind, TopQuery};
pub use violation::{Batch, Identities, Page, Violation, ViolationQuery, ViolationRow};

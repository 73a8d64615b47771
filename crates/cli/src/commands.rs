//! All commands except `serve` and `demo`, one file each.

pub(crate) mod admin;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod config_check;
pub(crate) mod db;
mod decision_query;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod import;
pub(crate) mod route;

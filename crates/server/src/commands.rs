//! The commands that answer and end, one file each.

pub(crate) mod admin;
mod ask;
pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod config_check;
pub(crate) mod db;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod import;

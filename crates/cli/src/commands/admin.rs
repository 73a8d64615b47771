//! The commands of the rule office, which ask the admin API of a running server. Nothing is changed here
//! that the API does not change; this shows, asks and tells.

mod api;
mod api_errors;
mod api_key_file;
mod apply;
mod client_selector;
mod confirm;
mod diff;
pub(crate) mod keys;
pub(crate) mod overrides;
mod pagination;
pub(crate) mod reset;
pub(crate) mod rules;
mod rules_change;
mod rules_table;
pub(crate) mod subjects;
pub(crate) mod top;
pub(crate) mod violations;

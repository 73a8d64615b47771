//! The commands that call the admin API of a running server. They format output and ask for
//! confirmation; all changes are made by the server.

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

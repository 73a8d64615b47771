//! Where rules come from, and so where they are changed.

use serde::Serialize;

/// Where the rules in force come from. Only a database of ours takes changes through the admin API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleSource {
    /// A file, limits of the command line, or the built-in example.
    File,
    /// The database of `--rules-db`, with versions and an audit.
    Database,
    /// The table of `--rules-table`, which others edit.
    Table,
}

impl RuleSource {
    /// Whether the admin API changes these rules.
    #[must_use]
    pub const fn is_editable(self) -> bool {
        matches!(self, Self::Database)
    }

    /// Why rules of this source cannot be changed here, and what to do instead.
    pub(super) fn advice(self, name: &str) -> String {
        let what_to_do = match self {
            Self::File => {
                "change them there, or start tidegate with --rules-db sqlite:PATH (or \
                 --rules-db postgres://… for a fleet) to keep them in a database, where the admin \
                 API, the dashboard and `tidegate rules` change them"
            }
            Self::Database => "change them with `tidegate rules apply FILE`",
            Self::Table => "change the rows of that table, which is read again by itself",
        };
        format!("these rules are read-only here, because they come from {name}: {what_to_do}")
    }
}

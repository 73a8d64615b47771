//! What a region has lent, in its store: the nodes of the other regions report it there, because a
//! store cannot distinguish them from its own nodes.
//!
//! The numbers are for people. No decision reads them, and a report that may have run is not
//! repeated, so a broken connection makes them too low rather than too high.

use redis::{Cmd, Value, cmd};

use crate::lua_script::REGION_LOANS_SCRIPT;
use crate::region_marker::MARKER_LIFETIME;

/// Units of one rule that a region lent to the nodes of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionLoan {
    /// The rule's ID.
    pub rule: String,
    /// The region that borrowed.
    pub borrower: String,
    /// Units that the lender's store granted.
    pub granted: u64,
    /// Units that the borrower returned.
    pub returned: u64,
}

impl RegionLoan {
    /// A loan of no units, to read what was lent.
    #[must_use]
    pub fn none(rule: &str, borrower: &str) -> Self {
        Self { rule: rule.to_owned(), borrower: borrower.to_owned(), granted: 0, returned: 0 }
    }

    /// The fields of the hash with the numbers to add. The name of a region contains no space, so
    /// no two loans share a field.
    fn fields(&self) -> [(String, u64); 2] {
        let Self { rule, borrower, granted, returned } = self;
        [
            (format!("granted {borrower} {rule}"), *granted),
            (format!("returned {borrower} {rule}"), *returned),
        ]
    }
}

/// The key of the hash.
pub(crate) fn loans_key(prefix: &str) -> String {
    format!("{prefix}lent")
}

/// Adds the units of these loans.
pub(crate) fn add_command(prefix: &str, loans: &[RegionLoan]) -> Cmd {
    let mut command = cmd("EVAL");
    command.arg(REGION_LOANS_SCRIPT).arg(1).arg(loans_key(prefix)).arg(MARKER_LIFETIME.as_millis());
    for (field, units) in loans.iter().flat_map(RegionLoan::fields) {
        command.arg(field).arg(units);
    }
    command
}

/// The totals of these loans, from the reply to the command that added them.
pub(crate) fn totals(loans: &[RegionLoan], reply: &Value) -> Option<Vec<RegionLoan>> {
    let Value::Array(numbers) = reply else { return None };
    let pairs = numbers.chunks_exact(2);
    let total = |(loan, pair): (&RegionLoan, &[Value])| {
        let (granted, returned) = (number(&pair[0])?, number(&pair[1])?);
        Some(RegionLoan { granted, returned, ..loan.clone() })
    };
    (numbers.len() == 2 * loans.len()).then(|| loans.iter().zip(pairs).map(total).collect())?
}

fn number(reply: &Value) -> Option<u64> {
    let Value::BulkString(bytes) = reply else { return None };
    str::from_utf8(bytes).ok()?.parse().ok()
}

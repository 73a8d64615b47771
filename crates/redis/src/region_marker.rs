//! The marker of a region: says to which region a store belongs, and how its nodes hash keys.
//!
//! Nodes read the marker of another region's store before they borrow from it. Units borrowed from
//! the wrong store, or under another name of the counter, would exist twice.

use std::fmt;
use std::time::Duration;

use redis::{Cmd, Value, cmd};

use crate::lua_script::REGION_MARKER_SCRIPT;

/// How long a marker outlives the nodes of its region. Other regions may borrow the share of a
/// region whose nodes are gone.
pub(crate) const MARKER_LIFETIME: Duration = Duration::from_hours(30 * 24);

/// What nodes write into the store of their region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionMarker {
    /// The region that the store belongs to.
    pub region: String,
    /// Shows whether two nodes have the same key secret, without revealing it.
    pub secret_check: u64,
}

impl RegionMarker {
    /// The marker in a reply; `None` if the store has none. A text that this version cannot read
    /// is the marker of no region.
    pub(crate) fn from_reply(reply: &Value) -> Option<Self> {
        let Value::BulkString(bytes) = reply else { return None };
        let text = String::from_utf8_lossy(bytes);
        let (region, check) = text.split_once(' ').unwrap_or(("", ""));
        let check = u64::from_str_radix(check, 16).ok();
        let unreadable = Self { region: String::new(), secret_check: 0 };
        Some(check.map_or(unreadable, |secret_check| Self { region: region.into(), secret_check }))
    }

    pub(crate) fn write_command(&self, prefix: &str) -> Cmd {
        let (text, lifetime) = (self.to_string(), MARKER_LIFETIME.as_millis());
        let mut command = cmd("EVAL");
        command.arg(REGION_MARKER_SCRIPT).arg(1).arg(marker_key(prefix)).arg(text).arg(lifetime);
        command
    }
}

impl fmt::Display for RegionMarker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:016x}", self.region, self.secret_check)
    }
}

/// The key of the marker. It contains the prefix, so that nodes with another prefix do not find it.
pub(crate) fn marker_key(prefix: &str) -> String {
    format!("{prefix}region")
}

pub(crate) fn read_command(prefix: &str) -> Cmd {
    // The ACL rights that the script needs include MGET, but not GET.
    let mut command = cmd("MGET");
    command.arg(marker_key(prefix));
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_text_is_read_back() {
        let marker = RegionMarker { region: "eu-1".to_owned(), secret_check: 0xab };
        assert_eq!(marker.to_string(), "eu-1 00000000000000ab");
        let reply = Value::BulkString(marker.to_string().into_bytes());
        assert_eq!(RegionMarker::from_reply(&reply), Some(marker));
        assert_eq!(RegionMarker::from_reply(&Value::Nil), None);
    }

    #[test]
    fn unreadable_marker_belongs_to_no_region() {
        for text in ["", "eu", "eu x", "eu 1 2"] {
            let marker = RegionMarker::from_reply(&Value::BulkString(text.into()));
            assert_eq!(marker.map(|marker| marker.region), Some(String::new()), "{text}");
        }
    }
}

//! Rule status in the live feed.

use serde_json::{Value as Json, json};
use tidegate_telemetry::live_feed::LiveSource;

use super::RuleManager;
use crate::rule_config::EntryKind;

impl LiveSource for RuleManager {
    fn live_data(&self) -> (&'static str, Json) {
        let (config, database) = (self.config(), self.repository().name());
        let rules = config.entries(EntryKind::Rule, None).count();
        ("rule_set", json!({"version": config.version(), "database": database, "rules": rules}))
    }
}

//! What the parts of the rule office tell with each tick.

use serde_json::{Value as Json, json};

use super::Tells;
use crate::book::Kind;
use crate::log::ViolationLog;
use crate::metrics::Metrics;
use crate::office::Office;

impl Tells for Office {
    fn tell(&self) -> (&'static str, Json) {
        let (book, database) = (self.book(), self.repository().name());
        let rules = book.all(Kind::Rule, None).count();
        ("office", json!({"version": book.version(), "database": database, "rules": rules}))
    }
}

impl Tells for ViolationLog {
    fn tell(&self) -> (&'static str, Json) {
        ("violations", json!(self.tally()))
    }
}

impl Tells for Metrics {
    fn tell(&self) -> (&'static str, Json) {
        ("counts", json!(self.counts()))
    }
}

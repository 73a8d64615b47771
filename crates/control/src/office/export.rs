//! What an office counts: the version in force, what it is made of, and how long versions take to this node.

use super::Office;
use crate::book;
use crate::metrics::{Bounds, Exports, Exposition, Kind, Unit};

/// Upper bounds of how long a version takes to this node, in microseconds.
pub(super) const PROPAGATION: Bounds = [
    1_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

impl Exports for Office {
    fn export(&self, to: &mut Exposition) {
        let book = self.book();
        let help = "The version of the rules in force; 0 where they are not in a database of ours.";
        to.family("tidegate_rules_version", Kind::Gauge, help);
        to.sample("", &[], book.version());
        let help = "What the rules in force are made of.";
        to.family("tidegate_rules_entries", Kind::Gauge, help);
        for kind in book::Kind::ALL {
            to.sample("", &[("kind", kind.name())], book.all(kind, None).count() as u64);
        }
        let help =
            "From when a version is written, by its node's clock, until it is in force here.";
        to.family("tidegate_rules_propagation_seconds", Kind::Histogram, help);
        to.distribution(&[], &self.propagation.told(), Unit::Micros);
    }
}

//! Who hears of decisions and never answers: logs of violations, metrics.

use std::fmt;
use std::sync::Arc;

use tidegate_core::decision::AnsweredBy;
use tidegate_rules::{Facts, Rule, RuleSet};

use crate::decision::RuleReading;

/// Hears of every decision that charges, before it is answered: it must not wait for anything.
pub trait Observer: Send + Sync + fmt::Debug {
    /// A request was decided.
    fn decided(&self, decided: &Decided<'_, '_>);
}

/// A decision, and what it was about.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a, 'f> {
    /// The rules that it was decided under.
    pub rules: &'a Arc<RuleSet>,
    /// What was known of the request; [`RuleSet::complete`] adds what follows from it.
    pub facts: &'a Facts<'f>,
    /// Who answered.
    pub answered_by: AnsweredBy,
    pub(crate) readings: &'a [RuleReading],
}

impl<'a> Decided<'a, '_> {
    /// What each rule said that governs the request, in document order.
    pub fn readings(&self) -> impl Iterator<Item = (&'a Rule, &'a RuleReading)> {
        let rules = self.rules;
        self.readings.iter().map(move |reading| (&rules[reading.rule], reading))
    }

    /// The same with the places of the rules in their rule set.
    pub fn places(&self) -> impl Iterator<Item = (u32, &'a RuleReading)> {
        self.readings.iter().map(|reading| (reading.rule, reading))
    }
}

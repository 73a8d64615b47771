//! Which violations become lines of the log: the first few of each rule in a second. The rest is only counted, by
//! rule, and nothing is lost: what was heard is noted or counted.
//!
//! What a line says, and when it is written, is the business of [`lines`](super::lines).

use std::sync::Arc;

use tidegate_rules::{Facts, RuleSet};

use super::lines::Line;
use super::notes::{Page, Refusal};
use crate::violation::Identities;

/// The most that are noted in a second, however many rules there are, and the most bytes that they take.
const MOST: usize = 1_000;
const MOST_BYTES: usize = 1 << 20;

/// What is noted and counted since the last look.
#[derive(Default)]
pub(super) struct Sample {
    /// The most lines of one rule; none at all if it is nought.
    most: u32,
    sheets: Vec<Sheet>,
}

/// What happened under one rule set.
#[derive(Default)]
pub(super) struct Sheet {
    page: Page,
    /// By the place of the rule.
    counts: Vec<Count>,
}

#[derive(Clone, Copy, Default)]
struct Count {
    noted: u32,
    more: u64,
}

impl Sample {
    /// At most so many of each rule.
    pub(super) const fn of(most: u32) -> Self {
        Self { most, sheets: Vec::new() }
    }

    /// Hears of one.
    pub(super) fn put(&mut self, rules: &Arc<RuleSet>, refusal: &Refusal, facts: &Facts<'_>) {
        if self.most == 0 {
            return;
        }
        let (at, place) = (self.sheet(rules), refusal.place());
        if self.sheets[at].counts.len() <= place {
            self.sheets[at].counts.resize(place + 1, Count::default());
        }
        // Of very many nearly all are only counted: that they have room is not looked at.
        let is_noted = self.sheets[at].counts[place].noted < self.most && self.has_room();
        let Sheet { page, counts } = &mut self.sheets[at];
        if is_noted {
            counts[place].noted += 1;
            page.jot(*refusal, facts);
        } else {
            counts[place].more += 1;
        }
    }

    fn has_room(&self) -> bool {
        let sum = |of: fn(&Page) -> usize| -> usize {
            self.sheets.iter().map(|sheet| of(&sheet.page)).sum()
        };
        sum(Page::len) < MOST && sum(Page::bytes) < MOST_BYTES
    }

    /// Where the sheet of a rule set is. While rules are replaced there are two.
    fn sheet(&mut self, rules: &Arc<RuleSet>) -> usize {
        let is_for = |sheet: &Sheet| sheet.page.is_for(rules);
        self.sheets.iter().rposition(is_for).unwrap_or_else(|| {
            let mut sheet = Sheet::default();
            sheet.page.begin(rules);
            self.sheets.push(sheet);
            self.sheets.len() - 1
        })
    }

    /// What came since the last time.
    pub(super) fn take(&mut self) -> Vec<Sheet> {
        std::mem::take(&mut self.sheets)
    }
}

impl Sheet {
    /// What was noted, in order.
    pub(super) fn lines(&self, identities: Identities) -> impl Iterator<Item = Line> {
        self.page.lines(identities)
    }

    /// What was only counted, by the id of the rule.
    pub(super) fn more(&self) -> impl Iterator<Item = (&str, u64)> {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| count.more > 0);
        counted.filter_map(|(place, count)| Some((self.page.rule_id(place)?, count.more)))
    }
}

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
        let noted: usize = self.sheets.iter().map(|sheet| sheet.page.len()).sum();
        let bytes: usize = self.sheets.iter().map(|sheet| sheet.page.bytes()).sum();
        let room = noted < MOST && bytes < MOST_BYTES;
        let most = self.most;
        let sheet = self.sheet(rules);
        let place = refusal.place();
        if sheet.counts.len() <= place {
            sheet.counts.resize(place + 1, Count::default());
        }
        let count = &mut sheet.counts[place];
        if room && count.noted < most {
            count.noted += 1;
            sheet.page.jot(*refusal, facts);
        } else {
            count.more += 1;
        }
    }

    /// The sheet of a rule set. While rules are replaced there are two.
    fn sheet(&mut self, rules: &Arc<RuleSet>) -> &mut Sheet {
        let is_for = |sheet: &Sheet| sheet.page.is_for(rules);
        let at = self.sheets.iter().rposition(is_for).unwrap_or_else(|| {
            let mut sheet = Sheet::default();
            sheet.page.begin(rules);
            self.sheets.push(sheet);
            self.sheets.len() - 1
        });
        &mut self.sheets[at]
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

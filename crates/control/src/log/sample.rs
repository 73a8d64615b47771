//! Which violations become lines of the log: the first few of each rule in a second. The rest is only counted, by
//! rule, and nothing is lost: what was heard is noted or counted.
//!
//! What a line says, and when it is written, is the business of [`lines`](super::lines).

use std::sync::Arc;

use tidegate_rules::RuleSet;

use super::lines::Line;
use super::notes::Page;
use crate::violation::Identities;

/// The most that are noted in a second, however many rules there are, and the most bytes that they take.
const MOST: usize = 1_000;
const MOST_BYTES: usize = 1 << 20;

/// What is noted and counted since the last look.
#[derive(Default)]
pub(super) struct Sample {
    /// The most lines of one rule.
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

    /// Looks at what decisions jotted down.
    pub(super) fn read(&mut self, page: &Page) {
        let Some(rules) = page.rules() else { return };
        let on = self.sheet(rules);
        for (at, place) in page.places().enumerate() {
            // Of very many nearly all are only counted: that they have room is not looked at.
            let is_noted = self.sheets[on].count(place).noted < self.most && self.has_room();
            let sheet = &mut self.sheets[on];
            if is_noted {
                sheet.count(place).noted += 1;
                sheet.page.copy_from(page, at);
            } else {
                sheet.count(place).more += 1;
            }
        }
    }

    /// Counts one that nobody will look at.
    pub(super) fn miss(&mut self, rules: &Arc<RuleSet>, place: usize) {
        let on = self.sheet(rules);
        self.sheets[on].count(place).more += 1;
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
    fn count(&mut self, place: usize) -> &mut Count {
        if self.counts.len() <= place {
            self.counts.resize(place + 1, Count::default());
        }
        &mut self.counts[place]
    }

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

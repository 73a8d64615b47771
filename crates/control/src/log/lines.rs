//! Violations as lines of the log. Each line says how many of its rule were left out since the one before; a rule
//! that falls silent while some were left out is told once more, so that lines and left-out together are all.
//!
//! How a line is written is the business of whoever hears it.

use std::collections::HashMap;

use parking_lot::Mutex;
use tidegate_core::decision::{Retry, Verdict};
use tidegate_rules::Door;

use super::notes::Page;
use super::sample::{Sample, Sheet};
use crate::violation::{Identities, Violation};

/// A violation with what the log says of it besides what is on record. Identities are hashed, always.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What is on record too.
    pub violation: Violation,
    /// What the rule said.
    pub verdict: Verdict,
    /// How the rule is meant.
    pub mode: &'static str,
    /// How the rule counts; none if it refuses everybody.
    pub algorithm: Option<&'static str>,
    /// What it admits.
    pub limit: Option<u64>,
    /// When to come back.
    pub retry: Retry,
    /// Where it was asked.
    pub door: Door,
    /// With what method, if that is known.
    pub method: Option<String>,
    /// How many of the rule were left out since its last line.
    pub suppressed: u64,
}

/// What the log is to say.
#[derive(Clone, Copy, Debug)]
pub enum Said<'a> {
    /// There was a violation.
    One(&'a Line),
    /// A rule that has said nothing for a second had left some out.
    LeftOut {
        /// Its id.
        rule: &'a str,
        /// How many.
        count: u64,
    },
}

/// Tells somebody.
pub(super) struct Teller {
    most: u32,
    identities: Identities,
    hear: Box<dyn Fn(Said<'_>) + Send + Sync>,
    heard: Mutex<Heard>,
}

/// What is to be told.
struct Heard {
    sample: Sample,
    /// What was dropped before somebody looked at it.
    missed: Vec<Sheet>,
    /// How many were left out since the last line, by rule.
    owed: HashMap<String, u64>,
}

impl Teller {
    pub(super) fn new(
        most: u32,
        identities: Identities,
        hear: impl Fn(Said<'_>) + Send + Sync + 'static,
    ) -> Self {
        let identities = Identities { plain: false, ..identities };
        let heard = Heard { sample: Sample::of(most), missed: Vec::new(), owed: HashMap::new() };
        Self { most, identities, hear: Box::new(hear), heard: Mutex::new(heard) }
    }

    /// Looks at what decisions jotted down.
    pub(super) fn look(&self, page: &Page) {
        self.heard.lock().sample.read(page);
    }

    /// Hears of those that nobody looked at.
    pub(super) fn miss(&self, missed: Vec<Sheet>) {
        self.heard.lock().missed.extend(missed);
    }

    /// Tells what came in a second.
    pub(super) fn tell(&self) {
        let Heard { sample, missed, owed } = &mut *self.heard.lock();
        let (sheets, missed) = (sample.take(), std::mem::take(missed));
        let mut told: HashMap<String, u32> = HashMap::new();
        for mut line in sheets.iter().flat_map(|sheet| sheet.lines(self.identities)) {
            let rule = &line.violation.rule;
            let lines = told.entry(rule.clone()).or_default();
            if *lines == self.most {
                // Variants of a rule, and rules before and after a reload, are one rule to the reader.
                *owed.entry(rule.clone()).or_default() += 1;
                continue;
            }
            *lines += 1;
            line.suppressed = owed.remove(rule).unwrap_or(0);
            (self.hear)(Said::One(&line));
        }
        let silent = owed.extract_if(|rule, _| !told.contains_key(rule));
        silent.for_each(|(rule, count)| (self.hear)(Said::LeftOut { rule: &rule, count }));
        for (rule, more) in sheets.iter().chain(&missed).flat_map(Sheet::more) {
            *owed.entry(rule.to_owned()).or_default() += more;
        }
    }

    /// Tells what came last, and what nobody waits for any more.
    pub(super) fn finish(&self) {
        self.tell();
        self.tell();
    }
}

//! The nodes' own logs of their decisions, read while the nodes write them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;
use tidegate_simulator::{LeasedRule, ObservedAdmission, ObservedLedger};

/// A log file, and its last line if that is not complete yet.
struct LogFile {
    file: File,
    rest: Vec<u8>,
}

/// What all nodes decided.
pub(crate) struct DecisionLogs {
    files: Vec<LogFile>,
    pub(crate) ledgers: BTreeMap<&'static str, ObservedLedger>,
    answered: BTreeMap<String, u64>,
}

impl DecisionLogs {
    pub(crate) fn open(paths: &[impl AsRef<Path>], rules: &[LeasedRule]) -> Self {
        let open = |path| LogFile { file: File::open(path).unwrap(), rest: Vec::new() };
        Self {
            files: paths.iter().map(open).collect(),
            ledgers: rules.iter().map(|rule| (rule.id, ObservedLedger::new(rule))).collect(),
            answered: BTreeMap::new(),
        }
    }

    /// How many requests the nodes admitted on the answer of `by`.
    pub(crate) fn answered_by(&self, by: &str) -> u64 {
        self.answered.get(by).copied().unwrap_or_default()
    }

    /// Reads what the nodes have written since the last call.
    pub(crate) fn read(&mut self) {
        let mut lines = Vec::new();
        for LogFile { file, rest } in &mut self.files {
            file.read_to_end(rest).unwrap();
            let complete = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            lines.extend(rest.drain(..complete));
        }
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let line: Value = serde_json::from_slice(line).unwrap();
            if line["target"] == "tidegate::decision" && line["message"] == "allowed" {
                self.admit(&line);
            }
        }
    }

    fn admit(&mut self, line: &Value) {
        let number = |name: &str| line[name].as_u64().unwrap();
        let (at, took) = (number("at_us"), number("took_us"));
        // Another clock measures durations, and both count whole microseconds.
        let earliest = at - took - took / 1_000 - 3;
        let admission = ObservedAdmission { earliest, latest: at, cost: number("cost") };
        self.ledgers.get_mut(line["rule"].as_str().unwrap()).unwrap().admit(admission);
        let by = line["answered_by"].as_str().unwrap().to_owned();
        *self.answered.entry(by).or_default() += 1;
    }
}

//! Markdown tables, medians, and a description of the machine.

use std::fmt::Write as _;

/// A table with a header row; the first column is text, the others numbers.
#[derive(Debug)]
pub struct MarkdownTable(String);

impl MarkdownTable {
    /// A table with these columns.
    #[must_use]
    pub fn new(columns: &[&str]) -> Self {
        let rule = columns.iter().map(|_| "---:").collect::<Vec<_>>().join("|");
        Self(format!(
            "| {} |\n|:{}|\n",
            columns.join(" | "),
            &rule[..rule.len()].replacen("---:", "---", 1)
        ))
    }

    /// Adds a row.
    pub fn push_row(&mut self, cells: &[String]) {
        // Writing to a string cannot fail.
        _ = writeln!(self.0, "| {} |", cells.join(" | "));
    }
}

impl std::fmt::Display for MarkdownTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The median of the values; 0 if there are none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Formats a rate in millions with two decimals.
#[must_use]
pub fn format_millions(rate: f64) -> String {
    format!("{:.2}", rate / 1e6)
}

/// Resident memory of this process, in bytes.
#[must_use]
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    let kilobytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    kilobytes.unwrap_or_default() * 1_024
}

/// One line with the CPU model, the number of cores and the load average.
#[must_use]
pub fn machine_summary() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let load = read("/proc/loadavg");
    let load = load.split_whitespace().next().unwrap_or("?");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "{}, {cores} cores, load average {load} at the start",
        model.unwrap_or("unknown processor")
    )
}

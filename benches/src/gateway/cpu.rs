//! CPU time of a process tree.

use std::collections::HashMap;
use std::fs;

/// CPU time used so far by a process and its descendants, over all threads, in microseconds.
///
/// Threads that have ended are not included: no contender ends a thread during a measurement.
#[must_use]
pub fn cpu_time_us(pid: u32) -> f64 {
    let parents: HashMap<u32, u32> = numeric_entries("/proc")
        .filter_map(|pid| {
            Some((pid, parse_parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))
        })
        .collect();
    let mut tree = vec![pid];
    let mut next = 0;
    while let Some(known) = tree.get(next).copied() {
        tree.extend(parents.iter().filter(|(_, parent)| **parent == known).map(|(pid, _)| *pid));
        next += 1;
    }
    let threads = tree.iter().flat_map(|pid| {
        let tasks = format!("/proc/{pid}/task");
        numeric_entries(&tasks).map(move |thread| format!("{tasks}/{thread}/schedstat"))
    });
    let nanos = threads.filter_map(|file| parse_cpu_nanos(&fs::read_to_string(file).ok()?));
    nanos.sum::<u64>() as f64 / 1_000.0
}

/// The entries of a folder whose names are numbers.
fn numeric_entries(folder: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The parent process in a line of `/proc/PID/stat` (proc(5)). The command name, in parentheses,
/// may contain any character.
fn parse_parent(text: &str) -> Option<u32> {
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// CPU time in nanoseconds: the first field of `/proc/PID/task/TID/schedstat` (sched-stats.rst of
/// the kernel).
///
/// `stat` has a resolution of 10 ms, too coarse for a turn at a fixed rate.
fn parse_cpu_nanos(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_line_parses_any_name() {
        let line = "12 (a ) b) S 7 12 12 0 -1 4194304 1 2 3 4 150 25 9 9 20 0 3 0 99 1 1";
        assert_eq!(parse_parent(line), Some(7));
        assert_eq!(parse_cpu_nanos("4223177 2057735 19\n"), Some(4_223_177));
    }
}

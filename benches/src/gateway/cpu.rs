//! What processor time a program has taken.

use std::collections::HashMap;
use std::fs;

/// Microseconds that a process, its threads and the processes that it started have taken so far. Threads that have ended are
/// not in it: none of those who are compared ends any while it is measured.
#[must_use]
pub fn taken_us(pid: u32) -> f64 {
    let parents: HashMap<u32, u32> = numbers_in("/proc")
        .filter_map(|pid| {
            Some((pid, parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))
        })
        .collect();
    let mut ours = vec![pid];
    let mut next = 0;
    while let Some(known) = ours.get(next).copied() {
        ours.extend(parents.iter().filter(|(_, parent)| **parent == known).map(|(pid, _)| *pid));
        next += 1;
    }
    let threads = ours.iter().flat_map(|pid| {
        let tasks = format!("/proc/{pid}/task");
        numbers_in(&tasks).map(move |thread| format!("{tasks}/{thread}/schedstat"))
    });
    let nanos = threads.filter_map(|file| on_processor(&fs::read_to_string(file).ok()?));
    nanos.sum::<u64>() as f64 / 1_000.0
}

/// The files of a folder that are called by a number.
fn numbers_in(folder: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The parent in a line of `/proc/PID/stat` (proc(5)). The name, in brackets, may hold anything.
fn parent(text: &str) -> Option<u32> {
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The nanoseconds in `/proc/PID/task/TID/schedstat` (the kernel's sched-stats.rst): `stat` counts in hundredths of a second,
/// of which few pass in a turn at a fixed rate.
fn on_processor(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_name() {
        let line = "12 (a ) b) S 7 12 12 0 -1 4194304 1 2 3 4 150 25 9 9 20 0 3 0 99 1 1";
        assert_eq!(parent(line), Some(7));
        assert_eq!(on_processor("4223177 2057735 19\n"), Some(4_223_177));
    }
}

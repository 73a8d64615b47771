//! What processor time a program has taken.

use std::collections::HashMap;

/// The kernel's unit in `/proc/PID/stat` (`USER_HZ`), the same on all machines of ours.
const TICK_US: u64 = 10_000;

/// Microseconds that a process, its threads and the processes that it started have taken so far.
#[must_use]
pub fn taken_us(pid: u32) -> u64 {
    let all = processes();
    let mut ours = vec![pid];
    let mut next = 0;
    while let Some(parent) = ours.get(next).copied() {
        ours.extend(all.iter().filter(|(_, stat)| stat.parent == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    ours.iter().filter_map(|pid| all.get(pid)).map(|stat| stat.ticks).sum::<u64>() * TICK_US
}

struct Stat {
    parent: u32,
    ticks: u64,
}

fn processes() -> HashMap<u32, Stat> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, parse(&text)?))
    })
    .collect()
}

/// Reads a line of `/proc/PID/stat` (proc(5)). The name, in brackets, may hold anything.
fn parse(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let parent = u32::try_from(number(1)?).ok()?;
    Some(Stat { parent, ticks: number(11)? + number(12)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_name() {
        let line = "12 (a ) b) S 7 12 12 0 -1 4194304 1 2 3 4 150 25 9 9 20 0 3 0 99 1 1";
        let stat = parse(line).unwrap();
        assert_eq!((stat.parent, stat.ticks), (7, 175));
    }
}

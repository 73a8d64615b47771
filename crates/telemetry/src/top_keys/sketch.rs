//! Which of very many keys occur most, with room for a few: the space-saving sketch (Metwally, Agrawal, El Abbadi:
//! "Efficient computation of frequent and top-k elements in data streams", 2005).
//!
//! With room for `K` entries, after `N` occurrences: a key that is there occurred at most `count` and at least
//! `count - error` times; one that is not there occurred at most [`Sketch::floor`] times, which is at most `N / K`.
//! So every key with more than `N / K` occurrences is there.

use tidegate_core::key::Fingerprint;

/// The keys that occur most, as far as there is room. `T` is kept of each as long as it is there.
#[derive(Debug)]
pub(super) struct Sketch<T> {
    capacity: usize,
    /// In no order: to look at all of them is fast enough for so few.
    entries: Vec<SketchEntry<T>>,
}

/// One key.
#[derive(Clone, Debug)]
pub(super) struct SketchEntry<T> {
    pub(super) key: Fingerprint,
    /// How often it occurred, at most.
    pub(super) count: u64,
    /// By how much that may be too high.
    pub(super) error: u64,
    pub(super) value: T,
}

impl<T> Sketch<T> {
    /// An empty one with room for so many keys.
    pub(super) const fn new(capacity: usize) -> Self {
        Self { capacity, entries: Vec::new() }
    }

    pub(super) fn find(&self, key: Fingerprint) -> Option<&SketchEntry<T>> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// How often a key occurred at most that is not there.
    pub(super) fn floor(&self) -> u64 {
        if self.entries.len() < self.capacity {
            return 0;
        }
        self.entries.iter().map(|entry| entry.count).min().unwrap_or(0)
    }

    /// A key occurred so many times. When it was not there, `make` is told the error that its count begins with.
    pub(super) fn add(
        &mut self,
        key: Fingerprint,
        times: u64,
        make: impl FnOnce(u64) -> T,
    ) -> Option<&mut SketchEntry<T>> {
        if let Some(at) = self.entries.iter().position(|entry| entry.key == key) {
            let entry = &mut self.entries[at];
            entry.count += times;
            return Some(entry);
        }
        if self.entries.len() < self.capacity {
            self.entries.push(SketchEntry { key, count: times, error: 0, value: make(0) });
            return self.entries.last_mut();
        }
        let least = self.entries.iter_mut().min_by_key(|entry| entry.count)?;
        let error = least.count;
        *least = SketchEntry { key, count: error + times, error, value: make(error) };
        Some(least)
    }
}

/// What two sketches of two streams tell of both together, in no order. The bounds hold for the sum: a key that only
/// one of them has may have occurred in the other as often as one that is not there.
pub(super) fn merge<'s, T>(
    one: &'s Sketch<T>,
    other: &'s Sketch<T>,
) -> impl Iterator<Item = SketchEntry<&'s T>> {
    let sum = |entry: &'s SketchEntry<T>, beside: &Sketch<T>| {
        let there = beside.find(entry.key).map(|twin| (twin.count, twin.error));
        let (count, error) = there.unwrap_or_else(|| (beside.floor(), beside.floor()));
        let (count, error) = (entry.count + count, entry.error + error);
        SketchEntry { key: entry.key, count, error, value: &entry.value }
    };
    let both = one.entries.iter().map(move |entry| sum(entry, other));
    let rest = other.entries.iter().filter(|entry| one.find(entry.key).is_none());
    both.chain(rest.map(move |entry| sum(entry, one)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const ROOM: usize = 8;

    fn key(number: u64) -> Fingerprint {
        Fingerprint { hi: number, lo: !number }
    }

    fn build_sketch(stream: &[(u64, u64)]) -> Sketch<()> {
        let mut sketch = Sketch::new(ROOM);
        for (number, times) in stream {
            sketch.add(key(*number), *times, |_| ());
        }
        sketch
    }

    fn exact_counts(streams: &[&[(u64, u64)]]) -> HashMap<u64, u64> {
        let mut counts = HashMap::new();
        for (number, times) in streams.iter().copied().flatten() {
            *counts.entry(*number).or_default() += times;
        }
        counts
    }

    /// What is promised of entries, held beside exact counts.
    fn check_bounds(
        told: &HashMap<u64, (u64, u64)>,
        counts: &HashMap<u64, u64>,
    ) -> Result<(), String> {
        for (number, (count, error)) in told {
            let truth = counts.get(number).copied().unwrap_or(0);
            if truth > *count || truth < count - error {
                return Err(format!("{number}: {truth} is not in {count} - {error}"));
            }
        }
        let all: u64 = counts.values().sum();
        let frequent = counts.iter().filter(|(_, count)| **count * ROOM as u64 > all);
        for (number, count) in frequent {
            if !told.contains_key(number) {
                return Err(format!("{number}, {count} times of {all}, is not there"));
            }
        }
        Ok(())
    }

    fn entry_counts<'s, T: 's>(
        entries: impl Iterator<Item = SketchEntry<T>>,
    ) -> HashMap<u64, (u64, u64)> {
        entries.map(|entry| (entry.key.hi, (entry.count, entry.error))).collect()
    }

    /// Few keys that come often, among many that come seldom.
    fn streams() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let number = prop_oneof![0_u64..4, 0_u64..20, 0_u64..1_000];
        prop::collection::vec((number, 1_u64..20), 0..400)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn sketch_bounds_hold_for_one_stream(stream in streams()) {
            let sketch = build_sketch(&stream);
            let told = entry_counts(sketch.entries.iter().cloned());
            prop_assert_eq!(check_bounds(&told, &exact_counts(&[&stream])), Ok(()));
            let all: u64 = stream.iter().map(|(_, times)| times).sum();
            prop_assert!(sketch.floor() <= all / ROOM as u64);
        }

        #[test]
        fn sketch_bounds_hold_after_merge(one in streams(), other in streams()) {
            let (first, second) = (build_sketch(&one), build_sketch(&other));
            let told = entry_counts(merge(&first, &second));
            prop_assert_eq!(check_bounds(&told, &exact_counts(&[&one, &other])), Ok(()));
        }
    }
}

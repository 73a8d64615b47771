//! The space-saving sketch, which finds the most frequent of very many keys in fixed memory
//! (Metwally, Agrawal, El Abbadi: "Efficient computation of frequent and top-k elements in data
//! streams", 2005).
//!
//! With a capacity of `K` entries, after `N` occurrences:
//! - A key in the sketch occurred at most `count` and at least `count - error` times.
//! - A key not in the sketch occurred at most [`Sketch::floor`] times, which is at most `N / K`.
//! - So the sketch contains every key with more than `N / K` occurrences.

use tidegate_core::key::Fingerprint;

/// The most frequent keys, up to the capacity. Each entry holds a `T`, dropped with the entry.
#[derive(Debug)]
pub(super) struct Sketch<T> {
    capacity: usize,
    /// Unordered: a linear search is fast enough for this few entries.
    entries: Vec<SketchEntry<T>>,
}

/// A key in the sketch.
#[derive(Clone, Debug)]
pub(super) struct SketchEntry<T> {
    pub(super) key: Fingerprint,
    /// Upper bound of the number of occurrences.
    pub(super) count: u64,
    /// Maximum error of `count`.
    pub(super) error: u64,
    pub(super) value: T,
}

impl<T> Sketch<T> {
    /// Creates an empty sketch.
    pub(super) const fn new(capacity: usize) -> Self {
        Self { capacity, entries: Vec::new() }
    }

    pub(super) fn find(&self, key: Fingerprint) -> Option<&SketchEntry<T>> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Upper bound of the occurrences of a key that is not in the sketch.
    pub(super) fn floor(&self) -> u64 {
        if self.entries.len() < self.capacity {
            return 0;
        }
        self.entries.iter().map(|entry| entry.count).min().unwrap_or(0)
    }

    /// Adds `times` occurrences of a key. For a new entry, `make` gets its error and returns its
    /// value. Returns `None` only if the capacity is 0.
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

/// Merges the sketches of two streams; the entries are unordered. The bounds hold for the sum: a
/// key that is missing in one sketch may have occurred up to [`Sketch::floor`] times in that
/// stream.
pub(super) fn merge<'s, T>(
    one: &'s Sketch<T>,
    other: &'s Sketch<T>,
) -> impl Iterator<Item = SketchEntry<&'s T>> {
    let sum = |entry: &'s SketchEntry<T>, sketch: &Sketch<T>| {
        let found = sketch.find(entry.key).map(|twin| (twin.count, twin.error));
        let (count, error) = found.unwrap_or_else(|| (sketch.floor(), sketch.floor()));
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

    const CAPACITY: usize = 8;

    fn key(number: u64) -> Fingerprint {
        Fingerprint { hi: number, lo: !number }
    }

    fn build_sketch(stream: &[(u64, u64)]) -> Sketch<()> {
        let mut sketch = Sketch::new(CAPACITY);
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

    /// Compares entries with exact counts.
    fn check_bounds(
        entries: &HashMap<u64, (u64, u64)>,
        counts: &HashMap<u64, u64>,
    ) -> Result<(), String> {
        for (number, (count, error)) in entries {
            let truth = counts.get(number).copied().unwrap_or(0);
            if truth > *count || truth < count - error {
                return Err(format!("key {number}: {truth} is outside of {count} - {error}"));
            }
        }
        let all: u64 = counts.values().sum();
        let frequent = counts.iter().filter(|(_, count)| **count * CAPACITY as u64 > all);
        for (number, count) in frequent {
            if !entries.contains_key(number) {
                return Err(format!("key {number}, {count} of {all} occurrences, is missing"));
            }
        }
        Ok(())
    }

    fn entry_counts<'s, T: 's>(
        entries: impl Iterator<Item = SketchEntry<T>>,
    ) -> HashMap<u64, (u64, u64)> {
        entries.map(|entry| (entry.key.hi, (entry.count, entry.error))).collect()
    }

    /// A few frequent keys among many rare ones.
    fn streams() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let number = prop_oneof![0_u64..4, 0_u64..20, 0_u64..1_000];
        prop::collection::vec((number, 1_u64..20), 0..400)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn sketch_bounds_hold_for_one_stream(stream in streams()) {
            let sketch = build_sketch(&stream);
            let entries = entry_counts(sketch.entries.iter().cloned());
            prop_assert_eq!(check_bounds(&entries, &exact_counts(&[&stream])), Ok(()));
            let all: u64 = stream.iter().map(|(_, times)| times).sum();
            prop_assert!(sketch.floor() <= all / CAPACITY as u64);
        }

        #[test]
        fn sketch_bounds_hold_after_merge(one in streams(), other in streams()) {
            let (first, second) = (build_sketch(&one), build_sketch(&other));
            let entries = entry_counts(merge(&first, &second));
            prop_assert_eq!(check_bounds(&entries, &exact_counts(&[&one, &other])), Ok(()));
        }
    }
}

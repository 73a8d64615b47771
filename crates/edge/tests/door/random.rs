//! Random input, new with every run. What failed is in the message of the failure.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const METHODS: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"];

/// A number of random values.
pub(crate) fn some<S: Strategy>(count: usize, strategy: &S) -> Vec<S::Value> {
    let mut runner = TestRunner::default();
    let mut one = || strategy.new_tree(&mut runner).unwrap().current();
    (0..count).map(|_| one()).collect()
}

/// A standard method, and the same in some case.
#[derive(Debug)]
pub(crate) struct Spelling {
    pub(crate) method: &'static str,
    pub(crate) spelt: String,
}

/// Some methods in random cases.
pub(crate) fn spellings(count: usize) -> Vec<Spelling> {
    let strategy = (prop::sample::select(&METHODS[..]), any::<u8>());
    let spell = |(method, lower): (&'static str, u8)| {
        let spelt = method.bytes().enumerate().map(|(at, letter)| {
            char::from(if lower >> at & 1 == 1 { letter.to_ascii_lowercase() } else { letter })
        });
        Spelling { method, spelt: spelt.collect() }
    };
    some(count, &strategy).into_iter().map(spell).collect()
}

//! Bytes that were right once: what fuzzing without a coverage-guided fuzzer starts from.

use proptest::prelude::*;

/// One change to some bytes.
#[derive(Clone, Debug)]
pub enum Damage {
    /// A byte becomes another.
    Set(u8),
    /// Bits of a byte are flipped.
    Flip(u8),
    /// Bytes come in between.
    Insert(Vec<u8>),
    /// So many bytes go.
    Remove(usize),
    /// What follows comes so many times more.
    Repeat(usize),
    /// Nothing follows.
    Cut,
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        any::<u8>().prop_map(Damage::Set),
        (0_u8..8).prop_map(|bit| Damage::Flip(1 << bit)),
        prop::collection::vec(any::<u8>(), 1..8).prop_map(Damage::Insert),
        (1_usize..16).prop_map(Damage::Remove),
        (1_usize..64).prop_map(Damage::Repeat),
        Just(Damage::Cut),
    ]
}

/// Bytes with all of the damages, one after the other.
#[must_use]
pub fn damaged(mut bytes: Vec<u8>, all: &[(prop::sample::Index, Damage)]) -> Vec<u8> {
    for (at, damage) in all {
        if bytes.is_empty() {
            return bytes;
        }
        let at = at.index(bytes.len());
        match damage {
            Damage::Set(byte) => bytes[at] = *byte,
            Damage::Flip(bit) => bytes[at] ^= bit,
            Damage::Insert(more) => drop(bytes.splice(at..at, more.iter().copied())),
            Damage::Remove(count) => drop(bytes.drain(at..bytes.len().min(at + count))),
            Damage::Repeat(times) => {
                let tail = bytes[at..].to_vec();
                (0..*times).take_while(|_| tail.len() < 200).for_each(|_| bytes.extend(&tail));
            }
            Damage::Cut => bytes.truncate(at),
        }
    }
    bytes
}

/// A few damages, each at its place.
pub fn damages() -> impl Strategy<Value = Vec<(prop::sample::Index, Damage)>> {
    prop::collection::vec((any::<prop::sample::Index>(), damage()), 0..6)
}

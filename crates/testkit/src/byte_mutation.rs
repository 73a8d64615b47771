//! Mutations of valid input, for fuzzing without a coverage-guided fuzzer.

use proptest::prelude::*;

/// A mutation at a position in the input.
#[derive(Clone, Debug)]
pub enum ByteMutation {
    /// Replaces a byte.
    Set(u8),
    /// Flips bits of a byte.
    Flip(u8),
    /// Inserts bytes.
    Insert(Vec<u8>),
    /// Removes this many bytes.
    Remove(usize),
    /// Repeats the rest this many more times.
    Repeat(usize),
    /// Removes the rest.
    Cut,
}

fn byte_mutation() -> impl Strategy<Value = ByteMutation> {
    prop_oneof![
        any::<u8>().prop_map(ByteMutation::Set),
        (0_u8..8).prop_map(|bit| ByteMutation::Flip(1 << bit)),
        prop::collection::vec(any::<u8>(), 1..8).prop_map(ByteMutation::Insert),
        (1_usize..16).prop_map(ByteMutation::Remove),
        (1_usize..64).prop_map(ByteMutation::Repeat),
        Just(ByteMutation::Cut),
    ]
}

/// Applies all mutations in order.
#[must_use]
pub fn apply_mutations(mut bytes: Vec<u8>, all: &[(prop::sample::Index, ByteMutation)]) -> Vec<u8> {
    for (at, mutation) in all {
        if bytes.is_empty() {
            return bytes;
        }
        let at = at.index(bytes.len());
        match mutation {
            ByteMutation::Set(byte) => bytes[at] = *byte,
            ByteMutation::Flip(bit) => bytes[at] ^= bit,
            ByteMutation::Insert(more) => drop(bytes.splice(at..at, more.iter().copied())),
            ByteMutation::Remove(count) => drop(bytes.drain(at..bytes.len().min(at + count))),
            ByteMutation::Repeat(times) => {
                let tail = bytes[at..].to_vec();
                (0..*times).take_while(|_| tail.len() < 200).for_each(|_| bytes.extend(&tail));
            }
            ByteMutation::Cut => bytes.truncate(at),
        }
    }
    bytes
}

/// A few mutations with their positions.
pub fn byte_mutations() -> impl Strategy<Value = Vec<(prop::sample::Index, ByteMutation)>> {
    prop::collection::vec((any::<prop::sample::Index>(), byte_mutation()), 0..6)
}

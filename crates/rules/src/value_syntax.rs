//! Parsers for the syntax within values: durations, rates, shorthand limits and sizes.

pub mod duration;
pub(crate) mod percentage;
pub(crate) mod rate;
pub(crate) mod shorthand;
pub(crate) mod size;

//! The small languages inside a document's values: durations, rates, shorthand limits, sizes.

pub mod duration;
pub(crate) mod rate;
pub(crate) mod shorthand;
pub(crate) mod size;

//! What the other crates are proved with: an exact oracle of the five algorithms, histories to run
//! through both, and the simplest table of states there is.
//!
//! Nothing here is part of the program. The oracle shares core's vocabulary (`Algorithm`, `Fit`,
//! `Gauge`) and none of its arithmetic.

pub mod bound;
pub mod conformance;
pub mod history;
pub mod oracle;
pub mod property;
pub mod quotas;
pub mod strikes;
pub mod table;

//! The decision: what the rules and a store say to a request, as one answer.
//!
//! The engine knows the [`Store`](tidegate_core::store::Store) face, never a store; it knows
//! [`Facts`](tidegate_rules::Facts), never a wire. It reads no clock: a reading tells the store's.

mod ad_hoc;
mod at_once;
mod bill;
mod carry;
mod client;
mod debt;
mod decision;
mod explain;
mod failure;
mod limiter;
mod local;
mod observe;
mod plan;
mod receipt;
mod refund;
mod settle;
mod share;
mod slots;
mod together;
mod turn;

pub use ad_hoc::{AdHoc, NoPolicy};
pub use bill::Bill;
pub use client::ClientCounters;
pub use decision::{Decision, RuleReading};
pub use explain::{Explained, Explanation};
pub use limiter::Limiter;
pub use local::NoLocal;
pub use observe::{Decided, Observer, Stopwatch};
pub use slots::Slots;
pub use together::{Asked, Question, Unanswered};
pub use turn::Turn;

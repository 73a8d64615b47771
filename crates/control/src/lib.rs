//! The rule office: where rules are kept, who changed them when and why, and how every node of a
//! fleet comes to know.
//!
//! A [`Book`] is everything that rules are made of at one version. A [`Repository`] keeps books: each
//! change is one transaction, one new version, and on record with what was there before, so that any
//! version can be gone back to. Nothing here decides a request.

mod book;
mod edit;
mod repository;
mod violation;

pub use book::{Book, Kept, Kind};
pub use edit::{Change, Edit, Entry, Signed};
pub use repository::{Refused, Repository, Signal, migrate, open};
pub use violation::{Page, Violation, ViolationQuery, ViolationRow};

//! Who is limited: what is known of a request, the rules document as it was typed, and the compiled
//! rules that a request is matched against.
//!
//! A [`Document`] is parsed from YAML (or JSON), then compiled into a [`RuleSet`]; every problem of
//! a document is told at once, with its place and what to write instead. Nothing here counts,
//! reads a clock, opens a file or knows a wire format.
//!
//! ```
//! use tidegate_core::key::Secret;
//! use tidegate_rules::{Document, Facts, Matches, RuleSet};
//!
//! let source = r#"
//! rules:
//!   - id: free-writes
//!     match: { tier: free, endpoint: "POST /api/*" }
//!     key_by: api_key
//!     limit: 10/s burst 20
//! "#;
//! let document = Document::parse("rules.yaml", source)?;
//! let set = RuleSet::compile(&document, Secret::UNSET)?;
//!
//! let mut facts = Facts::new();
//! for (name, value) in [("tier", "free"), ("method", "POST"), ("path", "/api/items")] {
//!     facts.push(name, value);
//! }
//! set.complete(&mut facts);
//! let mut found = Matches::new();
//! set.matching(&facts, &mut found);
//! assert_eq!(set.rules()[found[0] as usize].id(), "free-writes");
//! # Ok::<(), tidegate_rules::problem::Problems>(())
//! ```

mod condition;
mod cost;
pub mod decode;
mod document;
mod door;
mod facts;
pub mod import;
mod index;
mod key;
mod paths;
pub mod problem;
mod records;
mod rule;
mod ruleset;
mod secrets;
mod text;
pub mod yaml;

pub use cost::{BodyBytes, Cost};
pub use document::identity;
pub use document::{Declarations, Document, MAX_DOCUMENT_BYTES, UnsuppliedFact};
pub use door::Door;
pub use facts::{Entry, Facts};
pub use key::Whose;
pub use paths::Paths;
pub use records::{Allowance, OverrideRecord, RecordProblem, Records, SubjectRecord};
pub use rule::{ChargeWhen, FIRST_GENERATION, Limit, Mode, OnChange, OnFail, Rule};
pub use ruleset::{Beside, BroughtLimit, ClientCounter, Matches, Owner, Predecessor, RuleSet};
pub use text::duration;

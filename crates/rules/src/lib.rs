//! Rules: the facts known about a request, the rules document as written, and the compiled rule set
//! that requests are matched against.
//!
//! A [`Document`] is parsed from YAML (or JSON) and compiled into a [`RuleSet`]. All errors of a
//! document are reported at once, each with its location and a suggested fix. This crate does not
//! count requests, read a clock, open files or know a wire format.
//!
//! ```
//! use tidegate_core::key::Secret;
//! use tidegate_rules::{Document, Facts, MatchedRules, RuleSet};
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
//! set.enrich(&mut facts);
//! let mut found = MatchedRules::new();
//! set.match_rules(&facts, &mut found);
//! assert_eq!(set.rules()[found[0] as usize].id(), "free-writes");
//! # Ok::<(), tidegate_rules::diagnostic::DocumentError>(())
//! ```

mod api_kind;
mod condition;
mod consistency;
mod cost;
pub mod decode;
pub mod diagnostic;
mod document;
mod facts;
pub mod import;
mod index;
mod key;
mod path_normalization;
mod records;
mod regions;
mod rule;
mod ruleset;
mod secrets;
mod value_syntax;
pub mod yaml;
#[cfg(feature = "yaml-writer")]
pub mod yaml_writer;

pub use api_kind::ApiKind;
pub use consistency::{Consistency, LeasedLimit, SplitLimit};
pub use cost::{BodyBytes, CostSource};
pub use document::identity;
pub use document::{Document, FactDeclarations, MAX_DOCUMENT_BYTES, UnsuppliedFact};
pub use facts::{DescriptorPair, Facts};
pub use key::RequestKeys;
pub use path_normalization::PathNormalization;
pub use records::{ExternalRecords, OverrideLimit, OverrideRecord, RecordError, SubjectRecord};
pub use regions::{
    BorrowTerms, LendingShortage, RegionLender, RegionShares, RegionalLimit, is_region_name,
};
pub use rule::{
    ChargeWhen, FIRST_GENERATION, OnChange, OnFail, Rule, RuleLimit, RuleMode, SplitPart,
};
pub use ruleset::{
    ClientCounter, ExtensionKey, InlineLimit, MatchedRules, RulePredecessor, RuleSet,
    RuleSetExtensions,
};
pub use value_syntax::duration;
pub use value_syntax::percentage::Percentage;

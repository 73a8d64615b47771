//! What callers ask, checked as it is read: nothing is decided on a request that is wrong anywhere.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::error::Category;
use tidegate_rules::Facts;

use super::facts;

/// The most checks in one call.
pub const MAX_CHECKS: usize = 1_000;

/// How much of a caller's own text an error repeats, in characters.
const MAX_REPEATED: usize = 200;

/// Decide this: `{"facts":{…},"cost":1}`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check<'a> {
    /// What is known of the request.
    #[serde(borrow, deserialize_with = "facts::deserialize")]
    pub facts: Box<Facts<'a>>,
    /// What it costs; 1 where it does not say.
    #[serde(default = "one", deserialize_with = "cost")]
    pub cost: u32,
}

/// Decide each of these by itself: `{"checks":[…]}`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checks<'a> {
    /// In the order in which they are decided and answered.
    #[serde(borrow, deserialize_with = "checks")]
    pub checks: Vec<Check<'a>>,
}

/// What would be decided? `{"facts":{…},"rule":"…","cost":1}`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peek<'a> {
    /// What is known of the request.
    #[serde(borrow, deserialize_with = "facts::deserialize")]
    pub facts: Box<Facts<'a>>,
    /// The one rule that is asked about; all where it does not say.
    #[serde(default)]
    pub rule: Option<String>,
    /// What it costs; 1 where it does not say.
    #[serde(default = "one", deserialize_with = "cost")]
    pub cost: u32,
}

/// Give back: `{"facts":{…},"rule":"…","cost":1,"charged_at_us":…}`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refund<'a> {
    /// What is known of the request.
    #[serde(borrow, deserialize_with = "facts::deserialize")]
    pub facts: Box<Facts<'a>>,
    /// The one rule that gives back; all where it does not say.
    #[serde(default)]
    pub rule: Option<String>,
    /// How much; 1 where it does not say.
    #[serde(default = "one", deserialize_with = "cost")]
    pub cost: u32,
    /// When it was charged, in microseconds of the store's clock; now where it does not say.
    #[serde(default)]
    pub charged_at_us: Option<u64>,
}

/// A client's counters: `{"facts":{…},"rule":"…"}`.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Client<'a> {
    /// Whose counters.
    #[serde(borrow, deserialize_with = "facts::deserialize")]
    pub facts: Box<Facts<'a>>,
    /// Of this rule; of all where it does not say.
    #[serde(default)]
    pub rule: Option<String>,
}

/// A request that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It is no JSON; says where.
    Text(String),
    /// It is JSON, but not what is asked for here.
    Field {
        /// Where, such as `checks[3].cost`; `.` for the whole.
        field: String,
        /// What is wrong there.
        why: String,
    },
}

/// Reads a request. Text is borrowed from the body where it has no escapes.
///
/// # Errors
/// When the body is not UTF-8 or no JSON, or a field is missing, unknown or out of its range.
pub fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Malformed> {
    if body.is_empty() {
        return Err(Malformed::Text("the body is empty; it should be a JSON object".to_owned()));
    }
    let text = std::str::from_utf8(body)
        .map_err(|error| Malformed::Text(format!("not UTF-8 from byte {}", error.valid_up_to())))?;
    // Most requests are right: where a wrong one is wrong is found by reading it again.
    let read: Result<Object<T>, _> = serde_json::from_str(text);
    read.map(|object| object.0).map_err(|error| locate::<T>(text, &error))
}

/// Reads a wrong request once more, minding where it is, to say where it is wrong.
fn locate<'a, T: Deserialize<'a>>(text: &'a str, first: &serde_json::Error) -> Malformed {
    let mut json = serde_json::Deserializer::from_str(text);
    let Err(error) = serde_path_to_error::deserialize::<_, Object<T>>(&mut json) else {
        // It is right as far as it goes, so something comes after it.
        return Malformed::Text(format!("not JSON: {first}"));
    };
    let path = error.path().to_string();
    let error = error.into_inner();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let told = error.to_string();
    let why = told.strip_suffix(&place).unwrap_or(&told);
    // A number that no double can hold is JSON all the same (RFC 8259 section 6).
    if error.classify() != Category::Data && why != "number out of range" {
        return Malformed::Text(format!("not JSON: {}", shortened(&told)));
    }
    Malformed::Field { field: shortened(&field(path, why)), why: shortened(why) }
}

/// The field to blame: serde gives a missing or repeated one only in words, backquoted.
fn field(path: String, why: &str) -> String {
    let named = ["missing field `", "duplicate field `"]
        .iter()
        .find_map(|words| why.strip_prefix(words)?.strip_suffix('`'));
    match named {
        Some(name) if path == "." => name.to_owned(),
        Some(name) if !path.ends_with(name) => format!("{path}.{name}"),
        _ => path,
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_REPEATED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// What is written as an object. Left to itself serde takes a list of the values as well.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ObjectVisitor(PhantomData)).map(Self)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

const fn one() -> u32 {
    1
}

fn cost<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    from.deserialize_any(CostVisitor)
}

struct CostVisitor;

impl Visitor<'_> for CostVisitor {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 1 to {}", u32::MAX)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u32, E> {
        let cost = u32::try_from(number).ok().filter(|cost| *cost > 0);
        cost.ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u32, E> {
        Err(E::invalid_value(Unexpected::Signed(number), &self))
    }
}

fn checks<'de: 'a, 'a, D: Deserializer<'de>>(from: D) -> Result<Vec<Check<'a>>, D::Error> {
    from.deserialize_seq(ChecksVisitor(PhantomData))
}

struct ChecksVisitor<'a>(PhantomData<Check<'a>>);

impl<'de: 'a, 'a> Visitor<'de> for ChecksVisitor<'a> {
    type Value = Vec<Check<'a>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX_CHECKS} checks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut checks = Vec::new();
        while let Some(Object(check)) = list.next_element()? {
            if checks.len() == MAX_CHECKS {
                return Err(A::Error::invalid_length(MAX_CHECKS + 1, &self));
            }
            checks.push(check);
        }
        Ok(checks)
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(why) => f.write_str(why),
            Self::Field { field, why } => write!(f, "{field}: {why}"),
        }
    }
}

impl std::error::Error for Malformed {}

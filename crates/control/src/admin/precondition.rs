//! What an editor says to have seen (`If-Match`, `If-None-Match`), so that nobody overwrites what they do not
//! know.

use http::StatusCode;
use http::header::{HeaderMap, IF_MATCH, IF_NONE_MATCH};
use tidegate_edge::problem::Problem;

use crate::book::Kept;
use crate::office::Fault;

/// What the editor saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// They do not say.
    Unsaid,
    /// An entry, whatever it says.
    Something,
    /// An entry as this version left it.
    Version(u64),
    /// No entry.
    Nothing,
}

impl Seen {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let text = |name| headers.get(name).map(|value: &http::HeaderValue| value.as_bytes());
        match (text(IF_MATCH), text(IF_NONE_MATCH)) {
            (None, None) => Ok(Self::Unsaid),
            (Some(b"*"), None) => Ok(Self::Something),
            (None, Some(b"*")) => Ok(Self::Nothing),
            (Some(tag), None) => tagged(tag).map(Self::Version).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }

    /// Whether the rules as a whole are still what the editor saw. Those of a file have no versions.
    pub(super) fn check_version(self, version: u64) -> Result<(), Fault> {
        match self {
            Self::Version(seen) if seen != version => {
                Err(Fault::Outdated { version: Some(version) })
            }
            Self::Version(_) | Self::Something => Ok(()),
            Self::Unsaid | Self::Nothing if version == 0 => Ok(()),
            Self::Nothing => Err(Fault::Outdated { version: Some(version) }),
            Self::Unsaid => Err(Fault::Unseen),
        }
    }

    /// Whether that is still so. An entry that is there is only changed by who says to have seen it.
    pub(super) fn check(self, kept: Option<&Kept>) -> Result<(), Fault> {
        let version = kept.map(|kept| kept.version);
        match self {
            Self::Unsaid if version.is_some() => Err(Fault::Unseen),
            Self::Something if version.is_none() => Err(Fault::Outdated { version }),
            Self::Version(seen) if version != Some(seen) => Err(Fault::Outdated { version }),
            Self::Nothing if version.is_some() => Err(Fault::Outdated { version }),
            _ => Ok(()),
        }
    }
}

fn tagged(tag: &[u8]) -> Option<u64> {
    let quoted = tag.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    str::from_utf8(quoted).ok()?.parse().ok()
}

fn wrong() -> Problem {
    let detail = "write the ETag that you saw, such as If-Match: \"12\", or If-None-Match: *";
    Problem::new(StatusCode::BAD_REQUEST, detail).with_field("if-match")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_seen_is_changed() {
        let kept = Kept { value: String::new(), version: 7 };
        let check = |seen: Seen, there: bool| seen.check(there.then_some(&kept)).is_ok();
        for (seen, there, gone) in [
            (Seen::Unsaid, false, true),
            (Seen::Something, true, false),
            (Seen::Version(7), true, false),
            (Seen::Version(6), false, false),
            (Seen::Nothing, false, true),
        ] {
            assert_eq!((check(seen, true), check(seen, false)), (there, gone), "{seen:?}");
        }
    }

    #[test]
    fn tags_are_numbers_in_quotes() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(IF_MATCH, value.parse().unwrap());
            Seen::of(&headers).ok()
        };
        assert_eq!(of("\"12\""), Some(Seen::Version(12)));
        assert_eq!(of("*"), Some(Seen::Something));
        for wrong in ["12", "W/\"12\"", "\"x\"", "\"1\", \"2\"", "\""] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}

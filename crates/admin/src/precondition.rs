//! What an editor says to have seen (`If-Match`, `If-None-Match`), so that nobody overwrites what they do not
//! know.

use http::StatusCode;
use http::header::{HeaderMap, IF_MATCH, IF_NONE_MATCH};
use tidegate_web::problem::HttpError;

use tidegate_rulestore::EditError;
use tidegate_rulestore::StoredEntry;

/// What the editor saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precondition {
    /// They do not say.
    Unspecified,
    /// An entry, whatever it says.
    MustExist,
    /// An entry as this version left it.
    Version(u64),
    /// No entry.
    MustNotExist,
}

impl Precondition {
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Self, HttpError> {
        let text = |name| headers.get(name).map(|value: &http::HeaderValue| value.as_bytes());
        match (text(IF_MATCH), text(IF_NONE_MATCH)) {
            (None, None) => Ok(Self::Unspecified),
            (Some(b"*"), None) => Ok(Self::MustExist),
            (None, Some(b"*")) => Ok(Self::MustNotExist),
            (Some(tag), None) => {
                parse_etag(tag).map(Self::Version).ok_or_else(invalid_precondition)
            }
            _ => Err(invalid_precondition()),
        }
    }

    /// Whether the rules as a whole are still what the editor saw. Those of a file have no versions.
    pub(super) fn check_version(self, version: u64) -> Result<(), EditError> {
        match self {
            Self::Version(seen) if seen != version => {
                Err(EditError::PreconditionFailed { version: Some(version) })
            }
            Self::Version(_) | Self::MustExist => Ok(()),
            Self::Unspecified | Self::MustNotExist if version == 0 => Ok(()),
            Self::MustNotExist => Err(EditError::PreconditionFailed { version: Some(version) }),
            Self::Unspecified => Err(EditError::PreconditionRequired),
        }
    }

    /// Whether that is still so. An entry that is there is only changed by who says to have seen it.
    pub(super) fn check_entry(self, kept: Option<&StoredEntry>) -> Result<(), EditError> {
        let version = kept.map(|kept| kept.version);
        match self {
            Self::Unspecified if version.is_some() => Err(EditError::PreconditionRequired),
            Self::MustExist if version.is_none() => Err(EditError::PreconditionFailed { version }),
            Self::Version(seen) if version != Some(seen) => {
                Err(EditError::PreconditionFailed { version })
            }
            Self::MustNotExist if version.is_some() => {
                Err(EditError::PreconditionFailed { version })
            }
            _ => Ok(()),
        }
    }
}

fn parse_etag(tag: &[u8]) -> Option<u64> {
    let quoted = tag.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    str::from_utf8(quoted).ok()?.parse().ok()
}

fn invalid_precondition() -> HttpError {
    let detail = "write the ETag that you saw, such as If-Match: \"12\", or If-None-Match: *";
    HttpError::new(StatusCode::BAD_REQUEST, detail).with_field("if-match")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_precondition_fails_the_check() {
        let kept = StoredEntry { value: String::new(), version: 7 };
        let check =
            |seen: Precondition, there: bool| seen.check_entry(there.then_some(&kept)).is_ok();
        for (seen, there, gone) in [
            (Precondition::Unspecified, false, true),
            (Precondition::MustExist, true, false),
            (Precondition::Version(7), true, false),
            (Precondition::Version(6), false, false),
            (Precondition::MustNotExist, false, true),
        ] {
            assert_eq!((check(seen, true), check(seen, false)), (there, gone), "{seen:?}");
        }
    }

    #[test]
    fn etag_is_a_quoted_version() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(IF_MATCH, value.parse().unwrap());
            Precondition::from_headers(&headers).ok()
        };
        assert_eq!(of("\"12\""), Some(Precondition::Version(12)));
        assert_eq!(of("*"), Some(Precondition::MustExist));
        for wrong in ["12", "W/\"12\"", "\"x\"", "\"1\", \"2\"", "\""] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}

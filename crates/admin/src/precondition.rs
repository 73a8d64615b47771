//! Optimistic concurrency control with `If-Match` and `If-None-Match`: a client cannot overwrite a
//! change that it has not seen.

use http::StatusCode;
use http::header::{HeaderMap, IF_MATCH, IF_NONE_MATCH};
use tidegate_web::problem::HttpError;

use tidegate_rulestore::EditError;
use tidegate_rulestore::StoredEntry;

/// What the client expects the entry to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precondition {
    /// The request has no precondition.
    Unspecified,
    /// The entry exists, at any version.
    MustExist,
    /// This version changed the entry last.
    Version(u64),
    /// There is no such entry.
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

    /// Checks the precondition against the version of all rules. Version 0 means rules from a file,
    /// which need no precondition.
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

    /// Checks the precondition against one entry. Changing an existing entry requires one.
    pub(super) fn check_entry(self, stored: Option<&StoredEntry>) -> Result<(), EditError> {
        let version = stored.map(|stored| stored.version);
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
    let detail = "send the ETag of your last read, such as If-Match: \"12\", or If-None-Match: *";
    HttpError::new(StatusCode::BAD_REQUEST, detail).with_field("if-match")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_precondition_fails_the_check() {
        let stored = StoredEntry { value: String::new(), version: 7 };
        let check =
            |seen: Precondition, exists: bool| seen.check_entry(exists.then_some(&stored)).is_ok();
        for (seen, if_present, if_absent) in [
            (Precondition::Unspecified, false, true),
            (Precondition::MustExist, true, false),
            (Precondition::Version(7), true, false),
            (Precondition::Version(6), false, false),
            (Precondition::MustNotExist, false, true),
        ] {
            let results = (check(seen, true), check(seen, false));
            assert_eq!(results, (if_present, if_absent), "{seen:?}");
        }
    }

    #[test]
    fn etag_is_a_quoted_version() {
        let parse = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(IF_MATCH, value.parse().unwrap());
            Precondition::from_headers(&headers).ok()
        };
        assert_eq!(parse("\"12\""), Some(Precondition::Version(12)));
        assert_eq!(parse("*"), Some(Precondition::MustExist));
        for wrong in ["12", "W/\"12\"", "\"x\"", "\"1\", \"2\"", "\""] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}

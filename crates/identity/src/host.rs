//! Canonical spelling of hosts.

use std::borrow::Cow;

/// The host in lower case, without the port and the trailing dot of a fully qualified name.
pub(crate) fn canonical<'a>(given: impl Into<Cow<'a, str>>) -> Cow<'a, str> {
    let given = given.into();
    // Skips the colons inside the brackets of an IPv6 address.
    let end = given.rfind(']').map_or(0, |bracket| bracket + 1);
    let name = given[end..].find(':').map_or(&*given, |colon| &given[..end + colon]);
    let name = name.strip_suffix('.').unwrap_or(name);
    match name.len() == given.len() && !name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => given,
        false => name.to_ascii_lowercase().into(),
    }
}

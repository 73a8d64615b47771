//! Decodes the `identity` section of a document.

use tidegate_core::time::Micros;

use super::{
    ApiKeyIdentity, ApiKeySource, CustomFactSource, FactIdentity, FactTrust, ForwardingHeader,
    IdentityConfig, IpIdentity, JwtAlgorithm, JwtIdentity, TierIdentity, UnknownKeyPolicy,
    UserIdentity,
};
use crate::condition::parse_network;
use crate::decode::{Field, FieldMap};
use crate::diagnostic::FieldError;
use crate::document::match_section::canonical_fact_name;
use crate::yaml::SourceSpan;

/// Facts with a dedicated source, which `identity.facts` must not redefine.
const RESERVED_FACTS: [&str; 7] =
    ["ip", "api_key", "user_id", "tier", "method", "path", "endpoint"];

/// Maximum number of custom facts. Each is looked up in every request.
const MAX_FACTS: usize = 32;

/// Tolerated clock difference if the document does not set one.
const DEFAULT_LEEWAY: Micros = Micros::from_secs(60);

/// Maximum tolerated clock difference. With more, tokens would effectively not expire.
const MAX_LEEWAY: Micros = Micros::from_secs(3_600);

const ALGORITHMS: [(&str, JwtAlgorithm); 12] = [
    ("HS256", JwtAlgorithm::Hs256),
    ("HS384", JwtAlgorithm::Hs384),
    ("HS512", JwtAlgorithm::Hs512),
    ("RS256", JwtAlgorithm::Rs256),
    ("RS384", JwtAlgorithm::Rs384),
    ("RS512", JwtAlgorithm::Rs512),
    ("PS256", JwtAlgorithm::Ps256),
    ("PS384", JwtAlgorithm::Ps384),
    ("PS512", JwtAlgorithm::Ps512),
    ("ES256", JwtAlgorithm::Es256),
    ("ES384", JwtAlgorithm::Es384),
    ("EdDSA", JwtAlgorithm::EdDsa),
];

/// Locations of values that are checked later.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdentitySpans {
    /// `identity.tier.subject`.
    pub(crate) tier_subject: SourceSpan,
    /// `identity.user_id.jwt.key_file`.
    pub(crate) key_file: SourceSpan,
}

/// Decodes the section.
pub(crate) fn read(field: &Field<'_>) -> (IdentityConfig, IdentitySpans) {
    let mut spans = IdentitySpans { tier_subject: field.span(), key_file: field.span() };
    let Some(mut fields) = field.fields() else {
        return (IdentityConfig::default(), spans);
    };
    let identity = IdentityConfig {
        ip: fields.take("ip").map(|field| read_ip(&field)).unwrap_or_default(),
        api_key: fields.take("api_key").and_then(|field| read_api_key(&field)),
        user_id: fields.take("user_id").and_then(|field| read_user(&field, &mut spans)),
        tier: fields.take("tier").and_then(|field| read_tier(&field, &mut spans)),
        facts: fields.take("facts").map(|field| read_facts(&field)).unwrap_or_default(),
    };
    fields.finish();
    (identity, spans)
}

fn read_ip(field: &Field<'_>) -> IpIdentity {
    let mut ip = IpIdentity::default();
    let Some(mut fields) = field.fields() else {
        return ip;
    };
    if let Some(list) = fields.take("trusted_proxies").and_then(|field| field.list()) {
        list.iter().for_each(|field| read_trusted_proxy(field, &mut ip));
    }
    let prefix = fields.take("ipv6_prefix").and_then(|field| field.integer(1, 128));
    ip.ipv6_prefix = prefix.and_then(|bits| u8::try_from(bits).ok()).unwrap_or(ip.ipv6_prefix);
    ip.forwarding_header =
        fields.take("from").and_then(|field| read_forwarding_header(&field)).unwrap_or_default();
    fields.finish();
    ip
}

/// Decodes a network, or `unix` for Unix-socket peers.
fn read_trusted_proxy(field: &Field<'_>, ip: &mut IpIdentity) {
    match field.non_empty_text() {
        Some("unix") => ip.trusts_unix = true,
        Some(text) if text.starts_with("unix") => {
            let error =
                FieldError::new("Unix sockets cannot be trusted individually").with_found(text);
            field.report(error.with_hint("`unix`"));
        }
        Some(text) => ip.trusted_proxies.extend(field.ok_or_report(parse_network(text))),
        None => {}
    }
}

fn read_forwarding_header(field: &Field<'_>) -> Option<ForwardingHeader> {
    let typed = field.non_empty_text()?.to_ascii_lowercase();
    match typed.as_str() {
        "x_forwarded_for" | "x-forwarded-for" => Some(ForwardingHeader::XForwardedFor),
        "forwarded" => Some(ForwardingHeader::Forwarded),
        // A misspelled `x_forwarded_for` must not become the name of a header that no proxy sends.
        name if name.contains('_') => {
            let hint = "`x_forwarded_for`, `forwarded`, or a header such as `x-real-ip`";
            field.report(FieldError::new("unknown value").with_found(name).with_hint(hint));
            None
        }
        _ => header_name(field).map(ForwardingHeader::Header),
    }
}

fn read_api_key(field: &Field<'_>) -> Option<ApiKeyIdentity> {
    let mut fields = field.fields()?;
    let header = take_header(&mut fields).map(ApiKeySource::Header);
    let query = fields.take("query").and_then(|field| field.non_empty_text());
    let bearer = fields.take("bearer").and_then(|field| field.boolean());
    let cookie = take_cookie(&mut fields).map(ApiKeySource::Cookie);
    let unknown = fields.take("unknown").and_then(|field| {
        field.choice(&[("ip", UnknownKeyPolicy::Ip), ("itself", UnknownKeyPolicy::Itself)])
    });
    let query = query.map(|name| ApiKeySource::Query(name.to_owned()));
    let bearer = bearer.unwrap_or(false).then_some(ApiKeySource::Bearer);
    let hint = "one of `header: x-api-key`, `query: key`, `bearer: true`, `cookie: key`";
    let source = exactly_one(&fields, [header, query, bearer, cookie], hint);
    fields.finish();
    Some(ApiKeyIdentity { source: source?, unknown: unknown.unwrap_or(UnknownKeyPolicy::Itself) })
}

fn read_user(field: &Field<'_>, spans: &mut IdentitySpans) -> Option<UserIdentity> {
    let mut fields = field.fields()?;
    let jwt = fields.take("jwt").map(|field| read_jwt(&field, spans));
    let header = take_header(&mut fields).map(UserIdentity::Header);
    let cookie = take_cookie(&mut fields).map(UserIdentity::Cookie);
    // A `jwt` with errors still counts as given.
    let given = [jwt.map(|jwt| jwt.map(UserIdentity::Jwt)), header.map(Some), cookie.map(Some)];
    let hint = "one of `jwt: { key_file: jwt.pub }`, `header: x-user-id`, `cookie: session`";
    let user = exactly_one(&fields, given, hint);
    fields.finish();
    user?
}

fn read_jwt(field: &Field<'_>, spans: &mut IdentitySpans) -> Option<JwtIdentity> {
    let mut fields = field.fields()?;
    let header = take_header(&mut fields).unwrap_or_else(|| "authorization".to_owned());
    let claim = fields.take("claim").map(|field| field.non_empty_text().map(str::to_owned));
    let key_file = fields.require("key_file", "`key_file:` and the file that the key is in");
    spans.key_file = key_file.as_ref().map_or(field.span(), Field::span);
    let key_file = key_file.and_then(|field| field.non_empty_text().map(str::to_owned));
    let algorithm = fields.take("algorithm").and_then(|field| field.choice(&ALGORITHMS));
    let (issuer, audience) =
        (read_text_list(&mut fields, "issuer"), read_text_list(&mut fields, "audience"));
    let leeway =
        fields.take("leeway").and_then(|field| read_leeway(&field)).unwrap_or(DEFAULT_LEEWAY);
    fields.finish();
    let claim = claim.unwrap_or_else(|| Some("sub".to_owned()));
    let (claim, key_file) = (claim?, key_file?);
    Some(JwtIdentity { header, claim, key_file, key: None, algorithm, issuer, audience, leeway })
}

fn read_leeway(field: &Field<'_>) -> Option<Micros> {
    let leeway = field.duration()?;
    if leeway > MAX_LEEWAY {
        let error = FieldError::new("the leeway is too long").with_found(&leeway.to_string());
        field.report(error.with_hint(format!("at most `{MAX_LEEWAY}`")));
        return None;
    }
    Some(leeway)
}

fn read_tier(field: &Field<'_>, spans: &mut IdentitySpans) -> Option<TierIdentity> {
    let mut fields = field.fields()?;
    let text = |field: Field<'_>| field.non_empty_text().map(str::to_owned);
    let subject = fields.take("subject");
    spans.tier_subject = subject.as_ref().map_or(field.span(), Field::span);
    let subject = subject.and_then(text);
    let default = fields.take("default").and_then(text);
    let header = take_header(&mut fields);
    if subject.is_some() && header.is_some() {
        let error = FieldError::new("a tier comes from `subject` or from `header`, not from both");
        fields.report(error.with_hint("one of them"));
    } else if subject.is_none() && header.is_none() && default.is_none() {
        let hint = "`subject: api_key`, `header: x-plan`, or `default: free`";
        fields.report(FieldError::new("the source of the tier is missing").with_hint(hint));
    }
    fields.finish();
    Some(TierIdentity { subject, header, default })
}

fn read_facts(field: &Field<'_>) -> Vec<FactIdentity> {
    let Some(fields) = field.fields() else {
        return Vec::new();
    };
    if fields.all_fields().count() > MAX_FACTS {
        let message = format!("a document can define at most {MAX_FACTS} further facts");
        field.report(FieldError::new(message).with_hint("fewer"));
        return Vec::new();
    }
    fields.all_fields().filter_map(|(name, _, field)| read_fact(name, &field)).collect()
}

fn read_fact(name: &str, field: &Field<'_>) -> Option<FactIdentity> {
    if RESERVED_FACTS.contains(&canonical_fact_name(name)) {
        let error = FieldError::new("this fact has a dedicated setting").with_found(name);
        field.report(error.with_hint("another name, such as `tenant`"));
        return None;
    }
    let mut fields = field.fields()?;
    let (header, cookie) = (take_header(&mut fields), take_cookie(&mut fields));
    let trust = fields.take("trust");
    let trusted = trust.as_ref().and_then(|field| {
        field.choice(&[("proxy", FactTrust::Proxy), ("anyone", FactTrust::Anyone)])
    });
    if let (Some(trust), Some(_)) = (&trust, &cookie) {
        let error = FieldError::new("a cookie is always set by the client");
        trust.report(error.with_hint("`trust` only beside `header`"));
    }
    let header =
        header.map(|name| CustomFactSource::Header(name, trusted.unwrap_or(FactTrust::Proxy)));
    let hint = "one of `header: x-tenant`, `cookie: tenant`";
    let source = exactly_one(&fields, [header, cookie.map(CustomFactSource::Cookie)], hint);
    fields.finish();
    Some(FactIdentity { name: name.to_owned(), source: source? })
}

fn read_text_list(fields: &mut FieldMap<'_>, name: &'static str) -> Vec<String> {
    let list = fields.take(name).map(|field| field.non_empty_items()).unwrap_or_default();
    list.iter().filter_map(|field| field.non_empty_text().map(str::to_owned)).collect()
}

fn take_header(fields: &mut FieldMap<'_>) -> Option<String> {
    header_name(&fields.take("header")?)
}

fn header_name(field: &Field<'_>) -> Option<String> {
    let hint = "letters, digits and dashes, such as `x-api-key`";
    Some(read_http_token(field, "this is not the name of a header", hint)?.to_ascii_lowercase())
}

fn take_cookie(fields: &mut FieldMap<'_>) -> Option<String> {
    let hint = "letters, digits and dashes, such as `session`";
    read_http_token(&fields.take("cookie")?, "this is not the name of a cookie", hint)
}

/// Decodes an HTTP token (RFC 9110 section 5.6.2).
fn read_http_token(field: &Field<'_>, message: &str, hint: &str) -> Option<String> {
    let name = field.non_empty_text()?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.bytes().all(token) {
        field.report(FieldError::new(message).with_found(name).with_hint(hint));
        return None;
    }
    Some(name.to_owned())
}

/// The only alternative that is given. Reports an error if there is none or more than one.
fn exactly_one<T, const N: usize>(
    fields: &FieldMap<'_>,
    given: [Option<T>; N],
    hint: &str,
) -> Option<T> {
    let mut given = given.into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(one), None) => Some(one),
        (None, _) => {
            fields.report(FieldError::new("the source is missing").with_hint(hint));
            None
        }
        (Some(_), Some(_)) => {
            fields.report(FieldError::new("there is more than one source").with_hint(hint));
            None
        }
    }
}

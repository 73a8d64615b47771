//! Reads the `identity` section of a document.

use tidegate_core::time::Micros;

use super::{
    ApiKeyIdentity, Carrier, FactCarrier, FactIdentity, ForwardedBy, Identity, IpIdentity,
    JwtAlgorithm, JwtIdentity, TierIdentity, Trust, UnknownKey, UserIdentity,
};
use crate::condition::parse_net;
use crate::decode::{Field, Fields};
use crate::document::matches::fact_name;
use crate::problem::Remark;
use crate::yaml::Span;

/// Facts that are found in ways of their own.
const TAKEN: [&str; 7] = ["ip", "api_key", "user_id", "tier", "method", "path", "endpoint"];

/// More than this are not needed, and each is looked for in every request.
const MOST_FACTS: usize = 32;

/// How much clocks may differ unless the document says it.
const LEEWAY: Micros = Micros::from_secs(60);

/// With more than this a token would hardly ever expire.
const MOST_LEEWAY: Micros = Micros::from_secs(3_600);

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

/// Where things stand that are judged later.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Places {
    /// `identity.tier.subject`.
    pub(crate) tier_subject: Span,
    /// `identity.user_id.jwt.key_file`.
    pub(crate) key_file: Span,
}

/// Reads the section.
pub(crate) fn read(field: &Field<'_>) -> (Identity, Places) {
    let mut places = Places { tier_subject: field.span(), key_file: field.span() };
    let Some(mut fields) = field.fields() else {
        return (Identity::default(), places);
    };
    let identity = Identity {
        ip: fields.take("ip").map(|field| read_ip(&field)).unwrap_or_default(),
        api_key: fields.take("api_key").and_then(|field| read_api_key(&field)),
        user_id: fields.take("user_id").and_then(|field| read_user(&field, &mut places)),
        tier: fields.take("tier").and_then(|field| read_tier(&field, &mut places)),
        facts: fields.take("facts").map(|field| read_facts(&field)).unwrap_or_default(),
    };
    fields.finish();
    (identity, places)
}

fn read_ip(field: &Field<'_>) -> IpIdentity {
    let mut ip = IpIdentity::default();
    let Some(mut fields) = field.fields() else {
        return ip;
    };
    if let Some(list) = fields.take("trusted_proxies").and_then(|field| field.list()) {
        list.iter().for_each(|field| read_trusted(field, &mut ip));
    }
    let prefix = fields.take("ipv6_prefix").and_then(|field| field.integer(1, 128));
    ip.ipv6_prefix = prefix.and_then(|bits| u8::try_from(bits).ok()).unwrap_or(ip.ipv6_prefix);
    ip.from = fields.take("from").and_then(|field| read_from(&field)).unwrap_or_default();
    fields.finish();
    ip
}

/// A network, or the word for whoever comes over a unix socket.
fn read_trusted(field: &Field<'_>, ip: &mut IpIdentity) {
    match field.word() {
        Some("unix") => ip.trusts_unix = true,
        Some(text) if text.starts_with("unix") => {
            let remark = Remark::new("unix sockets are trusted all or none").found(text);
            field.refuse(remark.write("`unix`"));
        }
        Some(text) => ip.trusted_proxies.extend(field.accept(parse_net(text))),
        None => {}
    }
}

fn read_from(field: &Field<'_>) -> Option<ForwardedBy> {
    let typed = field.word()?.to_ascii_lowercase();
    match typed.as_str() {
        "x_forwarded_for" | "x-forwarded-for" => Some(ForwardedBy::XForwardedFor),
        "forwarded" => Some(ForwardedBy::Forwarded),
        // A slip of `x_forwarded_for` must not become a header that nobody sends.
        name if name.contains('_') => {
            let hint = "`x_forwarded_for`, `forwarded`, or a header such as `x-real-ip`";
            field.refuse(Remark::new("unknown value").found(name).write(hint));
            None
        }
        _ => header_name(field).map(ForwardedBy::Header),
    }
}

fn read_api_key(field: &Field<'_>) -> Option<ApiKeyIdentity> {
    let mut fields = field.fields()?;
    let header = header(&mut fields).map(Carrier::Header);
    let query = fields.take("query").and_then(|field| field.word());
    let bearer = fields.take("bearer").and_then(|field| field.boolean());
    let cookie = cookie(&mut fields).map(Carrier::Cookie);
    let unknown = fields
        .take("unknown")
        .and_then(|field| field.choice(&[("ip", UnknownKey::Ip), ("itself", UnknownKey::Itself)]));
    let query = query.map(|name| Carrier::Query(name.to_owned()));
    let bearer = bearer.unwrap_or(false).then_some(Carrier::Bearer);
    let hint = "one of `header: x-api-key`, `query: key`, `bearer: true`, `cookie: key`";
    let carrier = one_of(&fields, [header, query, bearer, cookie], hint);
    fields.finish();
    Some(ApiKeyIdentity { carrier: carrier?, unknown: unknown.unwrap_or(UnknownKey::Itself) })
}

fn read_user(field: &Field<'_>, places: &mut Places) -> Option<UserIdentity> {
    let mut fields = field.fields()?;
    let jwt = fields.take("jwt").map(|field| read_jwt(&field, places));
    let header = header(&mut fields).map(UserIdentity::Header);
    let cookie = cookie(&mut fields).map(UserIdentity::Cookie);
    // A faulty `jwt` is there all the same.
    let given = [jwt.map(|jwt| jwt.map(UserIdentity::Jwt)), header.map(Some), cookie.map(Some)];
    let hint = "one of `jwt: { key_file: jwt.pub }`, `header: x-user-id`, `cookie: session`";
    let user = one_of(&fields, given, hint);
    fields.finish();
    user?
}

fn read_jwt(field: &Field<'_>, places: &mut Places) -> Option<JwtIdentity> {
    let mut fields = field.fields()?;
    let header = header(&mut fields).unwrap_or_else(|| "authorization".to_owned());
    let claim = fields.take("claim").map(|field| field.word().map(str::to_owned));
    let key_file = fields.require("key_file", "`key_file:` and the file that the key is in");
    places.key_file = key_file.as_ref().map_or(field.span(), Field::span);
    let key_file = key_file.and_then(|field| field.word().map(str::to_owned));
    let algorithm = fields.take("algorithm").and_then(|field| field.choice(&ALGORITHMS));
    let (issuer, audience) = (words(&mut fields, "issuer"), words(&mut fields, "audience"));
    let leeway = fields.take("leeway").and_then(|field| read_leeway(&field)).unwrap_or(LEEWAY);
    fields.finish();
    let claim = claim.unwrap_or_else(|| Some("sub".to_owned()));
    let (claim, key_file) = (claim?, key_file?);
    Some(JwtIdentity { header, claim, key_file, key: None, algorithm, issuer, audience, leeway })
}

fn read_leeway(field: &Field<'_>) -> Option<Micros> {
    let leeway = field.duration()?;
    if leeway > MOST_LEEWAY {
        let remark = Remark::new("clocks do not differ that much").found(&leeway.to_string());
        field.refuse(remark.write(format!("at most `{MOST_LEEWAY}`")));
        return None;
    }
    Some(leeway)
}

fn read_tier(field: &Field<'_>, places: &mut Places) -> Option<TierIdentity> {
    let mut fields = field.fields()?;
    let text = |field: Field<'_>| field.word().map(str::to_owned);
    let subject = fields.take("subject");
    places.tier_subject = subject.as_ref().map_or(field.span(), Field::span);
    let subject = subject.and_then(text);
    let default = fields.take("default").and_then(text);
    let header = header(&mut fields);
    if subject.is_some() && header.is_some() {
        let remark = Remark::new("a tier comes from `subject` or from `header`, not from both");
        fields.refuse(remark.write("one of them"));
    } else if subject.is_none() && header.is_none() && default.is_none() {
        let hint = "`subject: api_key`, `header: x-plan`, or `default: free`";
        fields.refuse(Remark::new("where the tier comes from is missing").write(hint));
    }
    fields.finish();
    Some(TierIdentity { subject, header, default })
}

fn read_facts(field: &Field<'_>) -> Vec<FactIdentity> {
    let Some(fields) = field.fields() else {
        return Vec::new();
    };
    if fields.all().count() > MOST_FACTS {
        let message = format!("a document names at most {MOST_FACTS} further facts");
        field.refuse(Remark::new(message).write("fewer"));
        return Vec::new();
    }
    fields.all().filter_map(|(name, _, field)| read_fact(name, &field)).collect()
}

fn read_fact(name: &str, field: &Field<'_>) -> Option<FactIdentity> {
    if TAKEN.contains(&fact_name(name)) {
        let remark = Remark::new("this fact is found in a way of its own").found(name);
        field.refuse(remark.write("a name of your own, such as `tenant`"));
        return None;
    }
    let mut fields = field.fields()?;
    let (header, cookie) = (header(&mut fields), cookie(&mut fields));
    let trust = fields.take("trust");
    let word = trust
        .as_ref()
        .and_then(|field| field.choice(&[("proxy", Trust::Proxy), ("anyone", Trust::Anyone)]));
    if let (Some(trust), Some(_)) = (&trust, &cookie) {
        let remark = Remark::new("a cookie is always the client's own word");
        trust.refuse(remark.write("`trust` only beside `header`"));
    }
    let header = header.map(|name| FactCarrier::Header(name, word.unwrap_or(Trust::Proxy)));
    let hint = "one of `header: x-tenant`, `cookie: tenant`";
    let carrier = one_of(&fields, [header, cookie.map(FactCarrier::Cookie)], hint);
    fields.finish();
    Some(FactIdentity { name: name.to_owned(), carrier: carrier? })
}

fn words(fields: &mut Fields<'_>, name: &'static str) -> Vec<String> {
    let list = fields.take(name).map(|field| field.one_or_more()).unwrap_or_default();
    list.iter().filter_map(|field| field.word().map(str::to_owned)).collect()
}

fn header(fields: &mut Fields<'_>) -> Option<String> {
    header_name(&fields.take("header")?)
}

fn header_name(field: &Field<'_>) -> Option<String> {
    let hint = "letters, digits and dashes, such as `x-api-key`";
    Some(token(field, "this is not the name of a header", hint)?.to_ascii_lowercase())
}

fn cookie(fields: &mut Fields<'_>) -> Option<String> {
    let hint = "letters, digits and dashes, such as `session`";
    token(&fields.take("cookie")?, "this is not the name of a cookie", hint)
}

/// A token as HTTP has it (RFC 9110 section 5.6.2).
fn token(field: &Field<'_>, message: &str, hint: &str) -> Option<String> {
    let name = field.word()?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.bytes().all(token) {
        field.refuse(Remark::new(message).found(name).write(hint));
        return None;
    }
    Some(name.to_owned())
}

/// The only one that is given; none or several are a problem.
fn one_of<T, const N: usize>(fields: &Fields<'_>, given: [Option<T>; N], hint: &str) -> Option<T> {
    let mut given = given.into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(one), None) => Some(one),
        (None, _) => {
            fields.refuse(Remark::new("where it comes from is missing").write(hint));
            None
        }
        (Some(_), Some(_)) => {
            fields.refuse(Remark::new("this says twice where it comes from").write(hint));
            None
        }
    }
}

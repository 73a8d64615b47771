//! How a request becomes facts, as the document says it. Nothing is trusted unless it says so.
//!
//! Reading headers and tokens is the business of the doors; this only says which.

use ipnet::IpNet;

use crate::condition::parse_net;
use crate::decode::{Field, Fields};
use crate::problem::Remark;
use crate::yaml::Span;

/// The `identity` section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Whose address counts.
    pub ip: IpIdentity,
    /// Where the API key is.
    pub api_key: Option<ApiKeyIdentity>,
    /// Where the user is.
    pub user_id: Option<UserIdentity>,
    /// Where the tier comes from.
    pub tier: Option<TierIdentity>,
}

/// Whose address counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpIdentity {
    /// Those whose forwarding headers are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// How much of an IPv6 address is one client.
    pub ipv6_prefix: u8,
}

impl Default for IpIdentity {
    fn default() -> Self {
        Self { trusted_proxies: Vec::new(), ipv6_prefix: 64 }
    }
}

/// Where the API key is, and what becomes of one that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKeyIdentity {
    /// Where it is.
    pub carrier: Carrier,
    /// What a key counts as that is in no `subjects` list.
    pub unknown: UnknownKey,
}

/// What carries an API key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A header, its name in lower case.
    Header(String),
    /// A parameter of the query.
    Query(String),
    /// The token of `Authorization: Bearer`.
    Bearer,
}

/// What an API key counts as that is in no `subjects` list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownKey {
    /// Itself.
    Itself,
    /// The client's address.
    Ip,
}

/// Where the user is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserIdentity {
    /// In a signed token.
    Jwt(JwtIdentity),
    /// In a header, its name in lower case.
    Header(String),
}

/// Which token, which claim of it, and whose signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtIdentity {
    /// The header, its name in lower case.
    pub header: String,
    /// The claim that names the user.
    pub claim: String,
    /// The file with the key that the signature is checked with.
    pub key_file: String,
}

/// Where the tier comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierIdentity {
    /// The fact by which it is looked up in `subjects`.
    pub subject: Option<String>,
    /// The header it is in, its name in lower case.
    pub header: Option<String>,
    /// The tier of everyone else.
    pub default: Option<String>,
}

/// Reads the section, and where the subject of the tier stands.
pub(super) fn read(field: &Field<'_>) -> (Identity, Span) {
    let Some(mut fields) = field.fields() else {
        return (Identity::default(), field.span());
    };
    let tier = fields.take("tier").and_then(|field| read_tier(&field));
    let (tier, subject) = tier.unzip();
    let identity = Identity {
        ip: fields.take("ip").map(|field| read_ip(&field)).unwrap_or_default(),
        api_key: fields.take("api_key").and_then(|field| read_api_key(&field)),
        user_id: fields.take("user_id").and_then(|field| read_user(&field)),
        tier,
    };
    fields.finish();
    (identity, subject.unwrap_or(field.span()))
}

fn read_ip(field: &Field<'_>) -> IpIdentity {
    let mut ip = IpIdentity::default();
    let Some(mut fields) = field.fields() else {
        return ip;
    };
    if let Some(list) = fields.take("trusted_proxies").and_then(|field| field.list()) {
        let net = |field: &Field<'_>| field.accept(parse_net(field.word()?));
        ip.trusted_proxies = list.iter().filter_map(net).collect();
    }
    let prefix = fields.take("ipv6_prefix").and_then(|field| field.integer(1, 128));
    ip.ipv6_prefix = prefix.and_then(|bits| u8::try_from(bits).ok()).unwrap_or(ip.ipv6_prefix);
    fields.finish();
    ip
}

fn read_api_key(field: &Field<'_>) -> Option<ApiKeyIdentity> {
    let mut fields = field.fields()?;
    let header = header(&mut fields).map(Carrier::Header);
    let query = fields.take("query").and_then(|field| field.word());
    let bearer = fields.take("bearer").and_then(|field| field.boolean());
    let unknown = fields
        .take("unknown")
        .and_then(|field| field.choice(&[("ip", UnknownKey::Ip), ("itself", UnknownKey::Itself)]));
    let query = query.map(|name| Carrier::Query(name.to_owned()));
    let bearer = bearer.unwrap_or(false).then_some(Carrier::Bearer);
    let carriers = [header, query, bearer];
    let carrier =
        one_of(&fields, carriers, "one of `header: x-api-key`, `query: key`, `bearer: true`");
    fields.finish();
    Some(ApiKeyIdentity { carrier: carrier?, unknown: unknown.unwrap_or(UnknownKey::Itself) })
}

fn read_user(field: &Field<'_>) -> Option<UserIdentity> {
    let mut fields = field.fields()?;
    let jwt = fields.take("jwt").map(|field| read_jwt(&field));
    let header = header(&mut fields).map(UserIdentity::Header);
    // A faulty `jwt` is there all the same.
    let hint = "one of `jwt: { key_file: jwt.pub }`, `header: x-user-id`";
    let user = one_of(&fields, [jwt.map(|jwt| jwt.map(UserIdentity::Jwt)), header.map(Some)], hint);
    fields.finish();
    user?
}

fn read_jwt(field: &Field<'_>) -> Option<JwtIdentity> {
    let mut fields = field.fields()?;
    let header = header(&mut fields).unwrap_or_else(|| "authorization".to_owned());
    let claim = fields.take("claim").map(|field| field.word().map(str::to_owned));
    let key_file = fields.require("key_file", "`key_file:` and the file that the key is in");
    let key_file = key_file.and_then(|field| field.word().map(str::to_owned));
    fields.finish();
    let claim = claim.unwrap_or_else(|| Some("sub".to_owned()));
    Some(JwtIdentity { header, claim: claim?, key_file: key_file? })
}

fn read_tier(field: &Field<'_>) -> Option<(TierIdentity, Span)> {
    let mut fields = field.fields()?;
    let text = |field: Field<'_>| field.word().map(str::to_owned);
    let subject = fields.take("subject");
    let span = subject.as_ref().map_or(field.span(), Field::span);
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
    Some((TierIdentity { subject, header, default }, span))
}

fn header(fields: &mut Fields<'_>) -> Option<String> {
    let field = fields.take("header")?;
    let name = field.word()?;
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !name.bytes().all(token) {
        let remark = Remark::new("this is not the name of a header").found(name);
        field.refuse(remark.write("letters, digits and dashes, such as `x-api-key`"));
        return None;
    }
    Some(name.to_ascii_lowercase())
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

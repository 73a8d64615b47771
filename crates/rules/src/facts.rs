//! The facts of a request: names and values, in the order in which they were added.
//!
//! The APIs extract facts from headers, tokens and descriptors; this module only stores them.

use std::borrow::Cow;
use std::net::IpAddr;

use smallvec::SmallVec;

use crate::api_kind::ApiKind;

/// An ordered list of names and values. A name may occur more than once, as in Envoy's descriptors;
/// rules use the first value. Borrowed text is not copied, and up to 12 facts need no allocation.
///
/// ```
/// use tidegate_rules::Facts;
///
/// let mut facts = Facts::from([("user_id", "ada"), ("path", "/orders")]);
/// facts.push("tier", "free");
/// assert_eq!(facts.get("user_id"), Some("ada"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts<'a> {
    list: SmallVec<[(Cow<'a, str>, Cow<'a, str>); 12]>,
    ip: Option<IpAddr>,
    api: ApiKind,
    descriptor: Cow<'a, [DescriptorPair<'a>]>,
}

/// One entry of a descriptor, as received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorPair<'a> {
    /// The key.
    pub key: Cow<'a, str>,
    /// The value, which may be empty.
    pub value: Cow<'a, str>,
}

impl<'a> Facts<'a> {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the API that received the request.
    pub const fn set_api(&mut self, api: ApiKind) {
        self.api = api;
    }

    /// The API that received the request; [`ApiKind::InProcess`] by default.
    #[must_use]
    pub const fn api(&self) -> ApiKind {
        self.api
    }

    /// Appends a fact.
    pub fn push(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) {
        let (name, value) = (name.into(), value.into());
        if name == "ip" && self.get("ip").is_none() {
            self.ip = parse_ip(&value);
        }
        self.list.push((name, value));
    }

    /// Appends the client's address without parsing it from text.
    pub fn push_ip(&mut self, ip: IpAddr) {
        let ip = ip.to_canonical();
        if self.get("ip").is_none() {
            self.ip = Some(ip);
        }
        self.list.push((Cow::Borrowed("ip"), Cow::Owned(format_ip(ip))));
    }

    /// Sets the descriptor of the request, for rules that match a whole descriptor. This does not
    /// add its entries as facts: the caller pushes those separately.
    pub fn set_descriptor(&mut self, entries: &'a [DescriptorPair<'a>]) {
        self.descriptor = Cow::Borrowed(entries);
    }

    /// The entries of the descriptor, in order and as received; empty if there is no descriptor.
    #[must_use]
    pub fn descriptor(&self) -> &[DescriptorPair<'a>] {
        &self.descriptor
    }

    /// The value of a fact; the first one if it occurs more than once.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.list.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_ref())
    }

    /// Replaces all values of a fact by one, or appends it.
    pub fn set(&mut self, name: impl Into<Cow<'a, str>>, value: impl Into<Cow<'a, str>>) {
        let (name, value) = (name.into(), value.into());
        let Some(first) = self.list.iter().position(|(known, _)| *known == name) else {
            return self.push(name, value);
        };
        if name == "ip" {
            self.ip = parse_ip(&value);
        }
        self.list[first].1 = value;
        let mut index = 0;
        self.list.retain(|(known, _)| {
            index += 1;
            index <= first + 1 || *known != name
        });
    }

    /// Removes a fact.
    pub fn remove(&mut self, name: &str) {
        if name == "ip" {
            self.ip = None;
        }
        self.list.retain(|(known, _)| known != name);
    }

    /// All facts in order, including repeated names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.list.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// Number of facts, including repeated names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are no facts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The client's address. IPv4-mapped IPv6 addresses are returned as IPv4.
    #[must_use]
    pub const fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// The same facts with borrowed text, for example to [enrich] them temporarily.
    ///
    /// [enrich]: crate::RuleSet::enrich
    #[must_use]
    pub fn borrowed(&self) -> Facts<'_> {
        let (ip, api, descriptor) = (self.ip, self.api, Cow::Borrowed(&*self.descriptor));
        // Fill the list in place: moving a filled `SmallVec` copies its whole inline capacity.
        let mut facts = Facts { list: SmallVec::new(), ip, api, descriptor };
        facts.list.extend(self.iter().map(|(name, value)| (name.into(), value.into())));
        facts
    }

    /// The same facts with owned text.
    #[must_use]
    pub fn into_owned(self) -> Facts<'static> {
        let owned = |text: Cow<'a, str>| Cow::Owned(text.into_owned());
        let list = self.list.into_iter().map(|(name, value)| (owned(name), owned(value))).collect();
        let entry = |DescriptorPair { key, value }: DescriptorPair<'a>| DescriptorPair {
            key: owned(key),
            value: owned(value),
        };
        let descriptor = self.descriptor.iter().cloned().map(entry).collect();
        Facts { list, ip: self.ip, api: self.api, descriptor }
    }
}

impl<'a, N: Into<Cow<'a, str>>, V: Into<Cow<'a, str>>> FromIterator<(N, V)> for Facts<'a> {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(list: I) -> Self {
        let mut facts = Self::new();
        list.into_iter().for_each(|(name, value)| facts.push(name, value));
        facts
    }
}

impl<'a, N: Into<Cow<'a, str>>, V: Into<Cow<'a, str>>, const COUNT: usize> From<[(N, V); COUNT]>
    for Facts<'a>
{
    fn from(list: [(N, V); COUNT]) -> Self {
        list.into_iter().collect()
    }
}

/// The text of an address. The gateway formats one per request, usually IPv4, and the standard
/// formatter took a fortieth of the time of a proxied request.
fn format_ip(ip: IpAddr) -> String {
    let IpAddr::V4(ip) = ip else { return ip.to_string() };
    let mut text = String::with_capacity("255.255.255.255".len());
    for (i, octet) in ip.octets().into_iter().enumerate() {
        if i > 0 {
            text.push('.');
        }
        for (least, unit) in [(100, 100), (10, 10), (0, 1)] {
            if octet >= least {
                text.push(char::from(b'0' + octet / unit % 10));
            }
        }
    }
    text
}

fn parse_ip(text: &str) -> Option<IpAddr> {
    text.parse().ok().map(|ip: IpAddr| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_value_of_repeated_fact_counts() {
        let mut facts: Facts =
            [("a", "1"), ("b", "2"), ("a", "3"), ("a", "4")].into_iter().collect();
        assert_eq!(facts.get("a"), Some("1"));
        assert_eq!(facts.get("c"), None);
        facts.set("a", "5");
        assert_eq!(facts.iter().collect::<Vec<_>>(), [("a", "5"), ("b", "2")]);
        facts.remove("a");
        facts.set("c", "6");
        assert_eq!(facts.iter().collect::<Vec<_>>(), [("b", "2"), ("c", "6")]);
    }

    #[test]
    fn parsed_ip_follows_ip_fact() {
        let mut facts = Facts::new();
        assert_eq!(facts.ip(), None);
        facts.push("ip", "::ffff:192.0.2.1");
        facts.push("ip", "198.51.100.7");
        assert_eq!(
            facts.ip(),
            Some(IpAddr::from([192, 0, 2, 1])),
            "the first value, converted to IPv4"
        );
        facts.set("ip", "2001:db8::1");
        assert_eq!(facts.ip().map(|ip| ip.to_string()).as_deref(), Some("2001:db8::1"));
        facts.set("ip", "nonsense");
        assert_eq!((facts.ip(), facts.get("ip")), (None, Some("nonsense")));
        facts.remove("ip");
        assert_eq!((facts.ip(), facts.len()), (None, 0));
    }

    #[test]
    fn ip_text_is_canonical() {
        for octet in 0..=u8::MAX {
            let others = [0, octet / 2, octet.wrapping_mul(31)];
            for ip in [[octet, others[0], others[1], others[2]], [others[2], others[1], 255, octet]]
            {
                let ip = IpAddr::from(ip);
                assert_eq!(format_ip(ip), ip.to_string());
            }
        }
        let ip: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(format_ip(ip), "2001:db8::1");
    }

    #[test]
    fn pushed_ip_equals_ip_text_fact() {
        let mut pushed = Facts::new();
        pushed.push_ip("::ffff:192.0.2.1".parse().unwrap());
        pushed.push_ip("2001:db8::1".parse().unwrap());
        let mut from_text = Facts::new();
        from_text.push("ip", "192.0.2.1");
        from_text.push("ip", "2001:db8::1");
        assert_eq!(pushed, from_text);
    }
}

//! Sets of IP networks.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::diagnostic::FieldError;

/// The length of `::ffff:0:0/96`, the network of all IPv4-mapped addresses.
const MAPPED_PREFIX_LEN: u8 = 96;

/// Merged and sorted networks, for binary search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IpNetworks(Box<[IpNet]>);

impl IpNetworks {
    pub(crate) fn new(nets: &Vec<IpNet>) -> Self {
        let mut merged = IpNet::aggregate(nets);
        merged.sort_unstable_by_key(IpNet::network);
        Self(merged.into())
    }

    pub(crate) fn contains(&self, ip: IpAddr) -> bool {
        // Merged networks are disjoint: only the last one that starts at or before `ip` can contain
        // it.
        let after = self.0.partition_point(|net| net.network() <= ip);
        after.checked_sub(1).is_some_and(|at| self.0[at].contains(&ip))
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &IpNet> {
        self.0.iter()
    }

    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.iter().any(|net| other.contains(net.network()))
            || other.iter().any(|net| self.contains(net.network()))
    }

    pub(crate) fn covers(&self, other: &Self) -> bool {
        other.iter().all(|inner| self.iter().any(|outer| outer.contains(inner)))
    }
}

/// Parses `10.0.0.0/8`, `2001:db8::/32` or a single address.
pub(crate) fn parse_network(text: &str) -> Result<IpNet, FieldError> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(IpNet::from(ip.to_canonical()));
    }
    let net: IpNet = text.parse().map_err(|_| {
        FieldError::new("this is neither an address nor a network")
            .with_found(text)
            .with_hint("an address or a CIDR, such as `192.0.2.7`, `10.0.0.0/8` or `2001:db8::/32`")
    })?;
    if net.trunc() == net {
        return Ok(to_canonical(net));
    }
    let error = FieldError::new("this network has bits set beyond its prefix").with_found(text);
    Err(error.with_hint(format!("`{}`, or `{}` for the one address", net.trunc(), net.addr())))
}

/// Converts a network of IPv4-mapped addresses, such as `::ffff:10.0.0.0/104`, to IPv4: the
/// addresses of clients are converted too.
fn to_canonical(net: IpNet) -> IpNet {
    match (net.addr().to_canonical(), net.prefix_len().checked_sub(MAPPED_PREFIX_LEN)) {
        (ip @ IpAddr::V4(_), Some(prefix)) if net.addr().is_ipv6() => {
            IpNet::new(ip, prefix).unwrap_or(net)
        }
        _ => net,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(list: &[&str]) -> IpNetworks {
        IpNetworks::new(&list.iter().map(|text| parse_network(text).unwrap()).collect())
    }

    #[test]
    fn mapped_network_contains_its_ipv4_addresses() {
        let set = networks(&["::ffff:10.0.0.0/104", "::ffff:192.0.2.7"]);
        for (ip, inside) in [("10.1.2.3", true), ("192.0.2.7", true), ("11.0.0.0", false)] {
            assert_eq!(set.contains(ip.parse().unwrap()), inside, "{ip}");
        }
        assert_eq!(networks(&["::ffff:0:0/96"]), networks(&["0.0.0.0/0"]));
        assert!(!networks(&["::/0"]).contains("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn nested_and_adjacent_networks_contain_addresses() {
        let set = networks(&["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7", "2001:db8::/32"]);
        for (ip, inside) in [
            ("10.1.2.3", true),
            ("10.255.255.255", true),
            ("11.0.0.0", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("2001:db8:ffff::1", true),
            ("::1", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(set.contains(ip.parse().unwrap()), inside, "{ip}");
        }
        assert!(
            set.overlaps(&networks(&["10.7.0.0/16"])) && networks(&["10.7.0.0/16"]).overlaps(&set)
        );
        assert!(!set.overlaps(&networks(&["11.0.0.0/8"])));
        assert!(
            set.covers(&networks(&["10.7.0.0/16"])) && !networks(&["10.7.0.0/16"]).covers(&set)
        );
    }

    #[test]
    fn invalid_network_error_has_hint() {
        assert!(parse_network("10.0.0.1/8").unwrap_err().hint.unwrap().contains("10.0.0.0/8"));
        for text in ["10.0.0.0/33", "10.0.0", "x", ""] {
            assert!(parse_network(text).is_err(), "{text}");
        }
    }
}

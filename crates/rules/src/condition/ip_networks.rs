//! Sets of IP networks.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::diagnostic::FieldError;

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
        return Ok(net);
    }
    let error = FieldError::new("this network has bits set beyond its prefix").with_found(text);
    Err(error.with_hint(format!("`{}`, or `{}` for the one address", net.trunc(), net.addr())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(list: &[&str]) -> IpNetworks {
        IpNetworks::new(&list.iter().map(|text| parse_network(text).unwrap()).collect())
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

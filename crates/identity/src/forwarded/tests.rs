//! `Forwarded`: the examples of RFC 7239, malformed input and properties.

use http::HeaderValue;
use proptest::prelude::*;

use super::*;

/// The addresses of all lines, from the right.
fn parse_nodes(lines: &[&str]) -> Vec<Option<String>> {
    let mut headers = HeaderMap::new();
    for line in lines {
        headers.append(FORWARDED, HeaderValue::from_str(line).unwrap());
    }
    forwarded_hops(&headers).map(|ip| ip.map(|ip| ip.to_string())).collect()
}

fn parse_single_node(line: &str) -> Option<String> {
    let [node] = <[_; 1]>::try_from(parse_nodes(&[line])).unwrap();
    node
}

#[test]
fn rfc_7239_examples_are_parsed() {
    for (line, expected) in [
        ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
        ("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
        ("for=\"[2001:db8:cafe::17]\"", "2001:db8:cafe::17"),
        ("for=\"192.0.2.43:47011\"", "192.0.2.43"),
        ("for=\"192.0.2.43\"", "192.0.2.43"),
        ("for=\"192.0.2.43:_hidden\"", "192.0.2.43"),
        ("proto=https;FOR=192.0.2.60;host=\"a;b,c\\\"d\"", "192.0.2.60"),
        ("for=192.0.2.60 ; proto=http", "192.0.2.60"),
        ("for=\"\\1\\92.0.2.60\"", "192.0.2.60"),
        ("for=\"[::ffff:192.0.2.60]\"", "192.0.2.60"),
    ] {
        assert_eq!(parse_single_node(line).as_deref(), Some(expected), "{line}");
    }
    let list =
        parse_nodes(&["for=192.0.2.43,for=\"[2001:db8:cafe::17]\", for=unknown", "for=192.0.2.1"]);
    let list: Vec<_> = list.iter().map(Option::as_deref).collect();
    let expected = [Some("192.0.2.1"), None, Some("2001:db8:cafe::17"), Some("192.0.2.43")];
    assert_eq!(list, expected, "from the right");
}

#[test]
fn malformed_element_yields_no_address() {
    for line in [
        "",
        "for",
        "for=",
        "for=\"\"",
        "=192.0.2.1",
        "192.0.2.1",
        "proto=http",
        "for=unknown",
        "for=_hidden",
        "for=\"_hidden:80\"",
        "for=192.0.2.1;for=192.0.2.2",
        "for=192.0.2.1;FOR=192.0.2.2",
        "for=192.0.2.1;proto=http;proto=https",
        "for=192.0.2.1;",
        ";for=192.0.2.1",
        "for=192.0.2.1;;proto=http",
        "for=192.0.2.1 for=192.0.2.2",
        "for=192.0.2.1:80",
        "for=2001:db8::1",
        "for=[2001:db8::1]",
        "for=\"2001:db8::1\"",
        "for=\"192.0.2.1",
        "for=192.0.2.1\"",
        "for=\"192.0.2.1\"x",
        "for=\"192.0.2.1\\\"",
        "for=\"192.0.2.1:_\"",
        "for=\"192.0.2.1:_a b\"",
        "for=\"192.0.2.1:99999\"",
        "f or=192.0.2.1",
        "for=192.0.2.1;a=1;b=1;c=1;d=1;e=1;f=1;g=1;h=1;i=1;j=1;k=1;l=1;m=1;n=1;o=1;p=1",
    ] {
        assert_eq!(parse_single_node(line), None, "{line}");
    }
}

/// An open quote from the client must not swallow the element that its proxy appends.
#[test]
fn bypass_open_quote_swallows_no_hop() {
    for left in ["for=\"", "for=\"x", "\"", "\\", "for=\"\\", "for=1.1.1.1;x=\"", "\"\"\"", "a\\\""]
    {
        for added in
            ["for=203.0.113.9", "for=\"203.0.113.9:80\";host=\"a,b\"", "for=203.0.113.9;by=_p"]
        {
            let found = parse_nodes(&[&format!("{left}, {added}")]);
            assert_eq!(found[0].as_deref(), Some("203.0.113.9"), "{left} {added}");
        }
    }
}

/// The proxy quotes the host that the client sent, with the client's quotes escaped.
#[test]
fn bypass_escaped_quotes_keep_element_whole() {
    let line = "for=203.0.113.9;host=\"x\\\", for=1.1.1.1;y=\\\"\"";
    assert_eq!(parse_nodes(&[line]), [Some("203.0.113.9".to_owned())]);
}

fn element() -> impl Strategy<Value = (IpAddr, String)> {
    let port = prop_oneof![Just(String::new()), ":[0-9]{1,4}", ":_[a-z.]{1,5}"];
    let other = prop_oneof![
        Just(String::new()),
        Just(";proto=https".to_owned()),
        "[ -~]{0,8}".prop_map(|text| {
            format!(";host=\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
        }),
    ];
    (any::<IpAddr>(), port, other, any::<bool>()).prop_map(|(ip, port, other, before)| {
        let ip = ip.to_canonical();
        let node = match ip {
            IpAddr::V4(ip) => format!("for=\"{ip}{port}\""),
            IpAddr::V6(ip) => format!("for=\"[{ip}]{port}\""),
        };
        match before {
            true if !other.is_empty() => (ip, format!("{};{node}", &other[1..])),
            _ => (ip, format!("{node}{other}")),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn well_formed_elements_round_trip(
        list in prop::collection::vec(element(), 1..5),
        split in 0_usize..5,
    ) {
        let split = split.min(list.len());
        let written: Vec<&str> = list.iter().map(|(_, text)| text.as_str()).collect();
        let lines = [written[..split].join(", "), written[split..].join(",")];
        let lines: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
        let expected: Vec<_> = list.iter().rev().map(|(ip, _)| Some(ip.to_string())).collect();
        prop_assert_eq!(parse_nodes(&lines), expected);
    }

    #[test]
    fn arbitrary_lines_have_at_most_one_node_per_comma(
        line in "[ -~]{0,40}",
        quotes in "[for=\",;\\\\ ]{0,20}",
    ) {
        let commas = line.matches(',').count() + quotes.matches(',').count();
        // Each of the two lines has an element more than it has commas.
        prop_assert!(parse_nodes(&[&line, &quotes]).len() <= commas + 2);
    }
}

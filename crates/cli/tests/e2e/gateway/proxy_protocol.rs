//! The gateway behind a real haproxy, which sends client addresses with the PROXY protocol.

use tidegate_testkit::nginx::NginxServer;

use crate::support::external_programs::HaproxyBalancer;
use crate::support::{ServerProcess, TestFolder, run_curl};

fn start_gateway(nginx: &NginxServer, folder: &TestFolder, trusted: &str) -> ServerProcess {
    let rules = format!(
        "identity: {{ ip: {{ trusted_proxies: [{trusted}] }} }}\n\
         rules: [{{ id: a, key_by: ip, limit: 2/d }}]"
    );
    let rules = folder.write("rules.yaml", rules);
    ServerProcess::start_gateway_with_config(
        &rules,
        &["--upstream", &nginx.url(), "--proxy-protocol"],
    )
}

/// The status codes of `count` requests from an address.
fn statuses_from(ip: &str, balancer: &HaproxyBalancer, count: usize) -> Vec<u16> {
    let spoofed = "X-Forwarded-For: 198.51.100.9";
    let status = || run_curl(&["--interface", ip, "-H", spoofed, &balancer.url()]).status;
    (0..count).map(|_| status()).collect()
}

#[test]
fn trusted_balancer_names_the_client() {
    let nginx = NginxServer::start("return 200 ok;");
    for send in ["send-proxy", "send-proxy-v2"] {
        let folder = TestFolder::new();
        let server = start_gateway(&nginx, &folder, "127.0.0.1/32");
        let balancer = HaproxyBalancer::start(&server.gateway, send);
        let before = nginx.requests().len();
        assert_eq!(statuses_from("127.0.0.2", &balancer, 3), [200, 200, 429], "{send}");
        assert_eq!(statuses_from("127.0.0.3", &balancer, 3), [200, 200, 429], "{send}");
        let lines = nginx.requests().split_off(before);
        let clients: Vec<_> =
            lines.iter().map(|line| line.split(" for=").nth(1).unwrap()).collect();
        let [a, b] = ["127.0.0.2", "127.0.0.3"].map(|ip| format!("{ip} ip={ip}"));
        assert_eq!(clients, [&a, &a, &b, &b], "{send}");
    }
}

#[test]
fn untrusted_balancer_counts_as_client() {
    let nginx = NginxServer::start("return 200 ok;");
    for send in ["send-proxy", "send-proxy-v2"] {
        let folder = TestFolder::new();
        let server = start_gateway(&nginx, &folder, "192.0.2.1/32");
        let balancer = HaproxyBalancer::start(&server.gateway, send);
        assert_eq!(statuses_from("127.0.0.2", &balancer, 2), [200, 200], "{send}");
        assert_eq!(
            statuses_from("127.0.0.3", &balancer, 1),
            [429],
            "counted under the balancer's address: {send}"
        );
    }
}

#[test]
fn missing_proxy_header_closes_connection() {
    let nginx = NginxServer::start("return 200 ok;");
    let folder = TestFolder::new();
    let server = start_gateway(&nginx, &folder, "127.0.0.1/32");
    let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    for first in [
        "",
        "PROXY TCP4 192.0.2.1\r\n",
        "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
        "PROXY NONSENSE 192.0.2.1 192.0.2.2 1 2\r\n",
        "\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
    ] {
        let received =
            server.gateway_client().send_and_read_to_end(format!("{first}{request}").as_bytes());
        assert_eq!(received, "", "{first:?}");
    }
    let good = format!("PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n{request}");
    let received = server.gateway_client().send_and_read_to_end(good.as_bytes());
    assert!(received.starts_with("HTTP/1.1 200"), "{received}");
    assert!(nginx.requests().concat().contains("ip=2001:db8::1"));
}

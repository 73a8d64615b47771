//! The recipes of `examples/forward-auth` as they are written: nginx, Caddy, HAProxy and Envoy ask before they
//! pass a request on.

use std::net::TcpStream;
use std::path::Path;

use tidegate_testkit::envoy::Envoy;
use tidegate_testkit::nginx::Nginx;
use tidegate_testkit::port::Port;
use tidegate_testkit::process::{Process, server_command};

use crate::support::programs::Fetched;
use crate::support::{Folder, Server, curl, tidegate, wait_for};

/// The app, which tells how much it was sent.
const APP: &str = r#"return 200 "well $content_length";"#;

fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/forward-auth");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Tidegate under the rules of the example, with an app.
struct Site {
    tidegate: Server,
    app: Nginx,
    folder: Folder,
}

impl Site {
    fn open() -> Self {
        let folder = Folder::new();
        let rules = folder.write("rules.yaml", example("rules.yaml"));
        Self { tidegate: Server::with_config(&rules, &[]), app: Nginx::start(APP), folder }
    }

    /// With tidegate on a unix socket, and rules that trust whoever comes over it.
    fn open_on_a_socket() -> Self {
        let folder = Folder::new();
        let trusted = ("trusted_proxies: [127.0.0.1/32]", "trusted_proxies: [unix]");
        let rules = folder.write("rules.yaml", example("rules.yaml").replace(trusted.0, trusted.1));
        let mut command = tidegate();
        command.args(["serve", "--resp", "off", "--config"]).arg(rules);
        command.arg("--http").arg(format!("unix:{}", folder.path("http.sock").display()));
        Self { tidegate: Server::spawn(command), app: Nginx::start(APP), folder }
    }

    /// Tidegate stops, and the app goes on.
    fn close(self) -> Nginx {
        self.tidegate.stop();
        self.app
    }

    /// A file of the example, at these addresses.
    fn file(&self, name: &str, at: &str) -> String {
        example(name)
            .replace("127.0.0.1:8081", &self.tidegate.address)
            .replace("127.0.0.1:3000", &self.app.address().to_string())
            .replace("127.0.0.1:8000", at)
    }

    /// A proxy that is started with a file.
    fn proxy(&self, program: &str, words: &[&str], file: &str) -> Proxy {
        let port = Port::take();
        let at = port.address();
        let lua = self.folder.write("tidegate.lua", self.file("tidegate.lua", ""));
        let text = self.file(file, &at.to_string()).replace("tidegate.lua", lua.to_str().unwrap());
        let file = self.folder.write(file, text);
        let mut command = server_command(program);
        // Caddy keeps what it knows in the home of whoever runs it.
        command.env("HOME", self.folder.path(""));
        let process = Process::start(command.args(words).arg(file), &self.folder.path("proxy.log"));
        wait_for(program, || {
            assert!(process.is_running(), "{}", process.log());
            TcpStream::connect(at).ok()
        });
        Proxy { _process: process, port }
    }
}

struct Proxy {
    _process: Process,
    port: Port,
}

impl Proxy {
    fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }
}

/// Five a minute pass and are told how it stands, also a body; then nothing does, whatever a client says
/// of itself, and the app does not hear of it.
#[track_caller]
fn assert_limited(site: &Site, url: &str) -> Fetched {
    let api = format!("{url}/api/things?page=1");
    let policy = |told: &Fetched| told.header("ratelimit").map(str::to_owned);
    for left in (0..5).rev() {
        let passed = match left {
            4 => curl(&["--data", "twelve bytes", &api]),
            _ => curl(&[&api]),
        };
        assert_eq!(passed.status, 200, "{passed:?}");
        assert_eq!(passed.body, if left == 4 { "well 12" } else { "well " });
        let told = policy(&passed).unwrap_or_default();
        assert!(
            told.is_empty() || told.starts_with(&format!("\"per-client\";r={left};")),
            "{told}"
        );
    }
    let refused = curl(&[&api]);
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!((1..=60).contains(&refused.header("retry-after").unwrap().parse::<u64>().unwrap()));
    assert_eq!(refused.header("cache-control"), Some("no-store"));
    assert!(policy(&refused).unwrap().starts_with("\"per-client\";r=0;"), "{refused:?}");
    for forged in [
        "X-Forwarded-For: 203.0.113.9",
        "X-Real-IP: 203.0.113.9",
        "X-Forwarded-Uri: /free",
        "X-Original-URI: /free",
        "X-Original-URL: http://a/free",
        "X-Forwarded-Method: OPTIONS",
        "X-HTTP-Method-Override: OPTIONS",
    ] {
        let told = curl(&["-H", forged, &api]);
        assert!(told.status >= 400, "{forged}: {told:?}");
    }
    assert_eq!(curl(&[&format!("{url}/free")]).status, 200, "no rule is for it");
    assert_eq!(site.app.requests().len(), 6, "what was refused did not reach the app");
    refused
}

#[test]
fn nginx_limits_and_passes_everything_while_nobody_answers() {
    let site = Site::open();
    let nginx = Nginx::start(&site.file("nginx.conf", ""));
    let url = format!("http://{}", nginx.address());
    assert_limited(&site, &url);
    let _app = site.close();
    assert_eq!(curl(&[&format!("{url}/api/things")]).status, 200, "open while it is away");
}

#[test]
fn nginx_limits_over_a_unix_socket() {
    let site = Site::open_on_a_socket();
    let by_port = "proxy_pass http://127.0.0.1:8081/";
    let by_file = "# proxy_pass http://unix:/run/tidegate/http.sock:/";
    let text = example("nginx.conf");
    assert!(text.contains(by_port) && text.contains(by_file), "{text}");
    let here = format!("proxy_pass http://{}:/", site.tidegate.address);
    let text = text.replace(by_port, "# ").replace(by_file, &here);
    let nginx = Nginx::start(&text.replace("127.0.0.1:3000", &site.app.address().to_string()));
    let url = format!("http://{}", nginx.address());
    assert_limited(&site, &url);
    let _app = site.close();
    assert_eq!(curl(&[&format!("{url}/api/things")]).status, 200, "open while it is away");
}

#[test]
fn caddy_limits_and_passes_the_refusal_on_as_it_is() {
    let site = Site::open();
    let caddy = site.proxy("caddy", &["run", "--adapter", "caddyfile", "--config"], "Caddyfile");
    let refused = assert_limited(&site, &caddy.url());
    assert!(refused.body.contains("\"error\":\"rate_limit_exceeded\""), "{refused:?}");
    assert!(refused.header("x-ratelimit-limit").is_some(), "{refused:?}");
}

#[test]
fn haproxy_limits_and_passes_everything_while_nobody_answers() {
    let site = Site::open();
    let haproxy = site.proxy("haproxy", &["-db", "-f"], "haproxy.cfg");
    assert_limited(&site, &haproxy.url());
    let _app = site.close();
    assert_eq!(curl(&[&format!("{}/api/things", haproxy.url())]).status, 200);
}

#[test]
fn envoy_limits_and_passes_everything_while_nobody_answers() {
    let site = Site::open();
    let port = |at: &str| format!("port_value: {}", at.rsplit_once(':').unwrap().1);
    // Tests assert outcomes; on a busy machine the example's 100 ms may pass with nobody at fault.
    let text = example("envoy.yaml").replace("timeout: 0.1s", "timeout: 10s");
    let envoy = Envoy::start(|listen, admin| {
        text.replace("port_value: 8000", &format!("port_value: {listen}"))
            .replace("port_value: 9901", &format!("port_value: {admin}"))
            .replace("port_value: 8081", &port(&site.tidegate.address))
            .replace("port_value: 3000", &port(&site.app.address().to_string()))
    });
    let refused = assert_limited(&site, &envoy.url(""));
    assert!(refused.body.contains("\"error\":\"rate_limit_exceeded\""), "{refused:?}");
    let passed = curl(&[&envoy.url("/api/things"), "-H", "X-Api-Key: another"]);
    assert_eq!(passed.status, 200, "the key is told too");
    assert!(passed.header("ratelimit").unwrap().starts_with("\"per-client\";r=4;"), "{passed:?}");
    assert_eq!(envoy.count("ext_authz.error"), 0);
    let _app = site.close();
    assert_eq!(curl(&[&envoy.url("/api/things")]).status, 200, "open while it is away");
    assert_eq!(envoy.count("ext_authz.failure_mode_allowed"), 1);
}

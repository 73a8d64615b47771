//! The recipes of `examples/forward-auth`, unchanged: nginx, Caddy, HAProxy and Envoy ask Tidegate
//! before they forward a request.

use std::net::TcpStream;
use std::path::Path;

use tidegate_testkit::envoy::EnvoyServer;
use tidegate_testkit::nginx::NginxServer;
use tidegate_testkit::port::ReservedPort;
use tidegate_testkit::process::{ChildProcess, server_command};

use crate::support::external_programs::CurlResponse;
use crate::support::{ServerProcess, TestFolder, run_curl, tidegate_command, wait_for};

/// The app, which returns the length of the request body.
const APP_CONFIG: &str = r#"return 200 "ok $content_length";"#;

fn read_example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/forward-auth");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Tidegate with the example's rules, and an app.
struct ForwardAuthSite {
    tidegate: ServerProcess,
    app: NginxServer,
    folder: TestFolder,
}

impl ForwardAuthSite {
    fn start() -> Self {
        let folder = TestFolder::new();
        let rules = folder.write("rules.yaml", read_example("rules.yaml"));
        Self {
            tidegate: ServerProcess::with_config(&rules, &[]),
            app: NginxServer::start(APP_CONFIG),
            folder,
        }
    }

    /// Starts Tidegate on a Unix socket, with rules that trust its clients as proxies.
    fn start_on_unix_socket() -> Self {
        let folder = TestFolder::new();
        let trusted = ("trusted_proxies: [127.0.0.1/32]", "trusted_proxies: [unix]");
        let rules =
            folder.write("rules.yaml", read_example("rules.yaml").replace(trusted.0, trusted.1));
        let mut command = tidegate_command();
        command.args(["serve", "--resp", "off", "--config"]).arg(rules);
        command.arg("--http").arg(format!("unix:{}", folder.path("http.sock").display()));
        Self {
            tidegate: ServerProcess::spawn(command),
            app: NginxServer::start(APP_CONFIG),
            folder,
        }
    }

    /// Stops Tidegate while the app keeps running.
    fn stop_tidegate(self) -> NginxServer {
        self.tidegate.stop();
        self.app
    }

    /// A file of the example, with the addresses of this site.
    fn render_example(&self, name: &str, at: &str) -> String {
        read_example(name)
            .replace("127.0.0.1:8081", &self.tidegate.address)
            .replace("127.0.0.1:3000", &self.app.address().to_string())
            .replace("127.0.0.1:8000", at)
    }

    /// Starts a proxy with a configuration file of the example.
    fn start_proxy(&self, program: &str, args: &[&str], file: &str) -> ProxyProcess {
        let port = ReservedPort::reserve();
        let at = port.address();
        let lua = self.folder.write("tidegate.lua", self.render_example("tidegate.lua", ""));
        let text = self
            .render_example(file, &at.to_string())
            .replace("tidegate.lua", lua.to_str().unwrap());
        let file = self.folder.write(file, text);
        let mut command = server_command(program);
        // Caddy keeps its state in the home directory.
        command.env("HOME", self.folder.path(""));
        let process =
            ChildProcess::start(command.args(args).arg(file), &self.folder.path("proxy.log"));
        wait_for(program, || {
            assert!(process.is_running(), "{}", process.log());
            TcpStream::connect(at).ok()
        });
        ProxyProcess { _process: process, port }
    }
}

struct ProxyProcess {
    _process: ChildProcess,
    port: ReservedPort,
}

impl ProxyProcess {
    fn url(&self) -> String {
        format!("http://{}", self.port.address())
    }
}

/// Asserts that five requests a minute pass, with limit headers and bodies. Further requests are
/// refused, whatever headers the client forges, and do not reach the app.
#[track_caller]
fn assert_limited(site: &ForwardAuthSite, url: &str) -> CurlResponse {
    let api = format!("{url}/api/things?page=1");
    let policy = |response: &CurlResponse| response.header("ratelimit").map(str::to_owned);
    for left in (0..5).rev() {
        let passed = match left {
            4 => run_curl(&["--data", "twelve bytes", &api]),
            _ => run_curl(&[&api]),
        };
        assert_eq!(passed.status, 200, "{passed:?}");
        assert_eq!(passed.body, if left == 4 { "ok 12" } else { "ok " });
        let limit = policy(&passed).unwrap_or_default();
        assert!(
            limit.is_empty() || limit.starts_with(&format!("\"per-client\";r={left};")),
            "{limit}"
        );
    }
    let refused = run_curl(&[&api]);
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
        let response = run_curl(&["-H", forged, &api]);
        assert!(response.status >= 400, "{forged}: {response:?}");
    }
    assert_eq!(run_curl(&[&format!("{url}/free")]).status, 200, "no rule matches it");
    assert_eq!(site.app.requests().len(), 6, "refused requests do not reach the app");
    refused
}

#[test]
fn nginx_limits_and_fails_open() {
    let site = ForwardAuthSite::start();
    let nginx = NginxServer::start(&site.render_example("nginx.conf", ""));
    let url = format!("http://{}", nginx.address());
    assert_limited(&site, &url);
    let _app = site.stop_tidegate();
    assert_eq!(run_curl(&[&format!("{url}/api/things")]).status, 200, "fails open");
}

#[test]
fn nginx_limits_over_unix_socket() {
    let site = ForwardAuthSite::start_on_unix_socket();
    let by_port = "proxy_pass http://127.0.0.1:8081/";
    let by_file = "# proxy_pass http://unix:/run/tidegate/http.sock:/";
    let text = read_example("nginx.conf");
    assert!(text.contains(by_port) && text.contains(by_file), "{text}");
    let here = format!("proxy_pass http://{}:/", site.tidegate.address);
    let text = text.replace(by_port, "# ").replace(by_file, &here);
    let nginx =
        NginxServer::start(&text.replace("127.0.0.1:3000", &site.app.address().to_string()));
    let url = format!("http://{}", nginx.address());
    assert_limited(&site, &url);
    let _app = site.stop_tidegate();
    assert_eq!(run_curl(&[&format!("{url}/api/things")]).status, 200, "fails open");
}

#[test]
fn caddy_limits_and_forwards_the_refusal() {
    let site = ForwardAuthSite::start();
    let caddy =
        site.start_proxy("caddy", &["run", "--adapter", "caddyfile", "--config"], "Caddyfile");
    let refused = assert_limited(&site, &caddy.url());
    assert!(refused.body.contains("\"error\":\"rate_limit_exceeded\""), "{refused:?}");
    assert!(refused.header("x-ratelimit-limit").is_some(), "{refused:?}");
}

#[test]
fn haproxy_limits_and_fails_open() {
    let site = ForwardAuthSite::start();
    let haproxy = site.start_proxy("haproxy", &["-db", "-f"], "haproxy.cfg");
    assert_limited(&site, &haproxy.url());
    let _app = site.stop_tidegate();
    assert_eq!(run_curl(&[&format!("{}/api/things", haproxy.url())]).status, 200);
}

#[test]
fn envoy_ext_authz_limits_and_fails_open() {
    let site = ForwardAuthSite::start();
    let port = |at: &str| format!("port_value: {}", at.rsplit_once(':').unwrap().1);
    // Tests assert outcomes; on a busy machine the example's 100 ms may pass without a fault.
    let text = read_example("envoy.yaml").replace("timeout: 0.1s", "timeout: 10s");
    let envoy = EnvoyServer::start(|listen, admin| {
        text.replace("port_value: 8000", &format!("port_value: {listen}"))
            .replace("port_value: 9901", &format!("port_value: {admin}"))
            .replace("port_value: 8081", &port(&site.tidegate.address))
            .replace("port_value: 3000", &port(&site.app.address().to_string()))
    });
    let refused = assert_limited(&site, &envoy.url(""));
    assert!(refused.body.contains("\"error\":\"rate_limit_exceeded\""), "{refused:?}");
    let passed = run_curl(&[&envoy.url("/api/things"), "-H", "X-Api-Key: another"]);
    assert_eq!(passed.status, 200, "Envoy forwards the key too");
    assert!(passed.header("ratelimit").unwrap().starts_with("\"per-client\";r=4;"), "{passed:?}");
    assert_eq!(envoy.counter_value("ext_authz.error"), 0);
    let _app = site.stop_tidegate();
    assert_eq!(run_curl(&[&envoy.url("/api/things")]).status, 200, "fails open");
    assert_eq!(envoy.counter_value("ext_authz.failure_mode_allowed"), 1);
}

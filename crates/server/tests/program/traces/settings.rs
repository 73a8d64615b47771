//! Where it is said that traces go: in the document, in OpenTelemetry's own variables; and over TLS.

use super::{TRACE, sampled};
use crate::support::collector::value;
use crate::support::{Authority, Collector, Folder, Server, Upstream, tidegate};

/// A gateway that is told by its environment, and by more words.
fn started(upstream: &Upstream, words: &[&str], variables: &[(&str, &str)]) -> Server {
    let mut command = tidegate();
    command.args(["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"]).args(words);
    command.args(["--gateway", "127.0.0.1:0", "--upstream", &upstream.url()]);
    command.envs(variables.iter().copied());
    Server::spawn(command)
}

/// What the collector hears of who tells, once a request was traced.
fn told(server: &Server, collector: &Collector, name: &str) -> Option<String> {
    assert_eq!(server.visitor().get_with("/", &[("traceparent", &sampled())]).status, 200);
    collector.trace(TRACE, 3);
    value(&collector.resource.lock().unwrap(), name)
}

#[test]
fn the_variables_of_opentelemetry_are_enough() {
    let (upstream, collector) = (Upstream::start(), Collector::start());
    let url = collector.url();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_SERVICE_NAME", "by-variable"),
        ("OTEL_RESOURCE_ATTRIBUTES", "cloud.region=eu,a=b"),
    ];
    let server = started(&upstream, &["--limit", "9/s"], &variables);
    assert_eq!(told(&server, &collector, "service.name").as_deref(), Some("by-variable"));
    assert_eq!(value(&collector.resource.lock().unwrap(), "a").as_deref(), Some("b"));
    upstream.request();
    let words = ["--limit", "9/s", "--otlp", "off"];
    let off = started(&upstream, &words, &variables);
    assert_eq!(off.visitor().get("/").status, 200);
    assert_eq!(upstream.request().header("traceparent"), None, "our own word counts more");
}

#[test]
fn the_document_is_enough_and_counts_more_than_other_peoples_variables() {
    let (upstream, collector, folder) = (Upstream::start(), Collector::start(), Folder::new());
    let document = format!(
        "server: {{ otlp: \"{}\", otlp_sample: 0, otlp_service: by-document, \
         otlp_attributes: \"a=b\", log_violations: 1 }}\nrules: [{{ id: a, limit: 9/s }}]",
        collector.url()
    );
    let rules = folder.write("rules.yaml", document);
    let words = ["--config", rules.to_str().unwrap()];
    let variables = [("OTEL_SERVICE_NAME", "other"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:1")];
    let server = started(&upstream, &words, &variables);
    assert_eq!(server.visitor().get("/").status, 200);
    assert!(upstream.request().header("traceparent").unwrap().ends_with("-00"), "none of ours");
    assert_eq!(told(&server, &collector, "service.name").as_deref(), Some("by-document"));
}

#[test]
fn a_collector_over_tls_gets_its_token_and_is_believed_with_its_authority_only() {
    let (upstream, folder) = (Upstream::start(), Folder::new());
    let [good, wrong] = ["good", "wrong"].map(|name| Authority::make(&folder.path("."), name));
    for listen in ["ssl", "ssl http2"] {
        let collector = Collector::start();
        let pass = format!(
            "if ($http_x_token != s3cret) {{ return 401; }} \
             location / {{ proxy_http_version 1.1; proxy_pass {}; }}",
            collector.url()
        );
        let nginx = good.nginx(listen, &pass);
        let url = format!("https://localhost:{}", nginx.address().port());
        let words = ["--limit", "9/s", "--otlp", url.as_str(), "--log-level", "trace"];
        let start = |authority: &Authority| {
            let file = authority.certificate();
            let token = ("OTEL_EXPORTER_OTLP_HEADERS", "x-token=s3cret");
            started(&upstream, &words, &[token, ("SSL_CERT_FILE", file.to_str().unwrap())])
        };
        let server = start(&good);
        assert_eq!(told(&server, &collector, "service.name").as_deref(), Some("tidegate"));
        assert!(!server.log().contains("s3cret"), "{}", server.log());
        let server = start(&wrong);
        assert_eq!(server.visitor().get("/").status, 200);
        server.wait_log("the collector takes no traces");
        server.wait_log("UnknownIssuer");
    }
}

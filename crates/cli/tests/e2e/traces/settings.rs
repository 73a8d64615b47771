//! Settings for traces: in the document, in OpenTelemetry's environment variables, and with TLS.

use super::{TRACE_ID, sampled_traceparent};
use crate::support::otlp_collector::attribute_value;
use crate::support::{
    RecordingUpstream, ServerProcess, TestCertificateAuthority, TestFolder, TestOtlpCollector,
    tidegate_command,
};

/// A gateway with additional arguments and environment variables.
fn start_gateway(
    upstream: &RecordingUpstream,
    args: &[&str],
    variables: &[(&str, &str)],
) -> ServerProcess {
    let mut command = tidegate_command();
    command.args(["serve", "--http", "127.0.0.1:0", "--resp", "127.0.0.1:0"]).args(args);
    command.args(["--gateway", "127.0.0.1:0", "--upstream", &upstream.url()]);
    command.envs(variables.iter().copied());
    ServerProcess::spawn(command)
}

/// Sends a traced request, and returns a resource attribute that the collector received.
fn resource_attribute(
    server: &ServerProcess,
    collector: &TestOtlpCollector,
    name: &str,
) -> Option<String> {
    assert_eq!(
        server.gateway_client().get_with("/", &[("traceparent", &sampled_traceparent())]).status,
        200
    );
    collector.wait_for_trace(TRACE_ID, 3);
    attribute_value(&collector.resource.lock().unwrap(), name)
}

#[test]
fn otel_variables_configure_tracing() {
    let (upstream, collector) = (RecordingUpstream::start(), TestOtlpCollector::start());
    let url = collector.url();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_SERVICE_NAME", "by-variable"),
        ("OTEL_RESOURCE_ATTRIBUTES", "cloud.region=eu,a=b"),
    ];
    let server = start_gateway(&upstream, &["--limit", "9/s"], &variables);
    assert_eq!(
        resource_attribute(&server, &collector, "service.name").as_deref(),
        Some("by-variable")
    );
    assert_eq!(attribute_value(&collector.resource.lock().unwrap(), "a").as_deref(), Some("b"));
    upstream.next_request();
    let args = ["--limit", "9/s", "--otlp", "off"];
    let off = start_gateway(&upstream, &args, &variables);
    assert_eq!(off.gateway_client().get("/").status, 200);
    let forwarded = upstream.next_request();
    assert_eq!(forwarded.header("traceparent"), None, "the flag overrides the variables");
}

#[test]
fn document_overrides_otel_variables() {
    let (upstream, collector, folder) =
        (RecordingUpstream::start(), TestOtlpCollector::start(), TestFolder::new());
    let document = format!(
        "server: {{ otlp: \"{}\", otlp_sample: 0, otlp_service: by-document, \
         otlp_attributes: \"a=b\", log_violations: 1 }}\nrules: [{{ id: a, limit: 9/s }}]",
        collector.url()
    );
    let rules = folder.write("rules.yaml", document);
    let args = ["--config", rules.to_str().unwrap()];
    let variables = [("OTEL_SERVICE_NAME", "other"), ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://x:1")];
    let server = start_gateway(&upstream, &args, &variables);
    assert_eq!(server.gateway_client().get("/").status, 200);
    assert!(
        upstream.next_request().header("traceparent").unwrap().ends_with("-00"),
        "a ratio of 0 samples no new trace"
    );
    assert_eq!(
        resource_attribute(&server, &collector, "service.name").as_deref(),
        Some("by-document")
    );
}

#[test]
fn tls_collector_is_verified_and_authenticated() {
    let (upstream, folder) = (RecordingUpstream::start(), TestFolder::new());
    let [good, wrong] =
        ["good", "wrong"].map(|name| TestCertificateAuthority::create(&folder.path("."), name));
    for listen in ["ssl", "ssl http2"] {
        let collector = TestOtlpCollector::start();
        let pass = format!(
            "if ($http_x_token != s3cret) {{ return 401; }} \
             location / {{ proxy_http_version 1.1; proxy_pass {}; }}",
            collector.url()
        );
        let nginx = good.start_nginx(listen, &pass);
        let url = format!("https://localhost:{}", nginx.address().port());
        let args = ["--limit", "9/s", "--otlp", url.as_str(), "--log-level", "trace"];
        let start = |authority: &TestCertificateAuthority| {
            let file = authority.certificate_path();
            let token = ("OTEL_EXPORTER_OTLP_HEADERS", "x-token=s3cret");
            start_gateway(&upstream, &args, &[token, ("SSL_CERT_FILE", file.to_str().unwrap())])
        };
        let server = start(&good);
        assert_eq!(
            resource_attribute(&server, &collector, "service.name").as_deref(),
            Some("tidegate")
        );
        assert!(!server.log().contains("s3cret"), "{}", server.log());
        let server = start(&wrong);
        assert_eq!(server.gateway_client().get("/").status, 200);
        server.wait_for_log("the collector does not accept traces");
        server.wait_for_log("UnknownIssuer");
    }
}

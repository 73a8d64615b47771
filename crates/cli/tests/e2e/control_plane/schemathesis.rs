//! Checks the admin API against its OpenAPI document with schemathesis, an independent tool. It
//! derives thousands of valid and invalid requests from `/openapi.json`.

use tidegate_testkit::python::python;

use super::{admin_client, start_server};
use crate::support::{TestFolder, utf8_text};

/// The checks that every response must pass.
const SCHEMATHESIS_CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,allow_header_conformance";

const RULES: &str = "
identity: { api_key: { header: x-api-key }, tier: { subject: api_key, default: free } }
rules:
  - { id: free, match: { tier: free }, key_by: api_key, limit: 100/min }
  - { id: paid, match: { tier: paid }, key_by: api_key, limit: 1000/min }
";

#[test]
fn admin_api_conforms_to_openapi() {
    let folder = TestFolder::new();
    let server =
        start_server(&folder.write("rules.yaml", RULES), &["--rules-db", &folder.database_url()]);
    let mut command = python();
    command.args(["-m", "schemathesis.cli", "run", "--checks", SCHEMATHESIS_CHECKS, "--no-color"]);
    command.args(["--phases", "examples,coverage,fuzzing", "--generation-database", "none"]);
    // A fixed seed for reproducible requests, and few examples to keep the test short.
    command.args(["--seed", "6", "--max-examples", "20", "--workers", "1", "--warnings", "off"]);
    // The response of this endpoint never ends.
    command.args(["--exclude-path", "/v1/live"]);
    command.arg(format!("http://{}/openapi.json", server.admin_address()));
    let output = command.current_dir(folder.path(".")).output().unwrap();
    let report = utf8_text(&output.stdout);
    assert!(output.status.success(), "{report}\n{}\n{}", utf8_text(&output.stderr), server.log());
    assert!(report.contains("Operations:       36 selected / 37 total"), "{report}");
    // Some requests succeeded in changing rules, and the server is still healthy.
    assert!(
        admin_client(&server).get("/v1/versions").body["versions"].as_array().unwrap().len() > 1
    );
    server.stop();
}

//! The admin API against what it says of itself, by a program that nobody here wrote: thousands of requests made
//! from `/openapi.json`, well formed and not.

use tidegate_testkit::python::python;

use super::{admin_client, start_server};
use crate::support::{TestFolder, utf8_text};

/// What every answer is held against.
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
    // The same requests each time, and not for long.
    command.args(["--seed", "6", "--max-examples", "20", "--workers", "1", "--warnings", "off"]);
    // One that never ends is not waited for.
    command.args(["--exclude-path", "/v1/live"]);
    command.arg(format!("http://{}/openapi.json", server.admin_address()));
    let output = command.current_dir(folder.path(".")).output().unwrap();
    let told = utf8_text(&output.stdout);
    assert!(output.status.success(), "{told}\n{}\n{}", utf8_text(&output.stderr), server.log());
    assert!(told.contains("Operations:       36 selected / 37 total"), "{told}");
    // It did not only knock: rules were made, and the process is as well as before.
    assert!(
        admin_client(&server).get("/v1/versions").body["versions"].as_array().unwrap().len() > 1
    );
    server.stop();
}

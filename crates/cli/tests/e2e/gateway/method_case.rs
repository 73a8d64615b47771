//! The case of a method: Flask upper-cases what it gets and runs the handler, so the rules count
//! all spellings alike.

use crate::support::{FlaskApp, ServerProcess, TestFolder, run_curl};

/// One login and one change an hour.
const RULES: &str = "identity: { ip: { trusted_proxies: [127.0.0.1/32] } }\n\
     rules:\n  - { id: login, match: { endpoint: POST /login }, key_by: global, limit: 1/h }\n  \
     - { id: change, match: { method: PATCH }, key_by: global, limit: 1/h }\n";

const ROUTES: &str = "
@app.route('/login', methods=['POST', 'PATCH'])
def login():
    return request.environ['REQUEST_METHOD']
";

fn start_gateway(flask: &FlaskApp, folder: &TestFolder) -> ServerProcess {
    let rules = folder.write("rules.yaml", RULES);
    ServerProcess::start_gateway_with_config(&rules, &["--upstream", &flask.url()])
}

#[test]
fn rules_count_methods_case_insensitively() {
    let (flask, folder) = (FlaskApp::start(ROUTES), TestFolder::new());
    let url = format!("{}/login", flask.url());
    assert_eq!(run_curl(&["-X", "post", &url]).body, "post", "Flask itself serves it");
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let server = start_gateway(&flask, &folder);
        let url = format!("http://{}/login", server.gateway);
        let ask = |method: &str| run_curl(&[version, "-X", method, &url]);
        // As a page's `fetch` sends it.
        let first = ask("patch");
        assert_eq!((first.status, first.body.as_str()), (200, "PATCH"), "{version}: {first:?}");
        let first = ask("post");
        assert_eq!((first.status, first.body.as_str()), (200, "POST"), "{version}: {first:?}");
        for method in ["POST", "post", "Post", "pOsT", "PATCH", "patch"] {
            assert_eq!(ask(method).status, 429, "{version} {method}");
        }
    }
}

#[test]
fn every_api_ignores_method_case() {
    let (flask, folder) = (FlaskApp::start(ROUTES), TestFolder::new());
    let server = start_gateway(&flask, &folder);
    let asked = format!("http://{}/v1/forward-auth", server.address);
    let forward_auth = |method: &str| {
        let method = format!("x-forwarded-method: {method}");
        run_curl(&[&asked, "-H", &method, "-H", "x-forwarded-uri: /login"]).status
    };
    assert_eq!(forward_auth("post"), 200);
    assert_eq!([forward_auth("POST"), forward_auth("pOST")], [429, 429]);
    let checked = format!("http://{}/v1/check", server.address);
    for facts in [
        r#"{"facts":{"method":"post","path":"/login"}}"#,
        r#"{"facts":{"endpoint":"post /login"}}"#,
    ] {
        assert_eq!(run_curl(&[&checked, "-d", facts]).status, 429, "{facts}");
    }
    let login = format!("http://{}/login", server.gateway);
    assert_eq!(run_curl(&["-X", "post", &login]).status, 429);
}

//! The case of a method: Flask converts methods to upper case and runs the handler, so rules must
//! count all spellings alike.

use crate::support::{FlaskApp, ServerProcess, TestFolder, run_curl};

/// One login and one change per hour.
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
    assert_eq!(run_curl(&["-X", "post", &url]).body, "post", "Flask itself accepts it");
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let server = start_gateway(&flask, &folder);
        let url = format!("http://{}/login", server.gateway);
        let send = |method: &str| run_curl(&[version, "-X", method, &url]);
        // As `fetch` in a browser sends it.
        let first = send("patch");
        assert_eq!((first.status, first.body.as_str()), (200, "PATCH"), "{version}: {first:?}");
        let first = send("post");
        assert_eq!((first.status, first.body.as_str()), (200, "POST"), "{version}: {first:?}");
        for method in ["POST", "post", "Post", "pOsT", "PATCH", "patch"] {
            assert_eq!(send(method).status, 429, "{version} {method}");
        }
    }
}

#[test]
fn every_api_ignores_method_case() {
    let (flask, folder) = (FlaskApp::start(ROUTES), TestFolder::new());
    let server = start_gateway(&flask, &folder);
    let forward_auth_url = format!("http://{}/v1/forward-auth", server.address);
    let forward_auth = |method: &str| {
        let method = format!("x-forwarded-method: {method}");
        run_curl(&[&forward_auth_url, "-H", &method, "-H", "x-forwarded-uri: /login"]).status
    };
    assert_eq!(forward_auth("post"), 200);
    assert_eq!([forward_auth("POST"), forward_auth("pOST")], [429, 429]);
    let check_url = format!("http://{}/v1/check", server.address);
    for facts in [
        r#"{"facts":{"method":"post","path":"/login"}}"#,
        r#"{"facts":{"endpoint":"post /login"}}"#,
    ] {
        assert_eq!(run_curl(&[&check_url, "-d", facts]).status, 429, "{facts}");
    }
    let login = format!("http://{}/login", server.gateway);
    assert_eq!(run_curl(&["-X", "post", &login]).status, 429);
}

//! The API's OpenAPI document. The tests here check that it lists exactly the existing routes;
//! `schemathesis` checks that responses conform to it.

/// The document, in OpenAPI 3.1.
pub(super) const DOCUMENT: &[u8] = include_bytes!("../assets/openapi.json");

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value as Json;

    use super::super::guard::AdminAccess;
    use super::super::route::{AdminRoute, COUNTERS, PROBES};
    use super::*;

    const METHODS: [&str; 8] =
        ["get", "post", "put", "patch", "delete", "options", "trace", "connect"];

    fn document() -> Json {
        serde_json::from_slice(DOCUMENT).unwrap()
    }

    fn object(json: &Json) -> impl Iterator<Item = (&String, &Json)> {
        json.as_object().unwrap().iter()
    }

    /// The route of a method on a path of the document.
    fn route(method: &str, path: &str) -> AdminRoute {
        let uri = path.replace("{id}", "some%2Fid").replace("{number}", "7").parse().unwrap();
        AdminRoute::parse(&method.to_uppercase().parse().unwrap(), &uri).unwrap()
    }

    /// The names in the declaration of [`super::super::route::AdminOperation`].
    fn operation_names() -> BTreeSet<&'static str> {
        let source = include_str!("route.rs");
        let from = source.split_once("enum AdminOperation {").unwrap().1;
        let names = from.split_once("\n}").unwrap().0.lines();
        names
            .filter_map(|line| line.trim().split([',', '(', ' ']).next())
            .filter(not_empty)
            .collect()
    }

    fn not_empty(text: &&str) -> bool {
        !text.is_empty()
    }

    #[test]
    fn openapi_lists_exactly_the_routes() {
        let document = document();
        let mut reached = BTreeSet::new();
        for (path, item) in object(&document["paths"]) {
            for method in METHODS {
                let listed = item.get(method).is_some();
                match route(method, path) {
                    AdminRoute::Operation(call) => {
                        assert!(listed, "{method} {path} is not in the document");
                        let name = format!("{call:?}");
                        reached.insert(name.split(['(', ' ']).next().unwrap().to_owned());
                    }
                    AdminRoute::DashboardFile(_) | AdminRoute::MethodNotAllowed { .. } => {
                        assert!(!listed, "{method} {path} is listed, but there is no such route");
                    }
                    // The router passes every method on; their handlers accept only one.
                    AdminRoute::Probe | AdminRoute::Live => {
                        assert_eq!(listed, method == "get", "{method} {path}");
                    }
                    AdminRoute::Counters(_) => {
                        assert_eq!(listed, method == "post", "{method} {path}");
                    }
                }
            }
        }
        assert_eq!(reached.iter().map(String::as_str).collect::<BTreeSet<_>>(), operation_names());
        let others =
            PROBES.into_iter().map(|name| format!("/{name}")).chain(["/v1/live".to_owned()]);
        let others = others.chain(COUNTERS.into_iter().map(|(name, _)| format!("/v1/{name}")));
        for path in others {
            assert!(document["paths"].get(&path).is_some(), "{path}");
        }
    }

    #[test]
    fn openapi_security_matches_route_access() {
        let document = document();
        for (path, item) in object(&document["paths"]) {
            for (method, operation) in object(item).filter(|(name, _)| *name != "parameters") {
                let schemes: Vec<&str> = operation["security"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter_map(|one| one.as_object().unwrap().keys().next())
                    .map(String::as_str)
                    .collect();
                let needs: &[&str] = match route(method, path).access() {
                    AdminAccess::Open => &[],
                    AdminAccess::Read => &["write", "read"],
                    AdminAccess::Write => &["write"],
                };
                assert_eq!(schemes, needs, "{method} {path}");
            }
        }
    }

    /// Not every OpenAPI tool reports a dangling reference.
    #[test]
    fn openapi_references_resolve_and_are_used() {
        let document = document();
        let text = document.to_string();
        let mut used = BTreeSet::new();
        for piece in text.split("\"$ref\":\"#").skip(1) {
            let pointer = piece.split('"').next().unwrap();
            assert!(document.pointer(pointer).is_some(), "{pointer}");
            used.insert(pointer);
        }
        for kind in ["schemas", "responses", "parameters"] {
            for (name, _) in object(&document["components"][kind]) {
                let pointer = format!("/components/{kind}/{name}");
                assert!(used.contains(pointer.as_str()), "{pointer} is not used");
            }
        }
    }
}

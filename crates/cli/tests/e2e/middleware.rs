//! The middlewares of `clients/` in real applications: FastAPI, Flask, Express, Fastify and Go's
//! net/http. Each must pass the conformance file, survive outages of the server, and keep its
//! connections.

mod application;
mod conformance;
mod outage;
mod unit_tests;

/// Runs each test with each framework.
macro_rules! test_with_all_frameworks {
    ($($name:ident),+ $(,)?) => {
        test_with_all_frameworks!(@ [$($name)+] fastapi FastApi);
        test_with_all_frameworks!(@ [$($name)+] flask Flask);
        test_with_all_frameworks!(@ [$($name)+] express Express);
        test_with_all_frameworks!(@ [$($name)+] fastify Fastify);
        test_with_all_frameworks!(@ [$($name)+] net_http NetHttp);
    };
    (@ [$($name:ident)+] $framework:ident $variant:ident) => {
        mod $framework {
            $(#[test]
            fn $name() {
                super::$name($crate::middleware::application::WebFramework::$variant);
            })+
        }
    };
}
use test_with_all_frameworks;

//! How a law is tried on many cases: how many, and where the ones that broke it are kept.

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestError, TestRunner};

/// Cases for each property: `TIDEGATE_CASES`, or 100 000.
#[must_use]
pub fn cases() -> u32 {
    std::env::var("TIDEGATE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000)
}

/// Tries `law` on `cases` cases, and first on those that broke it before: they are kept under
/// `proptest-regressions/`, in a file named after the law, and belong in the repository.
///
/// # Panics
/// When a case breaks the law, with the smallest such case that was found.
pub fn check_property<S: Strategy>(
    name: &str,
    cases: u32,
    strategy: &S,
    law: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let kept = Box::leak(format!("proptest-regressions/{name}.txt").into_boxed_str());
    let mut runner = TestRunner::new(Config {
        cases,
        // Strategies that filter reject in proportion to the cases; the default is a fixed number.
        max_local_rejects: u32::MAX,
        max_shrink_iters: 20_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(kept))),
        ..Config::default()
    });
    match runner.run(strategy, law) {
        Ok(()) => {}
        Err(TestError::Abort(why)) => panic!("{name}: gave up: {why}"),
        Err(TestError::Fail(why, case)) => panic!("{name}: {why}\nsmallest case: {case:?}"),
    }
}

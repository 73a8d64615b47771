//! Runs property tests: the number of cases, and where failing cases are saved.

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestError, TestRunner};

/// Number of cases per property: `TIDEGATE_CASES`, or 100 000.
#[must_use]
pub fn cases() -> u32 {
    std::env::var("TIDEGATE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000)
}

/// Checks `property` on `cases` random cases, after the cases that failed earlier. Failing cases
/// are saved in `proptest-regressions/`, in a file with the property's name, and should be
/// committed.
///
/// # Panics
/// If a case fails; the message contains the smallest failing case found.
pub fn check_property<S: Strategy>(
    name: &str,
    cases: u32,
    strategy: &S,
    property: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let path = Box::leak(format!("proptest-regressions/{name}.txt").into_boxed_str());
    let mut runner = TestRunner::new(Config {
        cases,
        // Strategies with filters reject in proportion to the number of cases; the default is a
        // fixed number.
        max_local_rejects: u32::MAX,
        max_shrink_iters: 20_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(path))),
        ..Config::default()
    });
    match runner.run(strategy, property) {
        Ok(()) => {}
        Err(TestError::Abort(why)) => panic!("{name}: gave up: {why}"),
        Err(TestError::Fail(why, case)) => panic!("{name}: {why}\nsmallest case: {case:?}"),
    }
}

//! The data paths that a test runs through.

use datapath::{ALL, DataPath};
use linux::features::probe;

/// The names, separated by commas, of the paths that could not run when the same tests ran before. The others
/// need not run again on an emulated kernel.
const MISSED: &str = "HOSTGAP_PATHS";

/// All data paths that this kernel can run. The others are recorded as skips of the calling test.
pub(crate) fn runnable() -> Vec<&'static DataPath> {
    let facts = probe().unwrap();
    let missed = std::env::var(MISSED).ok();
    let is_missed = |path: &&DataPath| {
        missed.as_deref().is_none_or(|missed| missed.split(',').any(|name| name == path.name))
    };
    let runs = |path: &&DataPath| match path.unmet(&facts).first() {
        None => true,
        Some(unmet) => {
            testkit::skip(&format!("{}: {unmet}", path.name));
            false
        }
    };
    let runnable: Vec<&DataPath> = ALL.iter().filter(is_missed).filter(runs).collect();
    assert!(!runnable.is_empty(), "a test without any data path would pass: {missed:?}");
    runnable
}

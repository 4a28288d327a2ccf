//! Files that a test compares with what the code makes, and rewrites on request.

use std::path::Path;

/// Compares a text with a file below the crate's directory; with `HOSTGAP_ACCEPT=1` writes the file instead.
#[track_caller]
pub(crate) fn check(file: &str, got: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("HOSTGAP_ACCEPT").is_some() {
        std::fs::write(&path, got)
            .unwrap_or_else(|error| panic!("could not write {}: {error}", path.display()));
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        expected == got,
        "{file} is not what the code makes now\n--- expected\n{expected}--- got\n{got}--- \
         to accept: cargo xtask golden datapath"
    );
}

//! What a daemon needs that forwards by itself, with ports of AF_XDP: links that a program reads and writes,
//! and what libxdp loads.

use std::env;
use std::path::PathBuf;

use super::{find_version, version};
use crate::tun;

/// The program that leads the frames of a link to a socket of AF_XDP, compiled.
const OBJECT: &str = "xsk_def_xdp_prog.o";
/// The variable that says where libxdp finds it.
const OBJECT_PATH: &str = "LIBXDP_OBJECT_PATH";

/// Whether there is what it needs; else what is missing, and what has it, or which version is too old.
pub fn find_af_xdp() -> Result<(), String> {
    let program = find_version(version::AF_XDP)?;
    // A bridge of such a daemon is a link that it reads and writes.
    tun::find()?;
    // Packages that were unpacked without an installation have it beside their programs (scripts/fetch-ovs).
    let beside = program.parent().map(|dir| dir.join("bpf"));
    let usual = [
        format!("/usr/lib/{}-linux-gnu/bpf", env::consts::ARCH),
        "/usr/lib64/bpf".into(),
        "/usr/lib/bpf".into(),
    ];
    let named = env::var_os(OBJECT_PATH).map(PathBuf::from);
    find_object(named.into_iter().chain(beside).chain(usual.map(PathBuf::from)))
}

fn find_object(mut places: impl Iterator<Item = PathBuf>) -> Result<(), String> {
    let found = places.any(|place| place.join(OBJECT).is_file());
    let why = || {
        format!(
            "{OBJECT} of libxdp is not installed: Debian and Ubuntu have it in the package libxdp1; {OBJECT_PATH} names another \
             directory"
        )
    };
    found.then_some(()).ok_or_else(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_found_where_it_lies_and_missed_by_its_package() {
        let dir = tempfile::tempdir().unwrap();
        let places = || [PathBuf::from("/no/such/place"), dir.path().to_owned()].into_iter();
        let why = find_object(places()).unwrap_err();
        assert!(why.contains(OBJECT) && why.contains("libxdp1") && why.contains(OBJECT_PATH), "{why}");
        std::fs::write(dir.path().join(OBJECT), "").unwrap();
        assert_eq!(find_object(places()), Ok(()));
    }
}

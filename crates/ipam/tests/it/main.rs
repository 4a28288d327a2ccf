//! Stores on a real file system, alone, many at once, and together with the real `host-local`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod boots;
mod errors;
mod host_local;
mod model;
mod quarantine;
mod together;

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use ipam::{Key, RangeSets, Reserved, Store};
use tempfile::TempDir;

/// Two sets, one of each family, with room for five pods each.
const DUAL: &str = r#"[[{"subnet":"10.0.0.0/29"}],[{"subnet":"fd00::/64","rangeEnd":"fd00::6"}]]"#;

/// A directory of its own, and a store of the network `n` in it where nothing rests.
fn store() -> (TempDir, Store) {
    let root = TempDir::new().unwrap();
    let store = Store::open(root.path(), "n").unwrap().with_quarantine(std::time::Duration::ZERO);
    (root, store)
}

fn sets(json: &str) -> RangeSets {
    serde_json::from_str(json).unwrap()
}

fn key(container: &str) -> Key {
    Key::new(container, "eth0").unwrap()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn texts(reserved: &[Reserved]) -> Vec<String> {
    reserved.iter().map(|reserved| reserved.address.to_string()).collect()
}

/// The addresses with their owners: `10.0.0.2 c1/eth0`.
fn all(store: &Store) -> Vec<String> {
    let all = store.all().unwrap();
    all.iter().map(|(address, holder)| format!("{address} {holder}")).collect()
}

/// The names in a directory, in order.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

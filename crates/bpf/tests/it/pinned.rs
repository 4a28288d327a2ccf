//! What is pinned in a folder, and folders as other versions would have left them.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use bpf::forward::Program;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapInfo, MapType};

use crate::node::{Node, ONE};

/// The names of all pins, the ids of the maps, and the programs at the link of the first pod.
#[derive(Debug, PartialEq)]
pub(crate) struct State {
    pub(crate) names: Vec<String>,
    pub(crate) maps: BTreeMap<String, u32>,
    pub(crate) attached: Vec<(&'static str, u32)>,
}

impl State {
    /// Of a folder with programs at a node's links.
    pub(crate) fn of(folder: &Path, node: &Node) -> State {
        let index = node.index(ONE.link);
        let attached = node.netns.run(|| bpf::program_ids_at(index)).expect("root can do it");
        State { names: names(folder), maps: maps(folder), attached: attached.expect("root can do it") }
    }
}

fn names(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry.expect("root can do it").file_name();
        name.into_string().expect("pins have plain names")
    };
    let mut names: Vec<String> = fs::read_dir(folder).expect("root can do it").map(name).collect();
    names.sort();
    names
}

/// The kernel's ids of the maps, by the names of their pins.
pub(crate) fn maps(folder: &Path) -> BTreeMap<String, u32> {
    // Every pin can be opened as a map, and programs and links have ids too.
    let is_program = |name: &str| {
        Program::ALL.iter().any(|program| name.trim_start_matches("new_") == program.name())
            || name.contains("link_")
    };
    let names = names(folder).into_iter().filter(|name| !is_program(name));
    let with_id = names.filter_map(|name| {
        let map = MapHandle::from_pinned_path(folder.join(&name)).ok()?;
        let id = MapInfo::new(map.as_fd()).expect("root can do it").info.id;
        Some((name, id))
    });
    with_id.collect()
}

/// Writes into the map of a folder's format.
pub(crate) fn write_format(folder: &Path, map: &str, number: u32) {
    let format = MapHandle::from_pinned_path(folder.join(map)).expect("it is pinned");
    format.update(&[0; 4], &number.to_ne_bytes(), MapFlags::ANY).expect("root can do it");
}

/// Replaces one of a folder's pinned maps by a map of another shape.
pub(crate) fn pin_instead(folder: &Path, name: &str, kind: MapType, key_bytes: u32, value_bytes: u32) {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        ..Default::default()
    };
    let path = folder.join(name);
    fs::remove_file(&path).expect("root can do it");
    let mut other =
        MapHandle::create(kind, Some(name), key_bytes, value_bytes, 1, &options).expect("root can do it");
    other.pin(&path).expect("root can do it");
}

pub(crate) fn pin(program: &impl AsRawFd, at: &Path) {
    let name = CString::new(at.to_str().expect("a plain path")).expect("a plain path");
    // SAFETY: the string ends with a zero, and the descriptor is open.
    let pinned = unsafe { libbpf_sys::bpf_obj_pin(program.as_raw_fd(), name.as_ptr()) };
    assert_eq!(pinned, 0, "pin {}", at.display());
}

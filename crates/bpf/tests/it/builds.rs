//! Programs of another build are told from those of this one, and replaced.

use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use bpf::forward::{Counter, FORMAT, Program};
use bpf::guard;
use libbpf_rs::MapHandle;
use linux::IfName;

use crate::frame;
use crate::guard::Scene;
use crate::node::{Node, ONE, TWO, can_run, far};
use crate::pinned::{pin, write_format};
use crate::preamble::{EXIT, SET, instruction, load_code};
use crate::replace::{furnish, replace_all};
use crate::run::Verdict;

/// `BPF_LD | BPF_DW | BPF_IMM`, of which the register 1 says that the number is a map's descriptor.
const MAP: u8 = 0x18;

/// A program of another build of this name and these maps: it lets every packet pass.
fn other(folder: &Path, program: Program) -> OwnedFd {
    let counters = MapHandle::from_pinned_path(folder.join("counters")).expect("it is pinned");
    let code = [
        instruction(MAP, (1, 1), 0, counters.as_fd().as_raw_fd()),
        instruction(0, (0, 0), 0, 0),
        instruction(SET, (0, 0), 0, -1),
        instruction(EXIT, (0, 0), 0, 0),
    ];
    let name = CString::new(program.name()).expect("a plain name");
    load_code(libbpf_sys::BPF_PROG_TYPE_SCHED_CLS, &name, &code)
}

/// Pins it in the place of this build's.
fn pin_other(folder: &Path, program: Program) -> OwnedFd {
    let other = other(folder, program);
    fs::remove_file(program.pin(folder)).expect("it is pinned");
    pin(&other, &program.pin(folder));
    other
}

/// As another build leaves a node: its program at a pod's link, too.
fn attach_other(node: &Node, folder: &Path, program: Program) {
    let other = pin_other(folder, program);
    let link = program.link_pin(folder, &IfName::new(ONE.link).expect("a sound name"));
    let link = libbpf_rs::Link::open(link).expect("it is pinned");
    // SAFETY: both descriptors are open; no options are given.
    let updated =
        unsafe { libbpf_sys::bpf_link_update(link.as_fd().as_raw_fd(), other.as_raw_fd(), std::ptr::null()) };
    assert_eq!(updated, 0, "{}", node.index(ONE.link));
}

/// The numbers of the programs at the first pod's link.
fn at_link(node: &Node) -> Vec<(&'static str, u32)> {
    let index = node.index(ONE.link);
    node.netns.run(|| bpf::program_ids_at(index)).expect("root can enter it").expect("root can ask")
}

#[test]
fn what_another_build_let_pass_is_dropped_when_its_programs_are_replaced() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    furnish(&node, false);
    let are_ours = || bpf::are_of_this_build(&node.folder).unwrap();
    assert!(are_ours(), "as they were loaded");
    let before = at_link(&node);
    if before.is_empty() {
        pin_other(&node.folder, Program::FromPod);
    } else {
        attach_other(&node, &node.folder, Program::FromPod);
    }
    assert!(!are_ours());
    let forged = || node.send(Program::FromPod, ONE.link, &TWO.to(far::OUTSIDE, b"x"));
    assert_eq!(forged().verdict, Verdict::Pass, "the other build has a hole");
    let other = at_link(&node);
    replace_all(&node, &node.config).unwrap();
    assert!(are_ours());
    assert!(before.is_empty() || at_link(&node) != other, "{other:?}");
    assert_eq!(forged().verdict, Verdict::Drop);
}

/// Each of the programs counts, and so does the format of the maps.
#[test]
fn one_program_of_another_build_makes_a_folder_another_build_s() {
    if !can_run() {
        return;
    }
    let node = Node::direct();
    let are_ours = || bpf::are_of_this_build(&node.folder).unwrap();
    for program in Program::FORWARD {
        pin_other(&node.folder, *program);
        assert!(!are_ours(), "{}", program.name());
        replace_all(&node, &node.config).unwrap();
        assert!(are_ours(), "{}", program.name());
        // A build that does not have it.
        fs::remove_file(program.pin(&node.folder)).unwrap();
        assert!(!are_ours(), "without {}", program.name());
        replace_all(&node, &node.config).unwrap();
        assert!(are_ours(), "{}", program.name());
    }
    for format in [FORMAT - 1, FORMAT + 1] {
        write_format(&node.folder, "format", format);
        assert!(!are_ours(), "of format {format}");
    }
    write_format(&node.folder, "format", FORMAT);
    assert!(are_ours());
    assert!(!bpf::are_of_this_build(&node.folder.join("none")).unwrap());
}

#[test]
fn a_guard_of_another_build_is_found() {
    let Some(scene) = Scene::new() else { return };
    let folder = &scene.folder;
    let is_ours = || guard::is_of_this_build(folder).unwrap();
    assert!(is_ours());
    pin_other(folder, Program::Guard);
    assert!(!is_ours());
    let (kind, packet) = frame::datagram(TWO.v4.into(), far::OUTSIDE.into(), b"x");
    let forged = || scene.send_at(ONE.link, None, &ONE.frame(kind, &packet));
    assert_eq!(forged(), (Verdict::Pass, vec![]), "the other build has a hole");
    scene.node.netns.run(|| guard::replace(folder)).unwrap().unwrap();
    assert!(is_ours());
    assert_eq!(forged(), (Verdict::Drop, vec![Counter::DropSpoofedAddress]));
    // The forwarding programs are no guard's, and a guard is not theirs.
    assert!(!guard::is_of_this_build(&scene.node.folder).unwrap());
    assert!(!bpf::are_of_this_build(folder).unwrap());
}
